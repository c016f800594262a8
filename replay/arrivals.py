"""Arrivals: what a log does not print. A request came before its `prompt start` by what the server did first
(evict store, load, waiting for a slot); its client had sent it some time after the answer it waited for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from parser.reading import Reading
from replay.costs import FittedCosts
from replay.candidates import Talk
from replay.lanes import lanes, saturated
from replay.timing import Spans, settle, spans

MIB = 1 << 20
#: between two arrivals whose order is all that is known
_STEP = 1e-6


@dataclass(slots=True)
class Arrivals:
    """By request index: the request it waited for (index), its think time, its arrival and its start, seconds
    since the first stamp (None without stamps). `queued` had to wait for a slot, so its arrival is a default.
    `between` is true where more clients than slots kept a single slot busy all the time."""

    after: dict[int, int]
    think: list[float]
    arrival: list[float | None]
    start: list[float | None]
    queued: list[bool]
    spans: Spans
    crowded: bool = False


def arrivals(reading: Reading, talks: Sequence[Talk], costs: FittedCosts) -> Arrivals:
    """When each request was sent, and what its client had waited for."""
    known = spans(reading)
    staged = _staged_for_nothing(reading)
    waits = [_before_start(reading, index, costs, staged) for index in range(len(reading.requests))]
    after = lanes(talks, known, apart=False)
    _start_lanes(after, known)
    starts = settle(known, after)
    crowded = _one_slot(reading) and len(talks) > 1 and saturated(known, starts, waits)
    if crowded:
        after = lanes(talks, known, apart=True)
    out = Arrivals(after, [0.0] * len(starts), [None] * len(starts), starts, [], known, crowded)
    out.queued = [_queued(reading, out, waits, index) for index in range(len(starts))]
    _think(out, waits)
    _in_order(out)
    return out


def _start_lanes(after: dict[int, int], known: Spans) -> None:
    """A lane that begins when nobody is served waited for the answer before: one client, that now sends
    two."""
    ended = sorted(range(len(known.first)), key=lambda i: known.last[i])
    for index in range(1, len(known.first)):
        before = next((i for i in reversed(ended) if known.last[i] < known.first[index]), None)
        if index in after or before is None:
            continue
        running = [i for i in range(index) if known.last[i] > known.first[index] and i != before]
        if all(known.first[i] > known.last[before] for i in running):
            after[index] = before


def _in_order(out: Arrivals) -> None:
    """Requests came in the order of their first lines, since the queue keeps it (R2.2): where the estimates say
    otherwise, the earlier one came as early as it can have, the later one just after it."""
    order = sorted(range(len(out.arrival)), key=lambda i: out.spans.first[i])
    latest = float("inf")
    for index in reversed(order):
        arrival = out.arrival[index]
        if arrival is not None and not out.queued[index]:
            _move(out, index, min(0.0, latest - _STEP - arrival))
            latest = min(latest, out.arrival[index] or arrival)
    earliest = float("-inf")
    for index in order:
        arrival = out.arrival[index]
        if arrival is not None:
            _move(out, index, max(0.0, earliest + _STEP - arrival))
            earliest = max(earliest, out.arrival[index] or arrival)


def _move(out: Arrivals, index: int, seconds: float) -> None:
    """Let a request come earlier or later, but not before the answer that it waited for."""
    if index in out.after:
        seconds = max(seconds, -out.think[index])
        out.think[index] += seconds
    arrival = out.arrival[index]
    out.arrival[index] = None if arrival is None else arrival + seconds


def _one_slot(reading: Reading) -> bool:
    return reading.server.slots in (None, 1)


def _staged_for_nothing(reading: Reading) -> dict[int, float]:
    """Event number -> MiB of an evict store that was staged and did not fit the budget (DS6)."""
    log = reading.events
    skipped = log.rows("kv_skipped") if log is not None else ()
    return {e.seq: e.get("size_mib") for e in skipped if e.get("reason") == "evict" and e.get("size_mib")}


def _before_start(reading: Reading, index: int, costs: FittedCosts, staged: dict[int, float]) -> float:
    """What the server does between dispatch and `prompt start`: parse, store what it replaces, load."""
    request = reading.requests[index]
    seconds = costs.admit_s(request.canonical_prompt_tokens or request.prompt_tokens or 0)
    for store in request.stores:
        if store.reason == "evict" and store.size_mib:
            seconds += costs.store_s(store.tokens, round(store.size_mib * MIB), True)
    if staged:
        seconds += sum(costs.store_s(0, round(staged.get(seq, 0) * MIB), False) for seq in request.events)
    if request.disk_hit_tokens:
        seconds += (request.load_ms or 0.0) / 1000
    return seconds


def _queued(reading: Reading, out: Arrivals, waits: Sequence[float], index: int) -> bool:
    """It began just when a slot came free, and none was free before."""
    slots = reading.server.slots or 1
    known, first = out.spans, out.spans.first[index]
    running = [i for i in range(max(0, index - 4 * slots - 8), index) if known.last[i] > first]
    before = out.after.get(index)
    ended = [
        i
        for i in range(max(0, index - 4 * slots - 8), index)
        if known.last[i] < first and i != before and (before is None or known.last[i] > known.last[before])
    ]
    if len(running) + 1 < slots or not ended:
        return False
    latest = max(ended, key=lambda i: known.last[i])
    start, other = out.start[index], out.start[latest]
    if start is None or other is None:
        return known.first[index] - known.last[latest] <= 1
    pause = start - waits[index] - other - known.lasted[latest]
    return pause < 0.1 * (known.lasted[index] + waits[index]) or pause < 0.002


def _think(out: Arrivals, waits: Sequence[float]) -> None:
    """Think times; those of requests that queued are the median of the others, as far as they fit."""
    room: list[float] = []
    ended: list[float] = []
    for index, start in enumerate(out.start):
        before = out.after.get(index)
        then = out.start[before] if before is not None else None
        ended.append(then + out.spans.lasted[before] if before is not None and then is not None else 0.0)
        room.append(0.0 if start is None or before is None else max(0.0, start - waits[index] - ended[-1]))
        out.arrival[index] = None if start is None else start - waits[index]
    seen = [room[i] for i in out.after if not out.queued[i]]
    usual = median(seen) if seen else min((room[i] for i in out.after), default=0.0) / 2
    for index in out.after:
        out.think[index] = min(room[index], usual) if out.queued[index] else room[index]
        if out.arrival[index] is not None:
            out.arrival[index] = ended[index] + out.think[index]
    for index, queued in enumerate(out.queued):
        if queued and index not in out.after:
            out.arrival[index] = out.arrival[0]  # it had waited as long as can be
