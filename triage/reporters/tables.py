"""`--format tables`: the tables of long logs as plain text that `diff` compares well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parser.sanitise import sanitise
from triage.history import TableData
from triage.report import Report


def render(report: Report) -> str:
    """All tables; the same input gives the same bytes, and equal rows stand in equal places."""
    tables = report.details.tables if report.details else ()
    return "\n".join("\n".join(text_lines(table)) + "\n" for table in tables)


def text_lines(table: TableData) -> Iterator[str]:
    """Title, column names and rows; columns have the width of their widest cell."""
    cells = [[sanitise(name) for name in table.columns], *([_cell(v) for v in row] for row in table.rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(table.columns))]
    yield sanitise(table.title)
    for row in cells:
        first, *rest = (
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join([first, *rest]).rstrip()


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else sanitise(str(value))
