"""When requests started and ended, to a fraction of the stamps' second, from order, stamps and elapsed times.

A log's stamps are whole seconds; its elapsed times are milliseconds. Each request has an interval for its
start; the order of `prompt start` and `finish` lines narrows it; what is still open is settled so that the
pauses of a client are as equal as the intervals let them be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parser.reading import Reading
from parser.request import Request
from replay.strings import successors

_SWEEPS = 200


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

    def overlap(self, one: int, other: int) -> bool:
        """Both were in the server at once."""
        return self.first[one] < self.last[other] and self.first[other] < self.last[one]


def spans(reading: Reading) -> Spans:
    """Start intervals, narrowed by the order of lines."""
    requests = reading.requests
    began, last = _places(reading)
    out = Spans(
        [None if r.start_s is None else r.start_s - (r.start_error_s or 0.0) for r in requests],
        [None if r.start_s is None else r.start_s + (r.start_error_s or 0.0) for r in requests],
        [_lasted(r) for r in requests],
        [min(r.events, default=place) for r, place in zip(requests, began, strict=True)],
        began,
        last,
    )
    _narrow(out)
    return out


def _places(reading: Reading) -> tuple[list[int], list[int]]:
    log = reading.events
    marks = {e.seq: e.kind for e in log.rows("prompt_start", "finish")} if log is not None else {}
    follows = successors(reading.requests)
    began, last = [], []
    for index, request in enumerate(reading.requests):
        ends = [seq for seq in request.events if marks.get(seq) == "finish"]
        starts = [seq for seq in request.events if marks.get(seq) == "prompt_start"]
        fallback = request.events or (request.line,)
        began.append(starts[0] if starts else max(fallback))
        last.append(ends[-1] if ends else _cut_off(reading, request, follows.get(index), max(fallback)))
    return began, last


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


def _narrow(out: Spans) -> None:
    """A line stands after those above it: both ways through all starts and ends."""
    marks = sorted(
        [(place, i, 0.0) for i, place in enumerate(out.began) if out.low[i] is not None]
        + [(place, i, out.lasted[i]) for i, place in enumerate(out.last) if out.low[i] is not None]
    )
    for _ in range(2):
        _forward(out.low, marks)
        _backward(out.high, marks)
    for i, (low, high) in enumerate(zip(out.low, out.high, strict=True)):
        if low is not None and high is not None and low > high:
            out.low[i] = out.high[i] = (low + high) / 2


def _forward(low: list[float | None], marks: Sequence[tuple[int, int, float]]) -> None:
    now = float("-inf")
    for _, index, after in marks:
        now = max(now, (low[index] or 0.0) + after)
        low[index] = max(low[index] or 0.0, now - after)


def _backward(high: list[float | None], marks: Sequence[tuple[int, int, float]]) -> None:
    now = float("inf")
    for _, index, after in reversed(marks):
        now = min(now, (high[index] or 0.0) + after)
        high[index] = min(high[index] or 0.0, now - after)


def settle(out: Spans, after: Mapping[int, int]) -> list[float | None]:
    """Starts, one of each interval: the pauses between a request and the one that it waited for (`after`, by
    index) are made as equal as the intervals allow."""
    starts = [None if a is None or b is None else (a + b) / 2 for a, b in zip(out.low, out.high, strict=True)]
    following = {before: index for index, before in after.items()}
    for _ in range(_SWEEPS if len(starts) < 2000 else _SWEEPS // 20):
        pause = _mean_pause(out, starts, after)
        for index in range(len(starts)):
            _balance(index, out, starts, after.get(index), following.get(index), pause)
    return starts


def _mean_pause(out: Spans, starts: Sequence[float | None], after: Mapping[int, int]) -> float:
    pauses = [
        now - then - out.lasted[before]
        for index, before in after.items()
        if (now := starts[index]) is not None and (then := starts[before]) is not None
    ]
    pauses.sort()
    return max(0.0, pauses[len(pauses) // 2]) if pauses else 0.0


def _balance(
    index: int, out: Spans, starts: list[float | None], before: int | None, behind: int | None, pause: float
) -> None:
    low, high = out.low[index], out.high[index]
    if low is None or high is None:
        return
    wanted = []
    if before is not None and (then := starts[before]) is not None:
        wanted.append((then + out.lasted[before], 1))
    if behind is not None and (later := starts[behind]) is not None:
        wanted.append((later - out.lasted[index], -1))
    if len(wanted) == 2:
        aim = (wanted[0][0] + wanted[1][0]) / 2
    elif wanted:
        aim = wanted[0][0] + wanted[0][1] * pause
    else:
        return
    starts[index] = min(max(aim, low), high)
