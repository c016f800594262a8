"""Lanes: which requests one client sends one after the other, each after the answer to the one before.

A conversation is one lane. Conversations that were never in the server at once share a lane, since a client
that alternates between them waits each time. In the server is a request from its arrival: one that began just
as another one's slot came free had waited for it (`handed`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from math import log
from statistics import median

from replay.candidates import Talk
from replay.timing import Spans

#: pauses shorter than this (seconds) are lost in stamps of whole seconds; so many tell what is usual
_LEAST_PAUSE_S = 1.0
_LEAST_PAUSES = 8
#: the least spread of ln(pause) that is taken for usual
_LEAST_SPREAD = 0.25


@dataclass(slots=True)
class _Lane:
    """Intervals in which the lane's client waits for an answer, by event numbers, and its requests."""

    busy: list[tuple[float, float, int]] = field(default_factory=list)

    @property
    def turns(self) -> list[int]:
        return [turn for _, _, turn in self.busy]

    def free(self, first: float, last: float) -> bool:
        """Nothing of the lane was in the server between the two."""
        place = self.place(first)
        before = place > 0 and self.busy[place - 1][1] > first
        return not before and (place == len(self.busy) or self.busy[place][0] >= last)

    def place(self, first: float) -> int:
        """How many of its requests came before then."""
        return bisect_left(self.busy, (first, 0.0, -1))

    def used_before(self, first: float) -> float:
        """When its client got its last answer before then; -1 for never."""
        place = self.place(first)
        return self.busy[place - 1][1] if place else -1.0


def lanes(talks: Sequence[Talk], spans: Spans, handed: Mapping[int, int]) -> dict[int, int]:
    """Index of a request -> index of the one that its client waited for before. `handed`: index -> index of
    the request whose slot it took over the moment it came free."""
    first = [float(place) for place in spans.first]
    for index, other in handed.items():
        first[index] = min(first[index], spans.last[other] - 0.5)
    making = _Making(spans, first, handed)
    # what was asked once comes last: then it is known what the clients did besides
    for talk in sorted(talks, key=lambda talk: len(talk) == 1 and talk[0] not in handed):
        for turns in _serial(talk, first, spans):
            making.add(turns)
    return {turn: before for lane in making.made for before, turn in pairwise(lane.turns)}


def _serial(talk: Talk, first: Sequence[float], spans: Spans) -> list[list[int]]:
    """The turns of a conversation, parted where it was in the server twice at once."""
    tracks: list[list[int]] = []
    for turn in talk:
        track = next((t for t in tracks if spans.last[t[-1]] < first[turn]), None)
        if track is None:
            tracks.append([turn])
        else:
            track.append(turn)
    return tracks


class _Making:
    """Lanes, as one conversation after the other is put into one."""

    def __init__(self, spans: Spans, first: Sequence[float], handed: Mapping[int, int]) -> None:
        self.spans, self.first, self.handed = spans, first, handed
        self.made: list[_Lane] = []
        self._put, self._asked_at = 0, 0
        self._usual_then: tuple[float, float] | None = None

    def add(self, turns: Sequence[int]) -> None:
        """Put what was asked one after the other into a lane."""
        lane = self._lane_for(turns)
        self._put += len(turns)
        for turn in turns:
            insort(lane.busy, (self.first[turn], float(self.spans.last[turn]), turn))

    def _lane_for(self, turns: Sequence[int]) -> _Lane:
        """A lane without overlap. Where clients queue, the one that was answered longest ago, as it is its turn. Else the
        one whose pauses stay most usual; where pauses tell nothing the one that was answered last, as a client
        goes on at once."""
        found = [
            lane for lane in self.made if all(lane.free(self.first[t], self.spans.last[t]) for t in turns)
        ]
        if not found:
            self.made.append(_Lane())
            return self.made[-1]
        used = [lane.used_before(self.first[turns[0]]) for lane in found]
        if turns[0] in self.handed:
            ever = [(at, lane) for at, lane in zip(used, found, strict=True) if at >= 0]
            return min(ever, key=lambda pair: pair[0])[1] if ever else found[0]
        usual = self._usual() if len(found) > 1 else None
        if usual is None:
            return found[used.index(max(used))]
        fits = [self._fit(lane, turns, usual) for lane in found]
        return found[fits.index(max(fits))]

    def _usual(self) -> tuple[float, float] | None:
        """What is usual, asked again when a quarter more is known."""
        if self._put > 1.25 * self._asked_at:
            self._asked_at, self._usual_then = self._put, self._usual_now()
        return self._usual_then

    def _usual_now(self) -> tuple[float, float] | None:
        """Middle and spread of ln(pause); None where the log does not tell."""
        pauses = [
            p for lane in self.made for one, other in pairwise(lane.turns) if (p := self._pause(one, other))
        ]
        if len(pauses) < _LEAST_PAUSES or median(pauses) < _LEAST_PAUSE_S:
            return None
        logs = [log(pause) for pause in pauses]
        middle = median(logs)
        return middle, max(_LEAST_SPREAD, 1.5 * median(abs(x - middle) for x in logs))

    def _pause(self, one: int | None, other: int | None) -> float | None:
        """Seconds from an answer to the next request; None where that waited, or a time is not known."""
        if one is None or other is None or other in self.handed:
            return None
        times = self.spans.low[one], self.spans.high[one], self.spans.low[other], self.spans.high[other]
        if None in times:
            return None
        a, b, c, d = (at or 0.0 for at in times)
        return max(0.05, (c + d - a - b) / 2 - self.spans.lasted[one])

    def _fit(self, lane: _Lane, turns: Sequence[int], usual: tuple[float, float]) -> float:
        """How much likelier (ln) all pauses of the lane are with the turns in it than without."""
        gain = 0.0
        for place, group in groupby(turns, key=lambda turn: lane.place(self.first[turn])):
            before = lane.busy[place - 1][2] if place else None
            behind = lane.busy[place][2] if place < len(lane.busy) else None
            with_them = pairwise([before, *group, behind])
            gain += sum(self._likely(one, other, usual) for one, other in with_them)
            gain -= self._likely(before, behind, usual)
        return gain

    def _likely(self, one: int | None, other: int | None, usual: tuple[float, float]) -> float:
        pause, (middle, spread) = self._pause(one, other), usual
        if pause is None:
            return 0.0
        return -(((log(pause) - middle) / spread) ** 2) / 2 - log(pause * spread)
