"""Tables and JSON for people and scripts, one way for all commands."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any


def as_json(document: Mapping[str, Any]) -> str:
    """One JSON object, keys in the order given, numbers rounded to microseconds."""
    import json

    from ds4scope.output import escaped
    from parser.sanitise import HIDDEN

    text = json.dumps(_rounded(document), ensure_ascii=False, separators=(",", ":"))
    return HIDDEN.sub(escaped, text) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6) + 0.0 if isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return value


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> str:
    """A table in plain text; the first column is text, the others stand right."""
    from io import StringIO

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from parser.sanitise import sanitise

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(columns):
        made.add_column(Text(sanitise(name)), justify="left" if number == 0 else "right", overflow="fold")
    for row in rows:
        made.add_row(*(Text(sanitise(shown(value))) for value in row))
    out = StringIO()
    Console(file=out, width=_width(), no_color=True, force_terminal=False, highlight=False).print(made)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _width() -> int:
    return max(60, min(200, shutil.get_terminal_size((160, 24)).columns)) if sys.stdout.isatty() else 160


def shown(value: Any) -> str:
    """A cell: numbers with separators, seconds with three digits, nothing for what is not known."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 1000 else f"{value:,.1f}"
    return str(value)


def wants_json(format_: str | None) -> bool:
    """JSON only where it is asked for."""
    return format_ == "json"


def write(text: str, output: str | None = None, inputs: Sequence[str] = ()) -> None:
    """To standard output, or whole to a file that is none of `inputs`."""
    from ds4scope.output import opened

    with opened(output, inputs) as out:
        out.write(text.encode("utf-8", "backslashreplace"))
