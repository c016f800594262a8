"""`ds4scope events INPUT…`: every line as a typed event."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from parser.event import KINDS

if TYPE_CHECKING:
    import polars as pl

    from parser.event import Event
    from parser.eventlog import EventLog

#: Kinds that say what an unread line was, so their records hold it.
_UNREAD = ("foreign", "unknown")


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    from ds4scope.output import add_arguments

    parser.add_argument("input", nargs="+", metavar="INPUT", help="log or report: files, a directory, or -")
    add_arguments(parser)
    parser.add_argument(
        "--kind", action="append", choices=KINDS, metavar="KIND", help="only these (repeatable)"
    )
    parser.add_argument("--count", action="store_true", help="only how many of each kind")
    parser.add_argument(
        "--since", metavar="STAMP", help="from this stamp on ('1130 17:52', '1130' or '17:52:23')"
    )
    parser.add_argument("--until", metavar="STAMP", help="up to this stamp")
    parser.add_argument(
        "--lane", choices=("auto", "fast", "lark"), default="auto", help="force one of the two parsers"
    )
    parser.add_argument("--max-bytes", type=int, metavar="N", help="bytes that packed input may unpack to")


def run(args: argparse.Namespace) -> int:
    """Streams the events; 3 where the input holds nothing that ds4-server prints."""
    from ds4scope.output import write_rows
    from ds4scope.progress import with_progress
    from parser.inputs import Inputs
    from parser.reading import Asked

    asked = Asked(
        tuple(args.input), lane=args.lane, since=args.since, until=args.until, max_bytes=args.max_bytes,
        kinds=tuple(args.kind or ()),
    )  # fmt: skip
    inputs = Inputs(asked)
    seen: Counter[str] = Counter()
    logs = _counted(with_progress(inputs.blocks(), inputs.sources), seen)
    names = inputs.names if len(inputs.names) > 1 else ()
    rows = _count_rows(logs, seen) if args.count else _records(logs, names)
    columns = _count_columns if args.count else lambda: _columns(args.kind, several=bool(names))
    write_rows(rows, args, name="events", columns=columns, line=_count_line if args.count else _line)
    return _status(args, seen)


def _counted(logs: Iterator[EventLog], seen: Counter[str]) -> Iterator[EventLog]:
    for log in logs:
        seen.update(log.counts)
        yield log


def _records(logs: Iterator[EventLog], names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for log in logs:
        for event in log.rows(*KINDS):
            yield record(event, names)


def record(event: Event, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """One event as `docs/outputs.md` has it; with several inputs (`names`) it says which one."""
    place = {"line": event.line, "offset": event.offset, "stamp": event.stamp, "kind": event.kind}
    row = {**place, **event.fields}
    if event.kind in _UNREAD:
        row["message"] = event.text
    if event.extra:
        row["extra"] = dict(event.extra)
    if names:
        row["input"] = names[event.source]
    return row


def _columns(kinds: list[str] | None, *, several: bool) -> Mapping[str, pl.DataType]:
    """Columns of csv and parquet: the fields of the kinds; of two types under one name, as text."""
    import polars as pl

    from parser.grammar import grammar
    from parser.schema import DTYPES

    types: dict[str, pl.DataType] = {
        "line": pl.Int64(), "offset": pl.Int64(), "stamp": pl.String(), "kind": pl.String(),
    }  # fmt: skip
    for kind in kinds or KINDS:
        for field, word in grammar().fields(kind).items():
            dtype = DTYPES.get(word, pl.String())
            types[field] = dtype if types.get(field, dtype) == dtype else pl.String()
    types |= {"message": pl.String(), "extra": pl.String()}
    return types | {"input": pl.String()} if several else types


def _line(row: Mapping[str, Any]) -> str:
    from ds4scope.output import flat

    said = (
        f"{name}={flat(value)}"
        for name, value in row.items()
        if name not in ("line", "offset", "stamp", "kind")
    )
    words = _unread(row) if "message" in row else "  ".join(said)
    return f"{row['line']:>8}  {row['stamp'] or '':13}  {row['kind']:17}  {words}".rstrip()


def _unread(row: Mapping[str, Any]) -> str:
    """The message of a line that no rule knows, and how near it comes to one."""
    message = str(row["message"])
    near = _near(re.sub(r"[0-9]+", "0", message)) if row["kind"] == "unknown" else ""
    return message + near


@lru_cache(maxsize=1024)
def _near(shape: str) -> str:
    from parser.events import explain_near_miss

    miss = explain_near_miss(shape)
    return (
        f"   [nearly {miss.rule}: {', '.join(miss.expected[:3])} expected behind {shape[: miss.column - 1][-24:]!r}]"
        if miss
        else ""
    )


def _count_rows(logs: Iterator[EventLog], seen: Counter[str]) -> Iterator[dict[str, Any]]:
    for _ in logs:
        pass
    yield from ({"kind": kind, "events": seen[kind]} for kind in KINDS if seen[kind])


def _count_columns() -> Mapping[str, pl.DataType]:
    import polars as pl

    return {"kind": pl.String(), "events": pl.Int64()}


def _count_line(row: Mapping[str, Any]) -> str:
    return f"{row['kind']:17}  {row['events']:>12,}"


def _status(args: argparse.Namespace, seen: Counter[str]) -> int:
    if args.kind or any(seen[kind] for kind in seen if kind != "foreign"):
        return 0
    from parser.sources import nothing_found

    raise nothing_found(args.input)
