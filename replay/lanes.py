"""Lanes: which requests one client sends one after the other, each after the answer to the one before.

A conversation is one lane; conversations that were never in the server at once share a lane, since a client
that alternates between them waits each time. In a server of one slot nothing is ever in it at once: there
conversations share a lane only if the slot stood idle between them, or else they waited in the queue.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from replay.candidates import Talk
from replay.timing import Spans

#: a single slot that is idle for less than this share of its busy time was never waited for
_SATURATED = 0.02


def lanes(talks: Sequence[Talk], spans: Spans, *, apart: bool) -> dict[int, int]:
    """Index of a request -> index of the one that its client waited for before. `apart` keeps every
    conversation in a lane of its own."""
    taken: list[list[tuple[int, int]]] = []
    members: list[list[int]] = []
    for talk in talks:
        for turns in _serial(talk, spans):
            lane = None if apart else _free_lane(turns, taken, spans)
            if lane is None:
                lane = len(taken)
                taken.append([])
                members.append([])
            for turn in turns:
                insort(taken[lane], (spans.first[turn], spans.last[turn]))
            members[lane] += turns
    return _chain(members, spans)


def _serial(talk: Talk, spans: Spans) -> list[list[int]]:
    """The turns of a conversation, parted where it was in the server twice at once."""
    tracks: list[list[int]] = []
    for turn in talk.turns:
        track = next((t for t in tracks if spans.last[t[-1]] < spans.first[turn]), None)
        if track is None:
            tracks.append([turn])
        else:
            track.append(turn)
    return tracks


def _free_lane(turns: Sequence[int], taken: Sequence[list[tuple[int, int]]], spans: Spans) -> int | None:
    """The lane without overlap that was used most recently before the first of `turns`."""
    best, latest = None, -1
    for lane, busy in enumerate(taken):
        if any(_busy(busy, spans.first[turn], spans.last[turn]) for turn in turns):
            continue
        place = bisect_left(busy, (spans.first[turns[0]], 0))
        used = busy[place - 1][1] if place else 0
        if used > latest:
            best, latest = lane, used
    return best


def _busy(busy: Sequence[tuple[int, int]], first: int, last: int) -> bool:
    place = bisect_left(busy, (first, 0))
    before = place > 0 and busy[place - 1][1] > first
    return before or (place < len(busy) and busy[place][0] < last)


def _chain(members: Sequence[list[int]], spans: Spans) -> dict[int, int]:
    after: dict[int, int] = {}
    for lane in members:
        lane.sort(key=lambda turn: spans.first[turn])
        after.update(zip(lane[1:], lane, strict=False))
    return after


def saturated(spans: Spans, starts: Sequence[float | None], waits: Sequence[float]) -> bool:
    """A server that serves one at a time stood idle (beside `waits`, its own work before each start) for next
    to none of its time: more clients than slots."""
    busy = idle = 0.0
    for index in range(1, len(starts)):
        now, then = starts[index], starts[index - 1]
        if now is None or then is None:
            continue
        busy += spans.lasted[index] + waits[index]
        idle += max(0.0, now - waits[index] - then - spans.lasted[index - 1])
    return busy > 0 and idle < _SATURATED * busy
