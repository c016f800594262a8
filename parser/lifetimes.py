"""From which line to which a request can have lines in a block, and the prompt lengths that tell no request.

Columns give a chunk or decoding line to a request by its numbers alone. That is what the joiner does with one
line after another only as long as one request of that P is open and all its lines stand between its
`prompt start` and its end. Every P of which more than that happened is `contested`: its lines go one by one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from parser.event import Event
from parser.eventlog import EventLog
from parser.opens import Open, Span, span_of

if TYPE_CHECKING:
    import polars as pl

#: stream errors (SE1-SE7) that end a request without a finish line; SE8 and SE9 are followed by one
FATAL: Final = {"closed", "headers", "anthropic", "openai", "responses", "prefill_failed", "sse_error"}
NEVER: Final = (1 << 62) - 1
_SPAN: Final = ("seq", "span_start", "span_end", "span_tokens")


@dataclass(frozen=True, slots=True)
class Life:
    """One request: the seq of its `prompt start`, its span, and the seq before which all its lines stand."""

    start: int
    span: Span
    end: int


class Lifetimes:
    """The requests that are open at the beginning of a block or start in it. `serial`: at most one is open."""

    def __init__(self, block: EventLog, carried: Iterable[Open], *, serial: bool) -> None:
        self.contested: set[int] = set()
        starts = self._carried(carried) + self._whole(block.frame("prompt_start"))
        fatal = [e for e in block.rows("stream_error") if e.rule in FATAL]
        ends = self._whole(block.frame("finish")) + [(e.seq, span_of(e)) for e in fatal if _names_one(e)]
        self._barriers = sorted(self._closers(block, fatal, starts, serial=serial))
        finished = self._finished(starts, sorted(ends))
        self.all = [Life(seq, span, self._end(seq, finished)) for seq, span in starts]
        self._overlapping(finished)
        self._retried(block)
        self._done_twice(self._whole(block.frame("prompt_done")))

    @property
    def clear(self) -> list[Life]:
        """The requests whose lines their numbers tell."""
        return [life for life in self.all if life.span[1] not in self.contested]

    def _carried(self, carried: Iterable[Open]) -> list[tuple[int, Span]]:
        found, self._is_done = [], set[int]()
        for opened in carried:
            if opened.span is None:
                self.contested.add(opened.row.prompt_tokens or 0)
                continue
            found.append((opened.place, opened.span))
            if opened.started_at is None:
                self.contested.add(opened.span[1])
            if opened.done_seq is not None:
                self._is_done.add(opened.place)
        return sorted(found)

    def _whole(self, frame: pl.DataFrame) -> list[tuple[int, Span]]:
        """(seq, span) of lines with a whole span, in file order; P of the others is contested."""
        import polars as pl

        whole = pl.col("stamp").is_not_null() & ~pl.any_horizontal(pl.col(_SPAN).is_null())
        self.contested.update(frame.filter(~whole)["span_end"].drop_nulls())
        rows = frame.filter(whole).select(_SPAN).iter_rows()
        return [(seq, (start, end, tokens)) for seq, start, end, tokens in rows]

    def _closers(
        self, block: EventLog, fatal: list[Event], starts: list[tuple[int, Span]], *, serial: bool
    ) -> Iterable[int]:
        """Lines that may end any request: a line behind one is not a request's for sure."""
        yield from (e.seq for e in block.rows("startup", "shutdown"))
        yield from (e.seq for e in fatal if not _names_one(e))
        yield from block.frame("finish").filter(block.frame("finish")["span_end"].is_null())["seq"]
        if serial or block.counts.get("startup"):
            yield from (seq for seq, _ in starts)

    def _end(self, start: int, finished: dict[int, int]) -> int:
        at = bisect_right(self._barriers, start)
        barrier = self._barriers[at] if at < len(self._barriers) else NEVER
        return min(barrier, finished.get(start, NEVER))

    def _finished(
        self, starts: list[tuple[int, Span]], ends: list[tuple[int, Span | None]]
    ) -> dict[int, int]:
        """seq of the end by seq of the start: the first of that span behind it, each for one start.

        An end that no start is left for may take the decoding lines of another request of its P.
        """
        waiting: dict[Span | None, list[int]] = {}
        for seq, span in ends:
            waiting.setdefault(span, []).append(seq)
        found: dict[int, int] = {}
        for seq, span in starts:
            mine = waiting.get(span, [])
            at = bisect_right(mine, seq)
            if at < len(mine):
                found[seq] = mine.pop(at)
        self.contested.update(span[1] for span, left in waiting.items() if span and left)
        return found

    def _overlapping(self, finished: dict[int, int]) -> None:
        """Two of one P at once."""
        open_until: dict[int, int] = {}
        for life in self.all:
            prompt = life.span[1]
            if life.start < open_until.get(prompt, -1):
                self.contested.add(prompt)
            open_until[prompt] = max(open_until.get(prompt, -1), finished.get(life.start, NEVER))

    def _retried(self, block: EventLog) -> None:
        """Requests whose decoding began anew (TC6): what they had decoded by then must be seen."""
        ends = (e.get("span_end") for e in block.rows("tool_repair") if e.rule == "continued")
        self.contested.update(end for end in ends if end is not None)

    def _done_twice(self, dones: list[tuple[int, Span]]) -> None:
        """A `prompt done` line that no request waits for begins a row of its own."""
        by_span: dict[Span, list[Life]] = {}
        for life in self.all:
            by_span.setdefault(life.span, []).append(life)
        for seq, span in dones:
            lives = by_span.get(span, [])
            at = bisect_left([life.start for life in lives], seq) - 1
            if at < 0 or seq > lives[at].end or lives[at].start in self._is_done:
                self.contested.add(span[1])
            else:
                self._is_done.add(lives[at].start)


def _names_one(event: Event) -> bool:
    return span_of(event) is not None and event.get("span_tokens") is not None


def steady(before: str | None, stamps: pl.Series) -> bool:
    """Whether the stamps run on: no step back by more than a second, no change of form, no hour that is skipped.

    Else the clock must see each line (New Year, summer time, another file, damage).
    """
    import polars as pl

    run = pl.concat([pl.Series([before], dtype=pl.String), stamps]).drop_nulls().to_frame("stamp")
    date, clock = pl.col("stamp").str.head(-8).str.strip_chars(), pl.col("stamp").str.tail(8)
    hours, minutes, seconds = (clock.str.slice(at, 2).cast(pl.Int64, strict=False) for at in (0, 3, 6))
    second = hours * 3600 + minutes * 60 + seconds
    day = pl.when(date == "").then(0).otherwise(date.cast(pl.Int64, strict=False))
    told = run.select(day=day, second=second)
    if told["day"].null_count() or told["second"].null_count():
        return False
    moved, days = told["second"].diff(), told["day"].diff()
    back = (days < 0) | ((days == 0) & (moved < -1))
    skipped = (days == 0) & (moved >= 3600)
    return not (back | skipped).any()
