"""Slots of a whole run, as requests close: which scheduler explains the log best, and its answer."""

from __future__ import annotations

import heapq

from parser.opens import Open
from parser.rows import known_zeros
from parser.runs import Run
from parser.slots import Placed, SlotSearch
from parser.visits import Visit, visit_of

#: requests held before the older ones are settled (bounded memory on endless logs), and how many stay
_HOLD = 6144
_KEEP = 1024
#: how much more often one scheduler's rule is broken than the other's where the log tells them apart
_TELLING = 2


class SlotGuess:
    """Places the requests of one run: `add` in order of first lines, `settled` gives what is decided."""

    def __init__(self, run: Run, *, silent: bool) -> None:
        self.run, self.silent = run, silent
        self.waiting: dict[int, Open] = {}
        self.overlap = 0  # the most requests that surely ran at once
        self._count = 0
        self._before: dict[int, Open] = {}
        self._busy: list[tuple[int, int]] = []  # heap of (last line, excerpt) of the requests that run
        self._used = 0  # slots that were empty when a request came
        self._against = {"old": 0, "new": 0}
        self._by_place: dict[int, int] = {}  # trace record -> visit
        self._visits: list[Visit] = []
        self._search: SlotSearch | None = None

    def add(self, opened: Open) -> None:
        """One more request, in order of first lines."""
        partial = self.run.place != "log"
        visit = visit_of(opened, self._count, silent=self.silent, partial=partial, after=self._after(opened))
        if not partial:
            known_zeros(opened.row, visit.needs)
        self.waiting[self._count] = opened
        self._count += 1
        self._visits.append(visit)
        self._watch(visit)

    def _after(self, opened: Open) -> int | None:
        """The visit whose prompt this one's begins with, by the trace: what a hit in memory extends."""
        record = opened.trace
        if record is None:
            return None
        self._by_place[record.place] = self._count
        in_memory = opened.row.source in ("memory-token", "memory-text")
        return (
            self._by_place.get(record.parent)
            if in_memory and record.extends and record.parent is not None
            else None
        )

    def _watch(self, visit: Visit) -> None:
        """Who runs beside it, and whether it was sent where each scheduler would not send it."""
        busy = self._busy
        while busy and (busy[0][0] < visit.begin or busy[0][1] != visit.excerpt):
            heapq.heappop(busy)
        if visit.needs == 0:
            self._against["old"] += len(busy) < self._used  # an idle slot shares at least the first token
            self._used += 1
        elif visit.needs and not visit.hit and self.run.started:
            self._against["new"] += self._used < (self.run.slots or 0)  # an empty slot was there
        heapq.heappush(busy, (visit.last, visit.excerpt))
        self.overlap = max(self.overlap, len(busy))

    @property
    def rule(self) -> str | None:
        """The scheduler whose choices these are ("old": common prefix, "new": reuse, then empty slots)."""
        old, new = self._against["old"], self._against["new"]
        if max(old, new) < _TELLING * min(old, new) + 1:
            return None
        return "old" if old < new else "new"

    def settled(self, *, final: bool) -> list[Open]:
        """Requests whose slot is decided, in order of first lines; all of them at the end of the run."""
        if not final and len(self.waiting) < _HOLD:
            return []
        search = self._search = self._search or SlotSearch(
            self.run.slots, started=self.run.started, partial=self.run.place != "log"
        )
        search.rule = self.rule
        placed: list[Placed] = []
        while self._visits:  # a block may hold any number of requests, the search holds few
            portion, self._visits = self._visits[:_HOLD], self._visits[_HOLD:]
            for visit in portion:
                search.add(visit)
            if self._visits:
                placed += search.settle(None, keep=_KEEP)
        placed += search.settle(self.run.persisted, keep=0) if final else search.settle(None, keep=_KEEP)
        return [self._place(one) for one in placed]

    def _place(self, placed: Placed) -> Open:
        opened = self.waiting.pop(placed.request)
        row = opened.row
        row.slot, row.slot_confidence = placed.slot, placed.confidence
        row.slot_alternatives = placed.alternatives
        opened.previous = self._before.pop(placed.previous, None) if placed.previous is not None else None
        self._before[placed.request] = opened
        row.why["slot"] = _why(opened, placed)
        return opened


def _why(opened: Open, placed: Placed) -> str:
    needs = opened.row.live_before
    if placed.previous is not None and placed.cost == 0 and needs:
        return f"the request before it in this slot left exactly the {needs} tokens this one found"
    if placed.previous is None and placed.cost == 0:
        return "nothing had been in this slot before"
    if placed.margin == float("inf"):
        return "the only slot"
    return f"best of {len(placed.alternatives) + 1} by busy times and live lengths"
