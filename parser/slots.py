"""Which slot served a request: constraint search over what each slot can have held (design.md).

The log names no slots. But a request shows what its slot held before (`live=` of the miss, C of a hit,
nothing for an empty slot), each request leaves P + generated tokens, and a slot serves one request at a
time. The search keeps every assignment of requests to slots that these facts allow, with a cost for what
is merely unlikely (a scheduler against its rules, a slot emptied by a stop sequence), merges assignments
that leave the same requests in the slots, and compares, for each request, the best assignment with the best
one that puts it elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from parser.visits import FORCED, UNSEEN, Visit, left_cost

#: a difference of cost below which another slot is as good / above which nothing else is possible
_AMBIGUOUS: Final = 1.0
_CERTAIN: Final = 6.0
#: costs of a scheduler's unlikely choices
_AGAINST_RULE: Final = 5.0
_NOT_LATEST: Final = 0.2
_OTHER_ID: Final = 2.0  # a label that is not the slot id that a line prints
_ABANDONED: Final = 1.0
_OTHER_CLIENT: Final = 0.5
_OTHER_TEXT: Final = 8.0  # a trace shows that another request's text begins this one
_NEW_SLOT: Final = 2.5
_NOT_PERSISTED: Final = 6.0
_LEFT_OUT: Final = 2.5  # requests between two of an excerpt are not shown
_SOON: Final = 16
_WIDTH: Final = 24  # assignments kept
_MOST_SLOTS: Final = 16
_BUSY: Final = float("inf")

EMPTY: Final = -1  # nothing has been in this slot since the process started
UNKNOWN: Final = -2  # the log begins later than the process

State = tuple[int, ...]  # per slot the visit that was last in it, or EMPTY, UNKNOWN


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a request sat. `margin` is how much worse the best assignment is that puts it elsewhere."""

    request: int
    slot: int
    confidence: str
    alternatives: tuple[int, ...]
    previous: int | None  # the visit before it in that slot
    margin: float
    cost: float  # of its own link


@dataclass(slots=True)
class _Step:
    """One request: the transitions (from state, slot, cost, to state) that survived."""

    visit: Visit
    moves: list[tuple[int, int, float, int]]
    states: list[State]
    costs: list[float]
    dropped: float  # cost of the cheapest assignment that was not kept: more than that is not known


