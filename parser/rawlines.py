"""Bytes of a log -> columns of physical lines, their heads taken off (what `parser.textlines` does one by one)."""

from __future__ import annotations

import codecs
from typing import Final

import polars as pl

from parser.frames import where
from parser.textlines import AFTER_RECORD, ERROR_BYTES, MAX_TEXT, OPENERS
from parser.wrappers import COLOUR, MARK, unwrap_column, unwrap_plain

_BLANKS: Final = " \t\r"
_SUBSTITUTE: Final = "\x1a"
_OPENERS: Final = [opener.decode() for opener in OPENERS]
_OPENS: Final = "|".join(_OPENERS)
_CLOSES: Final = r' error="(?s:.*)"(?: +[0-9.]+s)?$'

codecs.register_error(
    "ds4scope-same-length",
    lambda error: (_SUBSTITUTE * (error.end - error.start), error.end),  # type: ignore[attr-defined]
)


def physical(data: bytes, line: int, offset: int) -> pl.DataFrame:
    """The physical lines of valid bytes: `line`, `offset`, `_length` (bytes), `raw` without line end."""
    raw = pl.read_lines(data)["line"] if data else pl.Series("line", [], dtype=pl.String)
    length = raw.str.len_bytes().cast(pl.Int64)
    ends = (length + 1).cum_sum()
    numbers = pl.int_range(line, line + len(raw), eager=True)
    return pl.DataFrame(
        {"line": numbers, "offset": ends - length - 1 + offset, "_length": length, "raw": raw}
    )


def at_places(data: bytes, numbers: list[int], offsets: list[int]) -> pl.DataFrame:
    """Valid bytes of lines from here and there: the same columns, with these line numbers and offsets."""
    rows = physical(data, 0, 0)
    return rows.with_columns(
        line=pl.Series(numbers, dtype=pl.Int64), offset=pl.Series(offsets, dtype=pl.Int64)
    )


def valid(data: bytes) -> bytes:
    """UTF-8 of the same length and lines: bad bytes become SUB, the CR of CRLF a blank."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b" \n")
        data = data[:-1] + b" " if data.endswith(b"\r") else data
    if data.isascii():
        return data
    return data.decode("utf-8", "ds4scope-same-length").encode("utf-8")


def cleaned(lines: pl.DataFrame, data: bytes) -> tuple[pl.DataFrame, pl.Series]:
    """(rows with `stamp`, `program`, `_text`, blanks and marks dropped; numbers of lines for the text lane)."""
    raw = lines["raw"]
    odd = lines["_length"] > MAX_TEXT
    if _SUBSTITUTE.encode() in data:
        odd |= raw.str.contains(_SUBSTITUTE, literal=True)
    if b"\x1b" in data:
        raw = raw.str.replace_all(COLOUR, "")
    if b"\0" in data:
        raw = raw.str.replace_all("\0", "", literal=True)
    raw = raw.str.strip_chars_end(_BLANKS)
    if raw.str.contains_any(_OPENERS).any():
        odd |= _records(lines, raw)
    heads, drop = unwrap_plain(raw), odd
    if heads is None:
        odd |= lines["raw"].str.starts_with("{")
        heads = unwrap_column(raw.str.strip_chars_start(_BLANKS))
        drop = odd | (heads["text"] == "") | heads["text"].str.contains(MARK)
    rows = lines.select_seq("line", "offset", "_length").hstack(heads.rename({"text": "_text"}))
    return (where(rows, ~drop) if drop.any() else rows), lines["line"].filter(odd)


def _records(lines: pl.DataFrame, text: pl.Series) -> pl.Series:
    """Lines that open a record of several lines, and all that may belong to it or decide where it ends."""
    opens = (text.str.contains(_OPENS) & ~text.str.contains(_CLOSES)).arg_true()
    ends = (lines["offset"] + lines["_length"]).gather(opens) + ERROR_BYTES
    stops = lines["offset"].search_sorted(ends) + AFTER_RECORD
    inside = pl.repeat(0, len(lines) + 1, eager=True, dtype=pl.Int64).to_list()
    for start, stop in zip(opens, stops, strict=True):
        inside[start] += 1
        inside[min(stop, len(lines))] -= 1
    return pl.Series(inside[:-1]).cum_sum() > 0


def stretches(lines: pl.DataFrame, left: pl.Series) -> list[tuple[int, int, int]]:
    """Runs of neighbouring line numbers as (line, offset, length in bytes without the last line end)."""
    if left.is_empty():
        return []
    rows = lines.filter(lines["line"].is_in(left.implode()))
    run = (rows["line"].diff().fill_null(1) != 1).cum_sum()
    ends = (pl.col("offset") + pl.col("_length")).last() - pl.col("offset").first()
    runs = (
        rows.with_columns(run=run)
        .group_by("run", maintain_order=True)
        .agg(pl.col("line").first(), pl.col("offset").first(), ends.alias("length"))
    )
    return list(runs.select("line", "offset", "length").iter_rows())
