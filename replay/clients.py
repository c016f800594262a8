"""The clients: when each request is sent, and when its client has enough (closed loop; `Asked`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from replay.workload import Asked, Stop, Workload

#: what the timeline holds: a moment, a number that keeps equal moments in order, what happens, to what
SEND, QUEUE, LEAVE, NOTICE, END, STOP, UP = range(7)


class Clients:
    """Who sends what after whose answer."""

    def __init__(self, workload: Workload) -> None:
        self._after: dict[int, list[Asked]] = defaultdict(list)
        self._first: list[Asked] = []
        for asked in workload.requests:
            (self._first if asked.after is None else self._after[asked.after]).append(asked)
        self._before: dict[int, list[Stop]] = defaultdict(list)
        self._during: dict[int, list[Stop]] = defaultdict(list)
        self._gates: dict[Stop, list[Asked]] = {}
        self.last: list[Stop] = []
        for stop in workload.stops:
            if stop.after is not None and stop.before is not None:
                self._gates[stop] = []
            if stop.after is not None:
                self._during[stop.after].append(stop)
            elif stop.before is not None:
                self._before[stop.before].append(stop)
            else:
                self.last.append(stop)

    def opening(self) -> Iterator[tuple[float, Asked]]:
        """Requests that wait for nobody, and when they are sent."""
        for asked in self._first:
            yield (asked.arrival_s or 0.0), asked

    def following(self, request: int, ended_s: float) -> Iterator[tuple[float, Asked]]:
        """Requests that were waiting for this one to end, and when they are sent."""
        for asked in self._after.get(request, ()):
            yield ended_s + asked.think_s, asked

    def stops_before(self, request: int) -> list[Stop]:
        """Stops of the server that come just before a request is sent; each is given once."""
        return self._before.pop(request, [])

    def stops_during(self, request: int) -> list[Stop]:
        """Stops of the server some time after a request was sent; each is given once."""
        return self._during.pop(request, [])

    def hold(self, asked: Asked) -> bool:
        """A request of a later process waits for the stop before that; True if it does."""
        for stop in self._gates:
            if stop.before is not None and asked.request >= stop.before:
                self._gates[stop].append(asked)
                return True
        return False

    def release(self, stop: Stop) -> list[Asked]:
        """The requests that waited for this stop."""
        return self._gates.pop(stop, [])

    def overdue(self) -> Stop | None:
        """A stop that others still wait for when nothing else can happen."""
        return next((stop for stop, waiting in self._gates.items() if waiting), None)
