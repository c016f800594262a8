"""Arrivals: what a log does not print. A request came before its `prompt start` by what the server did first
(evict store, load, waiting for a slot); its client had sent it some time after the answer it waited for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from statistics import median

from parser.clock import Clock
from parser.reading import Reading
from replay.candidates import Talk
from replay.costs import FittedCosts
from replay.lanes import lanes
from replay.queueing import Pause, waited
from replay.strings import canonical_tokens
from replay.timing import Spans, settle, spans, timed_lines

MIB = 1 << 20
#: between two arrivals whose order is all that is known
_STEP = 1e-4
#: a request that began within this share of a usual request's time after another one's end had waited for it
_AT_ONCE = 0.01
#: seconds of the server's own work between two requests, which no line has
_SERVER_S = 0.015


@dataclass(slots=True)
class Arrivals:
    """By request index: the request it waited for (index), its think time, its arrival and its start, seconds
    since the first stamp (None without stamps). `queued` had to wait for a slot, so its arrival is a default."""

    after: dict[int, int]
    think: list[float]
    arrival: list[float | None]
    start: list[float | None]
    queued: list[bool]
    spans: Spans
    #: of those that queued, index -> index of the request whose slot it got
    waited: dict[int, int]


def arrivals(reading: Reading, talks: Sequence[Talk], costs: FittedCosts) -> Arrivals:
    """When each request was sent, and what its client had waited for."""
    known = spans(reading)
    staged = _staged_for_nothing(reading)
    waits = [_before_start(reading, index, costs, staged) for index in range(len(reading.requests))]
    after = lanes(talks, known, {})
    _start_lanes(after, known, {})
    after = _waited(reading, after)
    starts = settle(known, after)
    handed = _handed(reading, talks, known, starts, waits, after)
    if handed:
        after = lanes(talks, known, handed)
        _start_lanes(after, known, handed)
        after = _waited(reading, after)
        starts = settle(known, after)
    queued = [index in handed for index in range(len(starts))]
    out = Arrivals(after, [0.0] * len(starts), [None] * len(starts), starts, queued, known, handed)
    locked = _locked(reading, known, costs)
    waits = [wait + locked.get(index, 0.0) for index, wait in enumerate(waits)]
    admit = [costs.admit_s(canonical_tokens(request)) for request in reading.requests]
    missed = _missed_at(reading, known, starts, costs) if locked else {}
    _think(out, _as_stamped(out, waits, admit, {i: when for i, when in missed.items() if i in locked}))
    _in_order(out, admit)
    return out


def _missed_at(
    reading: Reading, known: Spans, starts: Sequence[float | None], costs: FittedCosts
) -> dict[int, tuple[float, float]]:
    """Index -> seconds since the first stamp between which its miss line was printed, as the request got its slot and
    before it waited for the model: within its stamp's second, and between the lines above and below."""
    log = reading.events
    clock, of_event = Clock(), {min(r.events): i for i, r in enumerate(reading.requests) if r.events}
    clock.seconds(reading.stamps.first)
    lines = timed_lines(reading, known, starts)
    after = sorted([*lines, *_stored_after(reading, starts, costs)])
    above = list(accumulate((at for _, at in after), max))
    below = list(accumulate((at for _, at in reversed(lines)), min))[::-1]
    found = {}
    for event in log.rows("live_miss") if log is not None else ():
        at = clock.seconds(event.stamp)
        if at is None or event.seq not in of_event:
            continue
        place, later = (bisect_left(found_in, (event.seq, -inf)) for found_in in (lines, after))
        low = max(at, above[later - 1]) if later else at
        high = min(at + 1.0, below[place]) if place < len(lines) else at + 1.0
        found[of_event[event.seq]] = (low, high) if low <= high else (at, at + 1.0)
    return found


def _stored_after(
    reading: Reading, starts: Sequence[float | None], costs: FittedCosts
) -> Iterator[tuple[int, float]]:
    """Event number of a store amid a prefill, and the time at which it was printed at the earliest."""
    log = reading.events
    of_event = {seq: i for i, r in enumerate(reading.requests) for seq in r.events if r.stores}
    for event in log.rows("kv_stored") if log is not None and of_event else ():
        index, tokens = of_event.get(event.seq), event.get("tokens") or 0
        start = None if index is None else starts[index]
        if index is None or start is None or event.get("reason") not in ("cold", "continued"):
            continue
        request = reading.requests[index]
        if (request.cached_tokens or 0) < tokens <= (request.prompt_tokens or 0):
            yield event.seq, start + costs.prefill_s(request.cached_tokens or 0, tokens)


def _as_stamped(
    out: Arrivals, waits: Sequence[float], admit: Sequence[float], missed: Mapping[int, tuple[float, float]]
) -> list[float]:
    """Seconds from arrival to start, so that one that got its slot at once and waited for the model arrives when its
    miss line says; in the middle of that time where the estimate is not in it."""
    found = list(waits)
    for index, (low, high) in missed.items():
        start = out.start[index]
        if start is not None and not out.queued[index]:
            since = start + admit[index]
            if not since - high <= waits[index] <= since - low:
                found[index] = max(0.0, since - (low + high) / 2)
    return found


