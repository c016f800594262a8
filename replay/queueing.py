"""Who waited for the one slot of a server.

Between two requests of different conversations a log of whole seconds leaves open whether the second one waited for the
first or came a moment later. What it does not leave open is how long all pauses were together: a client who asks this and
that pauses each time, while among clients who queue many pauses are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from statistics import median
from typing import NamedTuple

from replay.timing import Spans

#: pauses are told one by one where others are longer than that: stamps are whole seconds
_STAMP_S = 1.0
#: if all could have paused this share of the mean pause, and so many times the server's own work, nobody waits
_FLOOR, _LEAST_PAUSE = 0.45, 4.0
_HALVINGS = 30


class Pause(NamedTuple):
    """Between a request and the one before it in the slot: `freed` is that one's index, `seconds` as starts are settled,
    `since` the seconds since the client's own last answer."""

    freed: int
    seconds: float
    since: float


def waited(
    known: Spans, starts: Sequence[float | None], before: Sequence[float], pauses: Mapping[int, Pause],
    thinks: Sequence[float], soon: float, server_s: float,
) -> dict[int, int]:  # fmt: skip
    """Index -> index of the request whose slot it had waited for, of the requests with `pauses` (index -> pause) at which
    two conversations take turns; `thinks` are the other pauses. `before`: seconds that the server works on each request
    before it starts. Starts in `known` are narrowed by who waited."""
    at_once = {
        i for i, pause in pauses.items() if pause.seconds - _slack(known, starts, i, pause.freed) < soon
    }
    others = [*thinks, *(pause.seconds for i, pause in pauses.items() if i not in at_once)]
    if others and median(others) > _STAMP_S:
        return {index: pauses[index].freed for index in at_once}
    chain = _Chain(known, before)
    if not pauses or None in known.low:
        return {}
    mean = sum(pause.seconds for pause in pauses.values()) / len(pauses)
    if mean > soon and chain.floor(pauses) > min(_FLOOR * mean, _LEAST_PAUSE * server_s):
        return {}
    # who had thought longest when the slot came free is the likeliest to have come before
    by_turn = sorted(pauses, key=lambda index: (-pauses[index].since, index))
    found = {i: pauses[i].freed for i in by_turn if chain.joins(pauses[i].freed, i, soon)}
    known.low[:], known.high[:] = chain.low, chain.high
    return found


def _slack(known: Spans, starts: Sequence[float | None], index: int, freed: int) -> float:
    """How much shorter the pause between two requests may be than their settled starts say."""
    low, high = known.low[index], known.high[freed]
    start, other = starts[index] or 0.0, starts[freed] or 0.0
    return (start - low if low is not None else 0.0) + (high - other if high is not None else 0.0)


class _Chain:
    """Requests that one slot served one after the other: starts between their earliest and latest, and how far two
    neighbours are apart at most."""

    def __init__(self, known: Spans, before: Sequence[float]) -> None:
        self.known, self.before = known, before
        self.low = [-inf if at is None else at for at in known.low]
        self.high = [inf if at is None else at for at in known.high]
        self.order = sorted(range(len(self.low)), key=lambda i: known.first[i])
        self.place = {index: place for place, index in enumerate(self.order)}
        self.apart = [inf] * len(self.order)
        #: what the last attempt moved: index, and its bounds before
        self.moved: list[tuple[int, float, float]] = []

    def floor(self, pauses: Mapping[int, Pause]) -> float:
        """The longest pause, seconds, that all of `pauses` could have had."""
        least, most = 0.0, max(pause.seconds for pause in pauses.values()) + _STAMP_S
        for _ in range(_HALVINGS):
            middle = (least + most) / 2
            least, most = (middle, most) if self._all_pause(pauses, middle) else (least, middle)
        return least

    def _all_pause(self, pauses: Mapping[int, Pause], seconds: float) -> bool:
        at = -inf
        for one, other in zip([None, *self.order], self.order, strict=False):
            if one is not None:
                at += self.known.lasted[one] + self.before[other] + (seconds if other in pauses else 0.0)
            at = max(at, self.low[other])
            if at > self.high[other]:
                return False
        return True

    def joins(self, freed: int, index: int, soon: float) -> bool:
        """Let a request begin as the one before it ends; False, and nothing changes, where the log does not allow it."""
        place = self.place[index]
        if self.order[place - 1] != freed:
            return False
        self.apart[place] = self.known.lasted[freed] + self.before[index] + soon
        self.moved = []
        if self._settle(place):
            return True
        self.apart[place] = inf
        for at, low, high in reversed(self.moved):
            self.low[at], self.high[at] = low, high
        return False

    def _settle(self, place: int) -> bool:
        """Carry a bound between two neighbours on to all that it moves; False if there is no room."""
        return (
            self._tie(place)
            and self._carry(range(place + 1, len(self.order)))
            and self._carry(range(place - 1, 0, -1))
        )

    def _carry(self, places: Iterable[int]) -> bool:
        for place in places:
            before = len(self.moved)
            if not self._tie(place):
                return False
            if len(self.moved) == before:
                break
        return True

    def _tie(self, place: int) -> bool:
        one, other, most = self.order[place - 1], self.order[place], self.apart[place]
        least = min(self.known.lasted[one], most)
        return self._narrow(other, self.low[one] + least, self.high[one] + most) and self._narrow(
            one, self.low[other] - most, self.high[other] - least
        )

    def _narrow(self, index: int, low: float, high: float) -> bool:
        if low > self.low[index] or high < self.high[index]:
            self.moved.append((index, self.low[index], self.high[index]))
            self.low[index] = max(low, self.low[index])
            self.high[index] = min(high, self.high[index])
        return self.low[index] <= self.high[index]
