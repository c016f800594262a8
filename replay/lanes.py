"""Lanes: which requests one client sends one after the other, each after the answer to the one before.

A conversation is one lane. Conversations that were never in the server at once share a lane, since a client
that alternates between them waits each time. In the server is a request from its arrival: one that began just
as another one's slot came free had waited for it (`handed`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from replay.candidates import Talk
from replay.timing import Spans


@dataclass(slots=True)
class _Lane:
    """Intervals in which the lane's client waits for an answer, by event numbers, and its requests."""

    busy: list[tuple[float, float]] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)

    def free(self, first: float, last: float) -> bool:
        """Nothing of the lane was in the server between the two."""
        place = bisect_left(self.busy, (first, 0.0))
        before = place > 0 and self.busy[place - 1][1] > first
        return not before and (place == len(self.busy) or self.busy[place][0] >= last)

    def used_before(self, first: float) -> float:
        """When its client got its last answer before then; -1 for never."""
        place = bisect_left(self.busy, (first, 0.0))
        return self.busy[place - 1][1] if place else -1.0


def lanes(talks: Sequence[Talk], spans: Spans, handed: Mapping[int, int]) -> dict[int, int]:
    """Index of a request -> index of the one that its client waited for before. `handed`: index -> index of
    the request whose slot it took over the moment it came free."""
    first = [float(place) for place in spans.first]
    for index, other in handed.items():
        first[index] = min(first[index], spans.last[other] - 0.5)
    made: list[_Lane] = []
    for talk in talks:
        for turns in _serial(talk, first, spans):
            lane = _lane_for(made, turns, first, spans, handed)
            for turn in turns:
                insort(lane.busy, (first[turn], float(spans.last[turn])))
            lane.turns += turns
    return _chain(made, spans)


def _serial(talk: Talk, first: Sequence[float], spans: Spans) -> list[list[int]]:
    """The turns of a conversation, parted where it was in the server twice at once."""
    tracks: list[list[int]] = []
    for turn in talk.turns:
        track = next((t for t in tracks if spans.last[t[-1]] < first[turn]), None)
        if track is None:
            tracks.append([turn])
        else:
            track.append(turn)
    return tracks


def _lane_for(
    made: list[_Lane], turns: Sequence[int], first: Sequence[float], spans: Spans, handed: Mapping[int, int]
) -> _Lane:
    """A lane without overlap: the one that was answered last, as a client goes on at once; where clients queue,
    the one that was answered longest ago, as it is its turn."""
    found = [lane for lane in made if all(lane.free(first[t], spans.last[t]) for t in turns)]
    if not found:
        made.append(_Lane())
        return made[-1]
    used = [lane.used_before(first[turns[0]]) for lane in found]
    if turns[0] in handed:
        ever = [(at, lane) for at, lane in zip(used, found, strict=True) if at >= 0]
        return min(ever, key=lambda pair: pair[0])[1] if ever else found[0]
    return found[used.index(max(used))]


def _chain(made: Sequence[_Lane], spans: Spans) -> dict[int, int]:
    after: dict[int, int] = {}
    for lane in made:
        lane.turns.sort(key=lambda turn: spans.first[turn])
        after.update(zip(lane.turns[1:], lane.turns, strict=False))
    return after