def _locked(reading: Reading, known: Spans, costs: FittedCosts) -> dict[int, float]:
    """Index -> seconds that a request waited for the model on average: one that looks at the disk while another
    one prefills begins when a piece ends (R4.21), so it came half a piece before."""
    found = {}
    for index, request in enumerate(reading.requests):
        if request.source not in ("cold", "disk-text") or not _has_disk(reading, request.run):
            continue
        first = known.first[index]
        beside = [i for i in range(max(0, index - 16), index) if known.began[i] < first < known.last[i]]
        prefilling = [i for i in beside if known.prefilled[i] > first]
        if prefilling:
            config = reading.runs[request.run].config if reading.runs else {}
            mixed = len(prefilling) < len(beside)
            piece = config.get("mixed_prefill_quantum", 128) if mixed else config.get("prefill_quantum", 2048)
            found[index] = costs.prefill_s(0, piece) / 2
    return found


def _has_disk(reading: Reading, run: int) -> bool:
    said = reading.runs[run].config.get("kv_disk") if reading.runs else None
    shown = reading.counts.get("kv_stored") or reading.counts.get("kv_hit")
    return bool(shown if said is None else said)


def _waited(reading: Reading, after: dict[int, int]) -> dict[int, int]:
    """Nobody waited for an assumed request (`replay.prologue`): no line says when it was answered."""
    return {index: before for index, before in after.items() if reading.requests[before].line}


def _handed(
    reading: Reading, talks: Sequence[Talk], known: Spans, starts: Sequence[float | None],
    waits: Sequence[float], after: Mapping[int, int],
) -> dict[int, int]:  # fmt: skip
    """Index -> index of the request of another conversation whose slot it took the moment that came free, while
    no other slot was idle."""
    talk_of = {turn: talk for talk in talks for turn in talk}
    slots = reading.server.slots or 1
    pauses: dict[int, Pause] = {}
    thinks: list[float] = []
    for index in range(1, len(starts)):
        freed = _freed(known, slots, index)
        before = freed if freed is not None else after.get(index)
        start, other = starts[index], starts[before] if before is not None else None
        if before is None or start is None or other is None:
            continue
        pause = start - waits[index] - other - known.lasted[before]
        turns = freed is not None and talk_of[freed] is not talk_of[index]
        if freed is not None and turns and _take_turns(talk_of[freed], talk_of[index], freed, index):
            mine = max((turn for turn in talk_of[index] if turn < index), default=None)
            own = starts[mine] if mine is not None else None
            since = (
                inf
                if own is None or mine is None
                else other + known.lasted[before] - own - known.lasted[mine]
            )
            pauses[index] = Pause(freed, pause, since)
        elif freed is None or slots == 1:
            thinks.append(pause)
    soon = max(
        _SERVER_S, _AT_ONCE * median(known.lasted), 0.05 * median(thinks) if thinks and slots > 1 else 0.0
    )
    if slots == 1:
        return waited(known, starts, waits, pauses, thinks, soon, _SERVER_S)
    return {index: pause.freed for index, pause in pauses.items() if pause.seconds < soon}


def _take_turns(one: Talk, other: Talk, before: int, index: int) -> bool:
    """Both conversations were under way: one is not simply the next thing that a client did."""
    return one[-1] > index or other[0] < before


def _freed(known: Spans, slots: int, index: int) -> int | None:
    """The request that ended last before this one began, if all other slots were busy then."""
    earlier = range(max(0, index - 4 * slots - 8), index)
    running = sum(known.last[i] > known.first[index] for i in earlier)
    ended = [i for i in earlier if known.last[i] < known.first[index]]
    return max(ended, key=lambda i: known.last[i]) if ended and running + 1 >= slots else None


def _start_lanes(after: dict[int, int], known: Spans, handed: Mapping[int, int]) -> None:
    """A lane that begins when nobody is served waited for the answer before: one client, that now sends two."""
    ended = sorted(range(len(known.first)), key=lambda i: known.last[i])
    for index in range(1, len(known.first)):
        before = next((i for i in reversed(ended) if known.last[i] < known.first[index]), None)
        if index in after or index in handed or before is None:
            continue
        running = [i for i in range(index) if known.last[i] > known.first[index] and i != before]
        if all(known.first[i] > known.last[before] for i in running):
            after[index] = before


def _in_order(out: Arrivals, admit: Sequence[float]) -> None:
    """Requests came to the queue in the order of their first lines, since it keeps that (R2.2): where the
    estimates say otherwise, the earlier one came as early as it can have, the later one just after it.
    `admit`: seconds from the arrival to the queue (R2.1)."""
    order = sorted(range(len(out.arrival)), key=lambda i: out.spans.first[i])
    latest = float("inf")
    for index in reversed(order):
        arrival = out.arrival[index]
        if arrival is not None and not out.queued[index]:
            _move(out, index, min(0.0, latest - _STEP - arrival - admit[index]))
            latest = min(latest, (out.arrival[index] or arrival) + admit[index])
    earliest = float("-inf")
    for index in order:
        arrival = out.arrival[index]
        if arrival is not None:
            _move(out, index, max(0.0, earliest + _STEP - arrival - admit[index]))
            earliest = max(earliest, (out.arrival[index] or arrival) + admit[index])


def _move(out: Arrivals, index: int, seconds: float) -> None:
    """Let a request come earlier or later, but not before the answer that it waited for."""
    if index in out.after:
        seconds = max(seconds, -out.think[index])
        out.think[index] += seconds
    arrival = out.arrival[index]
    out.arrival[index] = None if arrival is None else arrival + seconds


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
