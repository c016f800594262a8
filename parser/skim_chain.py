"""Chains: which request sat in the slot before, by lengths alone.

After a request the live length is P + gen; the next one in that slot starts there (a hit) or names it in its
miss line (log-formats 6). Which conversation it is, `parser.conversations` says, as for any log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from typing import Final

from parser.request import Request
from parser.rows import known_zeros

#: lengths that do not follow from what was left, as a share of the requests, that put the slots in doubt
_BROKEN: Final = 0.02
#: live lengths that are remembered, at least
_LEFT: Final = 4096


@dataclass
class Chain:
    """Takes requests in order of their start; fills slot and predecessor."""

    by_live: dict[int, list[Request]] = field(default_factory=dict)  # live length -> who left it
    ended: list[tuple[int, int, int, Request]] = field(default_factory=list)  # heap: finish seq, number, live
    last: dict[int, float] = field(default_factory=dict)  # slot -> finish seq of its last request (inf: open)
    run: int = 0
    seen: int = 0
    breaks: int = 0
    used: int = 0  # slots of this run that somebody was in

    def add(self, request: Request, finished: int | None, slots: int | None) -> Request | None:
        """One more request, with the `seq` of its finish; returns its predecessor in the slot."""
        if request.run != self.run:
            self._restart(request.run)
        self._settle(request.events[0])
        live = request.live_before if request.live_before is not None else request.evicted_live_tokens
        before = self._take(live or None)
        self.seen += 1
        if before is not None:
            request.previous_in_slot, request.slot = before.request, before.slot
            known_zeros(request, None)
        else:
            self._enter(request, slots)
        if self.breaks > max(4, _BROKEN * self.seen):
            request.slot_confidence = "ambiguous"
        else:
            request.slot_confidence = (
                "certain" if before is not None or not request.cached_tokens else "inferred"
            )
        if request.slot is not None:
            self.last[request.slot] = float("inf") if finished is None else finished
        if finished is not None:
            left = request.live_after if request.live_after is not None else request.prompt_tokens or 0
            heappush(self.ended, (finished, request.request, left, request))
        return before

    def _take(self, live: int | None) -> Request | None:
        """The last request that left this length, which is in its slot no more."""
        left = self.by_live.get(live) if live is not None else None
        if not left or live is None:
            return None
        before = left.pop()
        if not left:
            del self.by_live[live]
        return before

    def _settle(self, seq: int) -> None:
        """Requests that had finished when this one started have left their live length behind."""
        while self.ended and self.ended[0][0] < seq:
            _, _, live, request = heappop(self.ended)
            self.by_live.setdefault(live, []).append(request)
        if len(self.by_live) > 2 * _LEFT:
            for live in list(islice(self.by_live, _LEFT)):
                del self.by_live[live]

    def _idle(self, slots: int) -> int:
        """The slot whose last request finished longest ago: the likeliest of those that may be it."""
        return min(range(slots), key=lambda slot: self.last.get(slot, -1))

    def _restart(self, run: int) -> None:
        """A new process holds nothing."""
        self.by_live.clear()
        self.ended.clear()
        self.last.clear()
        self.run, self.used = run, 0

    def _enter(self, request: Request, slots: int | None) -> None:
        """A slot that nobody has used yet; where there is none, or something is in it, the chain is broken."""
        free = slots is None or self.used < slots
        doubtful = not free or bool(request.cached_tokens and not request.disk_hit_tokens)
        empty = request.live_before is None and request.evicted_live_tokens is None
        self.breaks += doubtful
        request.slot = self.used if free else self._idle(slots or 1)
        self.used += free
        known_zeros(request, 0 if free and empty else None)
