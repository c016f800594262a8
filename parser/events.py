"""Lines -> events: whole inputs block by block, single lines, cleaned lines of a report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from parser.event import Event
from parser.eventlog import EventLog
from parser.grammar import grammar
from parser.line import Line
from parser.sources import Source, find_sources, iter_blocks
from parser.text_lane import NearMiss, TextLane
from parser.textlines import clean, clean_lines


@lru_cache(maxsize=2)
def text_lane(lane: str = "auto") -> TextLane:
    """The lane of the process for single lines; "lark" leaves all of them to Lark."""
    return TextLane(grammar(), printed=lane != "lark")


def event_of(line: Line, seq: int, lane: TextLane) -> Event:
    """The event that a cleaned line is."""
    parsed = lane.parse(line.text) if line.place != "prose" else None
    if parsed is not None and parsed.rule.headed and line.program != "ds4-server":
        parsed = None
    if parsed is None:
        kind, rule = "unknown" if line.program == "ds4-server" else "foreign", ""
    else:
        kind, rule = parsed.rule.kind, parsed.rule.name
    return Event(
        seq, line.line, line.offset, line.length, line.source, line.stamp, kind, rule,
        parsed.fields if parsed else {}, parsed.extra if parsed else {}, line.text, line.excerpt, line.place,
    )  # fmt: skip


def parse_lines(lines: Iterable[Line], *, lane: str = "auto") -> EventLog:
    """Events of lines that are cleaned already (a report's excerpts). One event a line."""
    chosen = text_lane(lane)
    return EventLog([event_of(line, seq, chosen) for seq, line in enumerate(lines)])


def parse_line(text: str, *, line: int = 1, offset: int = 0, lane: str = "auto") -> Event:
    """The event of one line as printed, with or without wrapper, stamp and program name."""
    cleaned = next(clean(text, line, offset, len(text.encode()), 0), Line(line, offset, len(text.encode()), ""))
    return event_of(cleaned, 0, text_lane(lane))


def explain_near_miss(text: str) -> NearMiss | None:
    """Which rule a message nearly meets, and where it leaves it."""
    return text_lane().explain(text)


def read_events(
    inputs: Sequence[str | os.PathLike[str]] | Sequence[Source],
    *,
    lane: str = "auto",
    max_bytes: int | None = None,
    since: str | None = None,
    until: str | None = None,
) -> Iterator[EventLog]:
    """Event logs of INPUT, block by block; `seq` and line numbers run on over the blocks."""
    seq, chosen = 0, text_lane(lane)
    for source in find_sources(list(inputs)):
        for block in iter_blocks(source, max_bytes=max_bytes):
            if lane == "lark":
                lines = clean_lines(block.data, block.line, block.offset, block.source)
                log = EventLog([event_of(line, at, chosen) for at, line in enumerate(lines, seq)])
            else:
                log = fast(block, seq, chosen)
            seq += sum(log.counts.values())
            yield log


@lru_cache(maxsize=1)
def _fast_lane():
    from parser.columns import FastLane
    return FastLane(grammar())


def fast(block, seq, chosen):
    import polars as pl
    from parser.columns import schema
    taken = _fast_lane().take(block.data, block.line, block.offset, block.source)
    lines = []
    for line, offset, length in taken.left:
        at = offset - block.offset
        lines += clean_lines(block.data[at:at + length], line, offset, block.source)
    frames = {}
    offsets = [pl.Series("offset", [l.offset for l in lines], dtype=pl.Int64)]
    for kind, parts in taken.frames.items():
        columns = schema(grammar(), kind)
        f = pl.concat(parts, how="diagonal") if len(parts) > 1 else parts[0]
        frames[kind] = f
        offsets.append(f["offset"])
    all_offsets = pl.concat(offsets).sort()
    for kind, f in frames.items():
        columns = schema(grammar(), kind)
        f = f.with_columns(seq=all_offsets.search_sorted(f["offset"]).cast(pl.Int64) + seq)
        f = f.select([(pl.col(c) if c in f.columns else pl.lit(None, t).alias(c)) for c, t in columns.items()])
        frames[kind] = f.sort("seq")
    seqs = all_offsets.search_sorted(offsets[0]).cast(pl.Int64) + seq
    return EventLog([event_of(l, at, chosen) for l, at in zip(lines, seqs)], frames)
