"""Details: what the long reports show beside the findings: the slots over time and the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parser.reading import Reading
from parser.request import Request
from triage.history import History, TableData
from triage.picture import Picture, picture_of

#: requests that one picture can hold; of a longer log the costliest stretch of that many is drawn
DRAWN = 2_000


@dataclass(frozen=True, slots=True)
class Bar:
    """One request as drawn: times are seconds from the first stamp, or its number where there are none.

    `turn` is the end of the prefill; `miss` is "", "restored" (from disk) or "lost".
    """

    request: int
    line: int
    slot: int | None
    certain: bool
    conversation: str
    start: float
    turn: float
    end: float
    miss: str
    title: str


@dataclass(frozen=True, slots=True)
class Details:
    """`bars` are in order of start; `timed` tells whether their places are seconds; `drawn_of` is the number
    of requests that they were taken from."""

    picture: Picture | None
    bars: tuple[Bar, ...]
    timed: bool
    drawn_of: int
    tables: tuple[TableData, ...]


def details_of(reading: Reading, history: History | None = None) -> Details:
    """The details of one reading; `history` replaces its own tables (those of all segments of a long log)."""
    if history is None:
        history = History()
        history.add(reading)
    drawn = _stretch(reading.requests)
    timed = all(r.start_s is not None for r in drawn)
    bars = tuple(_bar(r, number, timed) for number, r in enumerate(drawn))
    return Details(picture_of(drawn), bars, timed, history.requests, tuple(history.tables()))


def _stretch(requests: Sequence[Request]) -> Sequence[Request]:
    """All requests, or the `DRAWN` neighbours with the most prefill seconds (else tokens)."""
    if len(requests) <= DRAWN:
        return requests
    costs = [r.prefill_s or (r.prefilled_tokens or 0) / 1e3 for r in requests]
    window = best = sum(costs[:DRAWN])
    first = 0
    for end in range(DRAWN, len(costs)):
        window += costs[end] - costs[end - DRAWN]
        if window > best:
            best, first = window, end - DRAWN + 1
    return requests[first : first + DRAWN]


def _bar(request: Request, number: int, timed: bool) -> Bar:
    start = (request.start_s or 0.0) if timed else float(number)
    end = max(start, request.end_s or start) if timed else start + 0.9
    turn = min(end, start + (request.prefill_s or 0.0)) if timed else start + 0.45
    return Bar(
        request.request, request.line, request.slot, request.slot_confidence != "ambiguous",
        request.conversation or "?", start, turn, end, _miss(request), _title(request),
    )  # fmt: skip


def _miss(request: Request) -> str:
    if request.common is None or request.source == "memory-rewind":
        return ""
    return "restored" if request.disk_hit_tokens else "lost"


def _title(request: Request) -> str:
    def known(value: int | None) -> str:
        return "unknown" if value is None else f"{value:,}"

    parts = [
        f"request {request.request} (line {request.line}), conversation {request.conversation or 'unknown'}",
        f"prompt {known(request.prompt_tokens)}, reused {known(request.cached_tokens)}, source {request.source or 'unknown'}",
    ]
    if request.common is not None:
        parts.append(f"miss: {known(request.live_before)} live tokens, {known(request.common)} in common")
    if request.lost_to_cache_tokens:
        parts.append(f"lost to the cache {known(request.lost_to_cache_tokens)}")
    if request.prefill_s is not None:
        parts.append(f"prefill {request.prefill_s:,.3f} s")
    return "; ".join(parts)
