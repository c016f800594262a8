"""Records out: one stream of rows, many formats. What `events`, `requests` and others print.

Text that stands in a row came from a log, so every format makes it harmless in its own way: JSON escapes what
a terminal would obey, CSV cells cannot be formulas, Markdown and tables show control signs written out.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from parser.errors import UsageError
from parser.sanitise import HIDDEN, sanitise

if TYPE_CHECKING:
    import polars as pl

FORMATS: Final = ("table", "ndjson", "json", "csv", "markdown", "parquet")
#: Rows that are written, or put in columns, together.
BATCH: Final = 4096
_FORMULA: Final = re.compile(r"[=+\-@\t\r]")

Row = Mapping[str, Any]
Columns = Mapping[str, "pl.DataType"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--format`, `--output` and `--no-color`."""
    parser.add_argument("--format", choices=FORMATS, help="default: a table for a person")
    parser.add_argument("-o", "--output", metavar="OUT", help="file to write (default: standard output)")
    parser.add_argument("--no-color", action="store_true", help="no colour (also NO_COLOR)")


def write_rows(
    rows: Iterable[Row],
    args: argparse.Namespace,
    *,
    name: str,
    columns: Callable[[], Columns],
    line: Callable[[Row], str],
) -> int:
    """Writes all rows as `args.format` to `args.output`; returns their number.

    `name` is the key of the array in `--format json`; `columns` gives names and types for csv, markdown and
    parquet (asked only there, it loads Polars); `line` makes a row a line of the table.
    """
    counted = _Counted(rows)
    with opened(args.output, args.input) as out:
        match args.format or "table":
            case "ndjson":
                _write(out, (json_bytes(row) + b"\n" for row in counted))
            case "json":
                _write(out, _json_array(counted, name))
            case "csv":
                _csv(out, counted, list(columns()))
            case "markdown":
                _write(out, (text.encode() for text in _markdown(counted, list(columns()))))
            case "parquet":
                _parquet(out, counted, columns())
            case _:
                _write(out, (text.encode() for text in _table(counted, line)))
    return counted.number


class _Counted:
    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows, self.number = rows, 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            self.number += 1
            yield row


def _write(out: IO[bytes], parts: Iterable[bytes]) -> None:
    batch: list[bytes] = []
    for part in parts:
        batch.append(part)
        if len(batch) == BATCH:
            out.write(b"".join(batch))
            batch.clear()
    out.write(b"".join(batch))


def json_bytes(value: Any) -> bytes:
    """Compact JSON in which signs that a terminal obeys, or that cannot be seen, are escaped."""
    import orjson

    data = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    if data.isascii() and b"\x7f" not in data:
        return data
    return HIDDEN.sub(escaped, data.decode("utf-8")).encode("utf-8")


def escaped(found: re.Match[str]) -> str:
    """A sign as JSON escapes it."""
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _json_array(rows: Iterable[Row], name: str) -> Iterator[bytes]:
    yield b'{"schema":1,' + json_bytes(name) + b":["
    for number, row in enumerate(rows):
        yield (b",\n" if number else b"\n") + json_bytes(row)
    yield b"\n]}\n"


def _csv(out: IO[bytes], rows: Iterable[Row], names: Sequence[str]) -> None:
    import io

    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow(names)
    places = {name: place for place, name in enumerate(names)}
    for row in rows:
        cells = [None] * len(names)
        for name, value in row.items():
            cells[places[name]] = cell(value)
        writer.writerow(cells)
    text.detach()


def cell(value: Any) -> Any:
    """A CSV cell: numbers as they are; text sanitised, and with an apostrophe where a spreadsheet would compute."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    shown = sanitise(flat(value))
    return f"'{shown}" if _FORMULA.match(shown) else shown


def flat(value: Any) -> str:
    """A list as words, a mapping as JSON, a truth value as JSON has it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(one, str | int) for one in value):
        return " ".join(map(str, value))
    return json_bytes(value).decode()


def _markdown(rows: Iterable[Row], names: Sequence[str]) -> Iterator[str]:
    held = list(rows)
    used = [name for name in names if any(row.get(name) is not None for row in held)] or list(names)
    yield "| " + " | ".join(used) + " |\n|" + " --- |" * len(used) + "\n"
    for row in held:
        yield "| " + " | ".join(_markdown_cell(row.get(name)) for name in used) + " |\n"


def _markdown_cell(value: Any) -> str:
    text = "" if value is None else sanitise(flat(value))
    return re.sub(r"([\\`*_{}\[\]()#+!|~$@])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))


def _table(rows: Iterable[Row], line: Callable[[Row], str]) -> Iterator[str]:
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for row in rows:
        text = sanitise(line(row))
        yield (text if wide is None or len(text) <= wide else text[: wide - 1] + "…") + "\n"


def _parquet(out: IO[bytes], rows: Iterable[Row], columns: Columns) -> None:
    import polars as pl
    from polars.io.plugins import register_io_source

    def batches(_with: Any, _where: Any, _limit: Any, _size: Any) -> Iterator[pl.DataFrame]:
        yield from (_frame(batch, columns) for batch in _batched(rows))

    if out.isatty():
        raise UsageError("E-USAGE-BINARY", "parquet is not for a terminal", hint="name a file with -o FILE")
    source = register_io_source(batches, schema=dict(columns), validate_schema=True)
    try:
        source.sink_parquet(out)
    except pl.exceptions.ComputeError as error:  # Polars wraps what the system says
        if "os error" not in str(error):
            raise
        raise _unwritable(str(error)) from None


def _batched(rows: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH:
            yield batch
            batch = []
    yield batch


def _frame(rows: list[Row], columns: Columns) -> pl.DataFrame:
    """Rows as columns; most columns stand in few rows, so only those that do are gathered."""
    import polars as pl

    used = {name for row in rows for name in row}
    values = {name: [row.get(name) for row in rows] for name in columns if name in used}
    texts = (name for name, dtype in columns.items() if dtype == pl.String and name in used)
    values |= {name: [_text(value) for value in values[name]] for name in texts}
    frame = pl.DataFrame(values, schema={name: columns[name] for name in values})
    return frame.select(
        pl.col(name) if name in used else pl.lit(None, dtype).alias(name) for name, dtype in columns.items()
    )


def _text(value: Any) -> str | None:
    return None if value is None else flat(value)


@contextmanager
def opened(path: str | None, inputs: Sequence[str] = ()) -> Iterator[IO[bytes]]:
    """Standard output, or a file that appears under its name only when it is whole.

    Raises UsageError for a file that cannot be written, or that is one of `inputs`.
    """
    if path in (None, "-"):
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(str(path))
    _refuse_overwriting(target, inputs)
    whole = not target.exists() or target.is_file()  # a device or a pipe is written to, never replaced
    part = Path(f"{path}.part") if whole else target
    try:
        out = part.open("wb") if path else None
    except OSError as error:
        raise _unwritable(error.strerror or str(error), path) from None
    if out is None:
        raise _unwritable("no name is given", path)
    try:
        with out:
            yield out
        if whole:
            part.replace(target)
    finally:
        if whole:
            part.unlink(missing_ok=True)


def _refuse_overwriting(target: Path, inputs: Sequence[str]) -> None:
    if target.is_file() and any(os.path.isfile(one) and target.samefile(one) for one in inputs):  # noqa: PTH113
        hint = "name another file"
        raise UsageError("E-USAGE-OVERWRITE", "the output is the input", path=str(target), hint=hint)


def _unwritable(why: str, path: str | None = None) -> UsageError:
    return UsageError("E-USAGE-OUTPUT", f"cannot write: {why}", path=path, hint="name a file you may write")
