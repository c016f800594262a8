"""Lines -> events: whole inputs block by block, single lines, cleaned lines of a report."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from parser.event import Event
from parser.eventlog import EventLog
from parser.grammar import grammar
from parser.lanes import SMALL, InColumns, Lane, Prepared, event, lane_of, text_lane
from parser.line import Line
from parser.near_miss import NearMiss, near_miss
from parser.sources import Block, Source, find_sources, iter_blocks
from parser.textlines import OPENERS, clean
from parser.window import Window

if TYPE_CHECKING:
    from parser.sieve import Sieve

#: Threads that work on blocks: Polars releases the interpreter's lock.
WORKERS: Final = 2
#: A record of several lines that opens in so many last bytes of a block goes to the next one.
TAIL: Final = 16 << 10


def parse_lines(lines: Iterable[Line], *, lane: str = "auto") -> EventLog:
    """Events of lines that are cleaned already (a report's excerpts). One event a line; prose is foreign."""
    text = text_lane(lane)
    said = ((line, text.parse(line.text) if line.place != "prose" else None) for line in lines)
    return EventLog([event(line, parsed, seq) for seq, (line, parsed) in enumerate(said)])


def parse_line(text: str, *, line: int = 1, offset: int = 0, lane: str = "auto") -> Event:
    """The event of one line as printed, with or without wrapper, stamp and program name."""
    length = len(text.encode("utf-8", "replace"))
    cleaned = next(clean(text, line, offset, length, 0), Line(line, offset, length, ""))
    return event(cleaned, text_lane(lane).parse(cleaned.text), 0)


def explain_near_miss(text: str) -> NearMiss | None:
    """Which rule a line nearly meets, and in which column of its message; None if it meets one, or none nearly."""
    cleaned = next(clean(text, 1, 0, len(text), 0), None)
    if cleaned is None or text_lane().parse(cleaned.text) is not None:
        return None
    return near_miss(grammar(), cleaned.text)


def read_events(
    inputs: Sequence[str | os.PathLike[str] | Source],
    *,
    lane: str = "auto",
    max_bytes: int | None = None,
    since: str | None = None,
    until: str | None = None,
    kinds: Sequence[str] = (),
    seq: int = 0,
) -> Iterator[EventLog]:
    """Event logs of INPUT, block by block in bounded memory; `seq` and line numbers run on over the blocks.

    `lane` is "auto", "fast" or "lark"; all give the same events. `since` and `until` bound the server's stamps
    ("1130 17:52:23", "1130" or "17:52"). With `kinds` only events of these are given, which a long plain file
    is searched for. `max_bytes` bounds the unpacked bytes of a source. Raises InputError for what cannot be
    read, UsageError for a bound that is no stamp.
    """
    window = Window(since, until)
    for source in find_sources(inputs):
        for prepared in _prepared(source, lane, max_bytes, kinds):
            log = prepared.log(seq, grammar())
            seq += sum(log.counts.values())
            yield window.cut(log)
            if window.passed:
                break
        if window.passed:
            break
    if not kinds:
        window.refuse_nothing()


def _prepared(source: Source, lane: str, max_bytes: int | None, kinds: Sequence[str]) -> Iterator[Prepared]:
    sieve = _sieve(source, kinds) if kinds and lane != "lark" else None
    if sieve:
        found = _picked(source, sieve, kinds)
    else:
        long = source.size is None or source.size > SMALL
        chosen = lane_of(lane, small=not long)
        blocks = whole_records(iter_blocks(source, max_bytes=max_bytes))
        found = _ahead(chosen, blocks) if long else map(chosen.prepare, blocks)
    return (prepared.only(kinds) for prepared in found) if kinds else found


def _sieve(source: Source, kinds: Sequence[str]) -> Sieve | None:
    from parser.prescan import sieve

    return sieve(grammar(), kinds, source)


def _picked(source: Source, sieve: Sieve, kinds: Sequence[str]) -> Iterator[Prepared]:
    from parser.prescan import brief_turns, mapped, regions

    with mapped(source) as data, brief_turns():
        found = regions(data, sieve)  # at work while the columns are loaded
        lane, line = InColumns(grammar(), text_lane(), kinds), 1
        for region in found:
            yield lane.pick(region, line, source.index)
            line += region.ends


def _ahead(lane: Lane, blocks: Iterator[Block]) -> Iterator[Prepared]:
    """The blocks' events in order, while the next blocks are at work."""
    with ThreadPoolExecutor(WORKERS) as pool:
        running: deque[Future[Prepared]] = deque()
        for block in blocks:
            running.append(pool.submit(lane.prepare, block))
            if len(running) > WORKERS:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def whole_records(blocks: Iterable[Block]) -> Iterator[Block]:
    """The same lines, cut so that no record of several lines lies in two blocks."""
    held: Block | None = None
    for block in blocks:
        block = _joined(held, block) if held else block
        cut = _open_record(block.data)
        held = _from(block, cut)
        if cut:
            yield _upto(block, cut)
    if held:
        yield held


def _open_record(data: bytes) -> int:
    """Where the line begins that may open a record in the tail of `data`; its length if none does."""
    tail = max(0, len(data) - TAIL)
    found = min((at for opener in OPENERS if (at := data.find(opener, tail)) >= 0), default=-1)
    return data.rfind(b"\n", 0, found) + 1 if found >= 0 else len(data)


def _joined(held: Block, block: Block) -> Block:
    return replace(held, data=held.data + block.data, lines=held.lines + block.lines)


def _upto(block: Block, cut: int) -> Block:
    if cut == len(block.data):
        return block
    return replace(block, data=block.data[:cut], lines=block.data.count(b"\n", 0, cut))


def _from(block: Block, cut: int) -> Block | None:
    if cut == len(block.data):
        return None
    lines = block.data.count(b"\n", 0, cut)
    return replace(
        block,
        data=block.data[cut:],
        offset=block.offset + cut,
        line=block.line + lines,
        lines=block.lines - lines,
    )
