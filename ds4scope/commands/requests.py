"""`ds4scope requests INPUT…`: one row a request."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    from ds4scope.output import add_arguments

    parser.add_argument("input", nargs="+", metavar="INPUT", help="log or report: files, a directory, or -")
    parser.add_argument("--trace", action="append", default=[], metavar="F", help="--trace file (repeatable)")
    parser.add_argument(
        "--client",
        dest="clients",
        action="append",
        default=[],
        metavar="F",
        help="clients' usage, JSON lines (repeatable)",
    )
    add_arguments(parser)
    parser.add_argument(
        "--since", metavar="STAMP", help="from this stamp on ('1130 17:52', '1130' or '17:52:23')"
    )
    parser.add_argument("--until", metavar="STAMP", help="up to this stamp")
    parser.add_argument(
        "--lane", choices=("auto", "fast", "lark"), default="auto", help="force one of the two parsers"
    )
    parser.add_argument("--year", type=int, metavar="YYYY", help="year of the first stamp (leap days)")
    parser.add_argument("--max-bytes", type=int, metavar="N", help="bytes that packed input may unpack to")


def run(args: argparse.Namespace) -> int:
    """Streams the rows; 3 where the input holds nothing that ds4-server prints."""
    from ds4scope.output import write_rows

    seen: set[str] = set()
    write_rows(_rows(args, seen), args, name="requests", columns=_columns, line=_line)
    if seen - {"foreign"}:
        return 0
    from parser.sources import nothing_found

    raise nothing_found(args.input)


def _rows(args: argparse.Namespace, seen: set[str]) -> Iterator[dict[str, Any]]:
    from ds4scope.progress import with_progress
    from parser.reading import read_segments

    segments = read_segments(
        args.input, traces=args.trace, clients=args.clients, lane=args.lane, since=args.since,
        until=args.until, max_bytes=args.max_bytes, year=args.year, through=with_progress,
    )  # fmt: skip
    for segment in segments:
        seen.update(segment.counts)
        for row in segment.requests:
            yield row.as_dict()


def _columns() -> Mapping[str, pl.DataType]:
    """Columns of csv and parquet."""

    from parser.request import Request

    return {name: _dtype(name, str(Request.__annotations__[name])) for name in Request.stable_names()}


def _dtype(name: str, annotation: str) -> pl.DataType:
    import polars as pl

    if name == "stores":
        return pl.String()
    if annotation.startswith("tuple[int"):
        return pl.List(pl.Int64())
    if annotation.startswith("tuple[str"):
        return pl.List(pl.String())
    plain = {"int": pl.Int64(), "float": pl.Float64(), "bool": pl.Boolean()}
    return plain.get(annotation.split(" |")[0], pl.String())


def _line(row: Mapping[str, Any]) -> str:
    """A line of the table."""
    slot = (
        "?" if row["slot"] is None else f"{row['slot']}{'?' if row['slot_confidence'] == 'ambiguous' else ''}"
    )
    reuse = (
        f"{_number(row['cached_tokens'])}/{_number(row['prompt_tokens'] or row['canonical_prompt_tokens'])}"
    )
    notes = []
    if row["common"] is not None and row["live_before"]:
        notes.append(f"miss live={row['live_before']} common={row['common']}")
    if row["lost_to_cache_tokens"]:
        notes.append(f"lost {_number(row['lost_to_cache_tokens'])}")
    if row["evict_stored"]:
        notes.append("evict store")
    start = "-" if row["start_s"] is None else f"{row['start_s']:.1f}"
    return (
        f"{row['request']:>6}  line {row['line']:<8} {start:>10} s  slot {slot:<3} {row['conversation'] or '-':<4}"
        f"{row['source'] or '-':<14} {reuse:>19}  gen {_number(row['generated_tokens']):>7}  "
        f"{row['finish'] or '-':<10} {'; '.join(notes)}"
    ).rstrip()


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
