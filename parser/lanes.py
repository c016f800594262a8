"""Both lanes on blocks of a log: a block -> its events, numbered when the blocks before it are known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol

from parser.event import Event
from parser.eventlog import EventLog
from parser.grammar import Grammar, grammar
from parser.line import Line
from parser.sources import BLOCK_BYTES, Block
from parser.text_lane import Parsed, TextLane
from parser.textlines import clean_lines

if TYPE_CHECKING:
    import polars as pl

    from parser.columns import Taken
    from parser.prescan import Region

#: Below this many bytes the columns are not worth loading Polars.
SMALL: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Prepared:
    """The events of a block before they are numbered: some in columns, some as lines with what they say."""

    frames: dict[str, pl.DataFrame]
    lines: list[tuple[Line, Parsed | None]]

    def only(self, kinds: Sequence[str]) -> Prepared:
        """The events of these kinds."""
        frames = {kind: frame for kind, frame in self.frames.items() if kind in kinds}
        return Prepared(
            frames, [(line, said) for line, said in self.lines if event(line, said, 0).kind in kinds]
        )

    def log(self, seq: int, grammar: Grammar) -> EventLog:
        """The block's events, numbered in file order from `seq` on."""
        if not self.frames:
            return EventLog([event(line, parsed, at) for at, (line, parsed) in enumerate(self.lines, seq)])
        return _numbered(self, seq, grammar)


def _numbered(prepared: Prepared, seq: int, grammar: Grammar) -> EventLog:
    from parser.schema import complete

    columns, places = _numbers(prepared, seq)
    frames = {
        kind: complete([numbers, *frame.get_columns()], grammar, kind)
        for (kind, frame), numbers in zip(prepared.frames.items(), columns, strict=True)
    }
    return EventLog([event(*one, at) for one, at in zip(prepared.lines, places, strict=True)], frames)


def _numbers(prepared: Prepared, seq: int) -> tuple[list[pl.Series], list[int]]:
    """`seq` of the rows of each frame, and of the lines that are in none."""
    import polars as pl

    frames = list(prepared.frames.values())
    if not prepared.lines:
        first, last = min(frame["line"][0] for frame in frames), max(frame["line"][-1] for frame in frames)
        if last - first + 1 == sum(map(len, frames)):  # an event a line: places are line numbers
            return [(frame["line"] + (seq - first)).alias("seq") for frame in frames], []
    mine = pl.Series("offset", [line.offset for line, _ in prepared.lines], dtype=pl.Int64)
    offsets = pl.concat([*(frame["offset"] for frame in frames), mine])
    numbers = (offsets.sort().search_sorted(offsets).cast(pl.Int64) + seq).alias("seq")
    begins = [0, *accumulate(map(len, frames))]
    columns = [numbers.slice(begin, len(frame)) for begin, frame in zip(begins, frames, strict=False)]
    return columns, numbers.slice(begins[-1]).to_list()


def event(line: Line, parsed: Parsed | None, seq: int) -> Event:
    """The event that a cleaned line is, given what it says."""
    named = line.program == "ds4-server"
    place = (seq, line.line, line.offset, line.length, line.source, line.stamp)
    rest = (line.text, line.excerpt, line.place)
    if parsed is None or (parsed.rule.headed and not named):
        return Event(*place, "unknown" if named else "foreign", "", {}, {}, *rest)
    return Event(*place, parsed.rule.kind, parsed.rule.name, parsed.fields, parsed.extra, *rest)


class Lane(Protocol):
    """Turns blocks into events; may be asked by several threads at once."""

    def prepare(self, block: Block) -> Prepared:
        """The events of one block of whole lines."""


class LineByLine:
    """The text lane on a block."""

    def __init__(self, text: TextLane) -> None:
        self._text = text

    def prepare(self, block: Block) -> Prepared:
        """Every line on its own."""
        lines = clean_lines(block.data, block.line, block.offset, block.source)
        return Prepared({}, [(line, self._text.parse(line.text)) for line in lines])


class InColumns:
    """The fast lane on a block; what it leaves goes to the text lane."""

    def __init__(self, grammar: Grammar, text: TextLane, kinds: Sequence[str] | None = None) -> None:
        from parser.columns import FastLane

        self._fast, self._text, self._single = FastLane(grammar, kinds), text, LineByLine(text)

    def prepare(self, block: Block) -> Prepared:
        """Columns for the printed forms, the rest one by one. A block with an endless line is not copied."""
        from parser.rawlines import physical, valid

        if len(block.data) > 4 * BLOCK_BYTES:
            return self._single.prepare(block)
        data = valid(block.data)
        taken = self._fast.take(physical(data, block.line, block.offset), data, block.source)
        left = (
            (line, offset, block.data[offset - block.offset : offset - block.offset + length])
            for line, offset, length in taken.left
        )
        return self._with_left(taken, left, block.source)

    def pick(self, region: Region, line: int, source: int) -> Prepared:
        """The events of the lines that were found in a region of a file whose first line is number `line`."""
        from parser.rawlines import at_places, valid

        numbers, offsets = [line + number for number, _ in region.places], [at for _, at in region.places]
        data = valid(region.found)
        rows = at_places(data, numbers, offsets)
        taken = self._fast.take(rows, data, source)
        left = [(line + number, offset, found) for number, offset, found in region.stretches]
        if taken.left:
            begins = accumulate((length + 1 for length in rows["_length"]), initial=0)
            at = dict(zip(offsets, begins, strict=False))
            left += [
                (n, offset, region.found[at[offset] : at[offset] + size]) for n, offset, size in taken.left
            ]
        return self._with_left(taken, left, source)

    def _with_left(self, taken: Taken, left: Iterable[tuple[int, int, bytes]], source: int) -> Prepared:
        """With the stretches (line, offset, bytes) that the text lane takes."""
        lines: list[Line] = []
        for line, offset, data in sorted(left):
            lines += clean_lines(data, line, offset, source)
        return Prepared(taken.frames, [(line, self._text.parse(line.text)) for line in lines])


@lru_cache(maxsize=2)
def text_lane(lane: str = "auto") -> TextLane:
    """The text lane of the process; "lark" leaves every line to Lark."""
    return TextLane(grammar(), printed=lane != "lark")


@lru_cache(maxsize=2)
def lane_of(lane: str, *, small: bool) -> Lane:
    """The lane by name; "auto" takes short inputs line by line, which saves the start-up of the columns."""
    if lane == "lark" or (lane == "auto" and small):
        return LineByLine(text_lane(lane))
    return InColumns(grammar(), text_lane())