class SlotSearch:
    """One server run. `add` requests in order of their first line, then `settle`.

    `slots` is the number of slots, None where nothing tells; `started` whether the process start is in the
    log (so all slots were empty); `rule` the scheduler whose choices are the likely ones: "old" (common
    prefix: an empty slot only when all others are busy), "new" (reuse, then empty), or None. `partial`: an
    excerpt, in which whole requests may have been left out.
    """

    def __init__(
        self, slots: int | None, *, started: bool, rule: str | None = None, partial: bool = False
    ) -> None:
        self.fixed, self.partial = slots is not None, partial
        self.rule = rule
        content = EMPTY if started else UNKNOWN
        self.initial = content
        self.visits: dict[int, Visit] = {}
        self.steps: list[_Step] = []
        self._start: State = (content,) * (slots or 0)
        self._states: list[State] = [self._start]
        self._costs = [0.0]
        self._base = 0.0
        self._links: dict[int, float] = {}  # costs of following each visit, for the request at hand

    # -- forward ---------------------------------------------------------------------------------------

    def add(self, visit: Visit) -> None:
        """Extend every assignment by one request."""
        self.visits[visit.request] = visit
        self._links = {}
        best: dict[State, float] = {}
        moves: list[tuple[int, int, float, State]] = []
        for number, state in enumerate(self._states):
            for slot, cost in self._choices(state, visit):
                after = (*state[:slot], visit.request, *state[slot + 1 :])
                whole = self._costs[number] + cost
                moves.append((number, slot, cost, after))
                best[after] = min(whole, best.get(after, whole))
        floor = min(best.values())
        kept = [state for state, cost in best.items() if cost < floor + FORCED]
        dropped = _BUSY
        if len(kept) > _WIDTH:
            kept = sorted(kept, key=best.__getitem__)
            dropped, kept = best[kept[_WIDTH]] - floor, kept[:_WIDTH]
        index = {state: number for number, state in enumerate(kept)}
        self._states, self._costs = kept, [best[state] - floor for state in kept]
        self._base += floor
        through = [(a, s, c, index[b]) for a, s, c, b in moves if b in index]
        self.steps.append(_Step(visit, through, kept, self._costs, dropped))

    def _choices(self, state: State, visit: Visit) -> list[tuple[int, float]]:
        """Slots that can have served it, with the cost of believing so."""
        links = [self._link(last, visit) for last in state]
        found = self._idle_slots(state, links, visit)
        if not self.fixed and len(state) < _MOST_SLOTS:
            found.append((len(state), self._link(self.initial, visit) + (_NEW_SLOT if state else 0.0)))
        if not found:  # no slot is free by the log: something ended without a line
            return [(slot, 2 * FORCED) for slot in range(len(state))] or [(0, FORCED)]
        exact = [slot for slot, cost in found if cost == 0]
        if len(exact) < 2:
            return found
        latest = max(exact, key=lambda slot: self._end_of(state, slot))  # a client tends to be quick
        return [(s, c + (_NOT_LATEST if c == 0 and s != latest else 0.0)) for s, c in found]

    def _end_of(self, state: State, slot: int) -> int:
        last = state[slot] if slot < len(state) else self.initial
        return self.visits[last].last if last >= 0 else -1

    def _idle_slots(self, state: State, links: list[float], visit: Visit) -> list[tuple[int, float]]:
        """Idle slots and their costs; of slots that nothing tells apart only the lowest."""
        untouched: set[int] = set()
        found = []
        for slot, (last, cost) in enumerate(zip(state, links, strict=True)):
            if cost == _BUSY or last in untouched:
                continue
            if last < 0:
                untouched.add(last)
            if visit.slot is not None and visit.slot != slot:
                cost += _OTHER_ID
            found.append((slot, cost))
        if self.rule is None or EMPTY not in untouched:
            return found
        return self._by_rule(state, found, visit)

    def _by_rule(self, state: State, found: list[tuple[int, float]], visit: Visit) -> list[tuple[int, float]]:
        """Add what a choice costs that the scheduler does not make while an empty slot is idle."""
        if self.rule == "old":
            against = {slot for slot, _ in found if state[slot] == EMPTY} if len(found) > 1 else set()
        else:
            steals = visit.needs and (visit.cold or visit.common is not None)
            against = {slot for slot, _ in found if state[slot] != EMPTY} if steals else set()
        if not against:
            return found
        return [(slot, cost + (_AGAINST_RULE if slot in against else 0.0)) for slot, cost in found]

    def _link(self, last: int, visit: Visit) -> float:
        """The cost of `visit` following `last` in one slot; `_BUSY` while `last` is certainly still there."""
        cost = self._links.get(last)
        if cost is None:
            cost = self._links[last] = self._new_link(last, visit)
        return cost

    def _new_link(self, last: int, visit: Visit) -> float:
        if last == EMPTY:
            return 0.0 if not visit.needs else FORCED
        if last == UNKNOWN:
            return UNSEEN if visit.needs is not None else 0.0
        before = self.visits[last]
        if before.excerpt != visit.excerpt:
            return min(left_cost(before, visit.needs), UNSEEN)
        if (before.last if before.end is None else before.end) >= visit.begin:
            return _BUSY
        cost = left_cost(before, visit.needs) + (_ABANDONED if before.end is None else 0.0)
        if visit.after is not None and visit.after != last:
            cost += _OTHER_TEXT
        if visit.hit and before.speaks != visit.speaks:
            cost += _OTHER_CLIENT
        if visit.needs and visit.common is not None and (visit.common == 0) != before.failed:
            cost += 2.0 if visit.common == 0 else 1.0  # only an invalid checkpoint shares nothing at all
        return min(cost, _LEFT_OUT) if self.partial else cost

    # -- backward --------------------------------------------------------------------------------------

    @property
    def cost(self) -> float:
        """Of the best assignment so far: how well the rules and the scheduler explain the log."""
        return self._base + min(self._costs)

    def settle(self, persisted: dict[int, int] | None = None, *, keep: int = 0) -> list[Placed]:
        """The best assignment of all requests but the last `keep`, with doubts; forgets what it settled.

        `persisted` are the live lengths that the server printed at shutdown, by slot.
        """
        if not self.steps:
            return []
        ends = [self._end_cost(state, persisted) for state in self._states]
        path, margins = self._best_path(ends), self._margins(ends)
        cut = len(self.steps) - keep
        unknown = self._beyond()
        placed = [self._placed(n, path, margins[n], unknown[n]) for n in range(cut)]
        self._restart(cut, path, ends)
        return placed

    def _end_cost(self, state: State, persisted: dict[int, int] | None) -> float:
        cost, moved = 0.0, False
        for slot, tokens in (persisted or {}).items():
            left = [self._left_at_end(last, tokens) for last in state]
            cost += min([*left, _NOT_PERSISTED])
            moved = moved or slot >= len(state) or left[slot] > min(left) + 1.0
        return cost + (_OTHER_ID if moved else 0.0)

    def _left_at_end(self, last: int, tokens: int) -> float:
        if last < 0:
            return UNSEEN if last == UNKNOWN else _NOT_PERSISTED
        return left_cost(self.visits[last], tokens)

    def _best_path(self, ends: list[float]) -> list[tuple[int, int, float]]:
        """(state before, slot, cost of the link) for each step of the cheapest assignment."""
        state = min(range(len(ends)), key=lambda number: ends[number] + self._costs[number])
        path = []
        for number in range(len(self.steps) - 1, -1, -1):
            before = self._costs_before(number)
            into = [move for move in self.steps[number].moves if move[3] == state]
            start, slot, cost, _ = min(into, key=lambda move: before[move[0]] + move[2])
            path.append((start, slot, cost))
            state = start
        return path[::-1]

    def _costs_before(self, number: int) -> list[float]:
        return self.steps[number - 1].costs if number else [0.0]

    def _margins(self, ends: list[float]) -> list[dict[int, float]]:
        """For each step and slot the cost of the best whole assignment that uses that slot there."""
        margins: list[dict[int, float]] = []
        after = ends
        for number in range(len(self.steps) - 1, -1, -1):
            before = self._costs_before(number)
            here: dict[int, float] = {}
            back = [float("inf")] * len(before)
            for start, slot, cost, end in self.steps[number].moves:
                rest = cost + after[end]
                back[start] = min(back[start], rest)
                here[slot] = min(here.get(slot, float("inf")), before[start] + rest)
            margins.append(here)
            after = back
        return margins[::-1]

    def _beyond(self) -> list[float]:
        """For each step the margin beyond which assignments were dropped there or soon after."""
        nearest: list[float] = []
        for number in range(len(self.steps)):
            soon = self.steps[number : number + _SOON]
            nearest.append(min(step.dropped for step in soon))
        return nearest

    def _placed(
        self, number: int, path: list[tuple[int, int, float]], costs: dict[int, float], most: float
    ) -> Placed:
        start, slot, link = path[number]
        best = costs[slot]
        others = {s: c - best for s, c in costs.items() if s != slot}
        margin = min([most, *others.values()])
        grade = "ambiguous" if margin < _AMBIGUOUS else "certain" if margin >= _CERTAIN else "inferred"
        if link >= FORCED:
            grade = "ambiguous"
        near = tuple(sorted(s for s, more in others.items() if more < _CERTAIN))
        state = self._state_before(number, start)
        last = state[slot] if slot < len(state) else self.initial
        return Placed(
            self.steps[number].visit.request, slot, grade, near, last if last >= 0 else None, margin, link
        )

    def _state_before(self, number: int, index: int) -> State:
        return self.steps[number - 1].states[index] if number else self._start

    def _restart(self, cut: int, path: list[tuple[int, int, float]], ends: list[float]) -> None:
        """Go on from the state that the settled requests leave, and take the others again."""
        if cut < len(self.steps):
            self._start = self._state_before(cut, path[cut][0])
        else:
            best = min(range(len(ends)), key=lambda number: ends[number] + self._costs[number])
            self._start = self._states[best]
        again = [step.visit for step in self.steps[cut:]]
        self.visits = {last: self.visits[last] for last in self._start if last >= 0}
        self.steps, self._states, self._costs = [], [self._start], [0.0]
        for visit in again:
            self.add(visit)
