"""When requests started and ended, to a fraction of the stamps' second, from order, stamps and elapsed times.

A log's stamps are whole seconds; its elapsed times are milliseconds. Each request has an interval for its
start; the order of `prompt start` and `finish` lines narrows it; what is still open is settled so that the
pauses of a client are as equal as the intervals let them be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from statistics import median
from typing import Any, NamedTuple

from parser.clock import Clock
from parser.reading import Reading
from parser.request import Request
from replay.strings import successors

_SWEEPS = 200
#: seconds; starts that move less have settled
_STILL = 1e-5
#: seconds; two times that differ by less are one
_SAME = 1e-9
#: how late after its elapsed time was read a line may get its stamp, seconds
_LATE = 0.02
#: chunk or decoding lines beyond this number are not used to order requests
_MOST_LINES = 200_000
#: ways through all rules until they hold
_ROUNDS = 50


@dataclass(slots=True)
class Spans:
    """By request index: earliest and latest start (seconds since the first stamp; None without stamps), the
    seconds from start to end, and the event numbers of the first line, `prompt start` and last line."""

    low: list[float | None]
    high: list[float | None]
    lasted: list[float]
    first: list[int]
    began: list[int]
    last: list[int]
    #: event number of `prompt done` (of the last line where there is none)
    prefilled: list[int]
    #: seconds between `prompt done` and the first token, at most
    waited: list[float] = field(default_factory=list)
    #: chunk and decoding lines beside those of other requests: event number, index, seconds after the start
    between: list[tuple[int, int, float]] = field(default_factory=list)

    def overlap(self, one: int, other: int) -> bool:
        """Both were in the server at once."""
        return self.first[one] < self.last[other] and self.first[other] < self.last[one]


def spans(reading: Reading) -> Spans:
    """Start intervals, narrowed by the order of lines."""
    requests = reading.requests
    began, last, prefilled = _places(reading)
    out = Spans(
        [None if r.start_s is None else r.start_s - (r.start_error_s or 0.0) for r in requests],
        [None if r.start_s is None else r.start_s + (r.start_error_s or 0.0) for r in requests],
        [_lasted(r) for r in requests],
        [min(r.events, default=place) for r, place in zip(requests, began, strict=True)],
        began,
        last,
        prefilled,
        [_waited(request) for request in requests],
    )
    out.between = _between(reading, out)
    _narrow(out)
    return out


def _between(reading: Reading, out: Spans) -> list[tuple[int, int, float]]:
    """Lines of a running request that stand right beside a line of another one: they order the two clocks."""
    seen = [*_progress(reading, out, "prefill_chunk"), *_progress(reading, out, "decoding")]
    _stamped(out, seen)
    if not any(out.overlap(i - 1, i) for i in range(1, len(out.first))):
        return []
    lines = sorted(line.mark for line in seen)
    marks = sorted([*lines, *_marks(out)])
    beside = {mark for one, other in pairwise(marks) if one[1] != other[1] for mark in (one, other)}
    return [line for line in lines if line in beside]


class _Seen(NamedTuple):
    """A line of a running request: event number, index and seconds after the start; seconds of its stamp."""

    mark: tuple[int, int, float]
    stamp: float | None


def _stamped(out: Spans, seen: Iterable[_Seen]) -> None:
    """Each line was printed in the second of its stamp; one that contradicts the rest is left out (the clock was set).
    Decoding lines may be later by what passed between `prompt done` and the first token."""
    for (seq, index, after), stamp in seen:
        low, high = out.low[index], out.high[index]
        if stamp is None or low is None or high is None:
            continue
        early = stamp - after - _LATE - (0.0 if seq < out.prefilled[index] else out.waited[index])
        low, high = max(low, early), min(high, stamp + 1.0 - after)
        if low <= high:
            out.low[index], out.high[index] = low, high


def _progress(reading: Reading, out: Spans, kind: str) -> Iterator[_Seen]:
    log = reading.events
    if log is None or not 0 < log.counts.get(kind, 0) <= _MOST_LINES:
        return
    wanted = ("seq", "stamp", "span_start", "span_end", "gen", "elapsed_s")
    clock = Clock()
    clock.seconds(reading.stamps.first)
    frame = log.frame(kind)
    rows = frame.select([name for name in wanted if name in frame.columns]).iter_rows(named=True)
    whose = _Whose(reading, out)
    for row in rows:
        if row.get("span_end") is not None and row.get("elapsed_s") is not None:
            index = whose.chunk(row) if kind == "prefill_chunk" else whose.decoding(row)
            before = 0.0 if kind == "prefill_chunk" or index is None else reading.requests[index].prefill_s
            if index is not None and before is not None:
                mark = (row["seq"], index, before + row["elapsed_s"])
                yield _Seen(mark, clock.seconds(row.get("stamp")))


class _Whose:
    """Whose line it is, by the positions in it: a prefill names where it began and ends, a decoding line goes on
    where the last one of its request ended."""

    def __init__(self, reading: Reading, out: Spans) -> None:
        self.out = out
        self.prompts: dict[tuple[int, int], list[int]] = {}
        self.decoded: dict[int, list[int]] = {}
        for index, request in enumerate(reading.requests):
            tokens = request.prompt_tokens or 0
            self.prompts.setdefault((request.cached_tokens or 0, tokens), []).append(index)
            self.decoded.setdefault(tokens, []).append(index)

    def chunk(self, row: dict[str, Any]) -> int | None:
        """The request of a chunk line."""
        place = (row.get("span_start") or 0, row["span_end"])
        return next((i for i in self.prompts.get(place, ()) if self._running(i, row["seq"])), None)

    def decoding(self, row: dict[str, Any]) -> int | None:
        """The request of a decoding line."""
        start = row.get("span_start") or 0
        found = next((i for i in self.decoded.get(start, ()) if self._running(i, row["seq"])), None)
        if found is not None:
            self.decoded[start].remove(found)
            self.decoded.setdefault(row["span_end"], []).append(found)
        return found

    def _running(self, index: int, seq: int) -> bool:
        return self.out.began[index] < seq < self.out.last[index]


def _places(reading: Reading) -> tuple[list[int], list[int], list[int]]:
    log = reading.events
    kinds = ("prompt_start", "prompt_done", "finish")
    marks = {e.seq: e.kind for e in log.rows(*kinds)} if log is not None else {}
    follows = successors(reading.requests)
    began, last, prefilled = [], [], []
    for index, request in enumerate(reading.requests):
        ends = [seq for seq in request.events if marks.get(seq) == "finish"]
        starts = [seq for seq in request.events if marks.get(seq) == "prompt_start"]
        fallback = request.events or (request.line,)
        began.append(starts[0] if starts else max(fallback))
        last.append(ends[-1] if ends else _cut_off(reading, request, follows.get(index), max(fallback)))
        prefilled.append(next((seq for seq in request.events if marks.get(seq) == "prompt_done"), last[-1]))
    return began, last, prefilled


def _cut_off(reading: Reading, request: Request, after: int | None, seen: int) -> int:
    """A request without a finish line goes on until its process ends or another one has its slot."""
    if request.client_gone or not reading.runs or request.line == 0:
        return seen
    end = reading.runs[request.run].last_seq
    if after is not None:
        end = min(end, min(reading.requests[after].events, default=end) - 1)
    return max(seen, end)


def _lasted(request: Request) -> float:
    if request.total_s is not None:
        return request.total_s
    progress = request.progress
    done = request.prefill_s if request.prefill_s is not None else progress.last_s
    return (done or 0.0) + (progress.decode_s or 0.0)


def _waited(request: Request) -> float:
    """Its total is longer than prefill and decoding together by that, and by what passed after the last token."""
    known = (request.total_s, request.prefill_s, request.progress.decode_s)
    total, prefill, decode = (seconds or 0.0 for seconds in known)
    return inf if None in known else max(0.0, total - prefill - decode)


def _narrow(out: Spans) -> None:
    """A line stands after those above it: raise the earliest starts and lower the latest until all lines do."""
    low, high, order = out.low, out.high, _order(out)
    for _ in range(_ROUNDS):
        moved = [_raise(low, rule) for rule in order]
        moved += [_lower(high, rule) for rule in reversed(order)]
        if not any(moved):
            break
    for i, (early, late) in enumerate(zip(low, high, strict=True)):
        if early is not None and late is not None and early > late:
            low[i] = high[i] = (early + late) / 2


def _raise(low: list[float | None], rule: tuple[int, int, float]) -> bool:
    one, other, apart = rule
    least, now = (low[one] or 0.0) + apart, low[other] or 0.0
    low[other] = max(now, least)
    return least > now + _SAME


def _lower(high: list[float | None], rule: tuple[int, int, float]) -> bool:
    one, other, apart = rule
    most, now = (high[other] or 0.0) - apart, high[one] or 0.0
    high[one] = min(now, most)
    return most < now - _SAME


def _order(out: Spans) -> list[tuple[int, int, float]]:
    """What the order of the lines says, in it: (index, other index, seconds that the other one's start is after
    its own at least, below 0 for before). Of a pair, what says most."""
    rules: dict[tuple[int, int], float] = {}
    for (_, one, after), (_, other, later) in pairwise(_marks(out)):
        if one != other:
            rules[one, other] = max(rules.get((one, other), float("-inf")), after - later)
    return [(one, other, apart) for (one, other), apart in rules.items()]


def timed_lines(reading: Reading, out: Spans, starts: Sequence[float | None]) -> list[tuple[int, float]]:
    """Event number and time (seconds since the first stamp) of the lines that say it: starts, ends, and if requests
    were in the server at once, what they print in between."""
    lines = _marks(out)
    if any(out.overlap(i - 1, i) for i in range(1, len(out.first))):
        for kind in ("prefill_chunk", "decoding"):
            lines += [line.mark for line in _progress(reading, out, kind)]
        for index, request in enumerate(reading.requests):
            if request.prefill_s is not None:
                lines.append((out.prefilled[index], index, request.prefill_s))
    known = [(seq, start + after) for seq, i, after in lines if (start := starts[i]) is not None]
    return sorted(known)


def _marks(out: Spans) -> list[tuple[int, int, float]]:
    """Starts and ends in the order of their lines: event number, index, seconds after the start."""
    known = [i for i, low in enumerate(out.low) if low is not None]
    ends = [(out.last[i], i, out.lasted[i]) for i in known]
    lines = [line for line in out.between if out.low[line[1]] is not None]
    return sorted([*((out.began[i], i, 0.0) for i in known), *ends, *lines])


def settle(out: Spans, after: Mapping[int, int]) -> list[float | None]:
    """Starts, one of each interval and in the order of their lines: the pauses between a request and the one
    that it waited for (`after`, by index) are made as equal as that allows; those that waited for nobody are
    brought together."""
    return _Settling(out, after).starts


class _Settling:
    """Starts that move one at a time between their neighbours. Half way between the earliest and the latest
    times that keep the order is a place that keeps it too."""

    def __init__(self, out: Spans, after: Mapping[int, int]) -> None:
        self.out, self.after = out, after
        self.starts = [
            None if a is None or b is None else (a + b) / 2 for a, b in zip(out.low, out.high, strict=True)
        ]
        self.following = {before: index for index, before in after.items()}
        self.first = next((i for i in range(len(self.starts)) if i not in after), 0)
        self.above: dict[int, list[tuple[int, float]]] = {}
        self.below: dict[int, list[tuple[int, float]]] = {}
        for one, other, apart in _order(out):
            self.above.setdefault(other, []).append((one, apart))
            self.below.setdefault(one, []).append((other, apart))
        for _ in range(_SWEEPS):
            pause = self._usual_pause()
            if max((self._balance(index, pause) for index in range(len(self.starts))), default=0.0) < _STILL:
                break

    def _usual_pause(self) -> float:
        pauses = [
            now - then - self.out.lasted[before]
            for index, before in self.after.items()
            if (now := self.starts[index]) is not None and (then := self.starts[before]) is not None
        ]
        return max(0.0, median(pauses)) if pauses else 0.0

    def _balance(self, index: int, pause: float) -> float:
        """How far it moved."""
        aim, was = self._aim(index, pause), self.starts[index]
        low, high = self._room(index)
        if aim is None or was is None or low > high:
            return 0.0
        self.starts[index] = now = min(max(aim, low), high)
        return abs(now - was)

    def _aim(self, index: int, pause: float) -> float | None:
        before, behind = self.after.get(index), self.following.get(index)
        then = self.starts[before] if before is not None else None
        later = self.starts[behind] if behind is not None else None
        early = None if then is None or before is None else then + self.out.lasted[before]
        late = None if later is None else later - self.out.lasted[index]
        if early is None and index != self.first:
            return self.starts[self.first]
        if early is not None and late is not None:
            return (early + late) / 2
        return early + pause if early is not None else late - pause if late is not None else None

    def _room(self, index: int) -> tuple[float, float]:
        """Between the lines above and below its own."""
        low, high = self.out.low[index], self.out.high[index]
        if low is None or high is None:
            return 1.0, 0.0
        starts = self.starts
        low = max(low, *((starts[i] or 0.0) + apart for i, apart in self.above.get(index, ())), low)
        high = min(high, *((starts[i] or 0.0) - apart for i, apart in self.below.get(index, ())), high)
        return low, high
