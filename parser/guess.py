"""Slots of a whole run, as requests close: which scheduler explains the log best, and its answer."""

from __future__ import annotations

import heapq

from parser.opens import Open
from parser.runs import Run
from parser.slots import Placed, SlotSearch
from parser.visits import visit_of

#: requests that a search holds before it settles the older half (bounded memory on endless logs)
_HOLD = 2048
_RULES = ("old", "new")


class SlotGuess:
    """Places the requests of one run: `add` in order of first lines, `settled` gives what is decided."""

    def __init__(self, run: Run, *, silent: bool) -> None:
        self.run, self.silent = run, silent
        self.waiting: dict[int, Open] = {}
        self._count = 0
        self.overlap = 0  # the most requests that surely ran at once
        self._lasts: list[tuple[int, int]] = []
        self._before: dict[int, Open] = {}
        self._searches = {
            rule: SlotSearch(run.slots, started=run.started, rule=rule)
            for rule in (_RULES if run.slots != 1 else _RULES[:1])
        }

    def add(self, opened: Open) -> None:
        """One more request, in order of first lines."""
        partial = self.run.place != "log"
        visit = visit_of(opened, self._count, silent=self.silent, partial=partial)
        self.waiting[self._count] = opened
        self._count += 1
        self._busy(opened)
        for search in self._searches.values():
            search.add(visit)

    def _busy(self, opened: Open) -> None:
        """Requests whose first and last lines enclose this one's first line ran beside it."""
        while self._lasts and (self._lasts[0][0] < opened.first or self._lasts[0][1] != opened.row.excerpt):
            heapq.heappop(self._lasts)
        heapq.heappush(self._lasts, (opened.last, opened.row.excerpt))
        self.overlap = max(self.overlap, len(self._lasts))

    @property
    def rule(self) -> str | None:
        """The scheduler whose choices these are, where the log tells the two apart."""
        costs = {rule: search.cost for rule, search in self._searches.items()}
        best = min(costs, key=costs.__getitem__)
        apart = max(costs.values()) - costs[best]
        return best if apart >= 3.0 else None

    def settled(self, *, final: bool) -> list[Open]:
        """Requests whose slot is decided, in order of first lines; all of them at the end of the run."""
        if not final and len(self.waiting) < _HOLD:
            return []
        keep = 0 if final else _HOLD // 2
        costs = {rule: search.cost for rule, search in self._searches.items()}
        best = min(costs, key=costs.__getitem__)
        persisted = self.run.persisted if final else None
        answers = {rule: s.settle(persisted, keep=keep) for rule, s in self._searches.items()}
        return [self._place(placed) for placed in answers[best]]

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
