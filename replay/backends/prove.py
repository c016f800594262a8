"""Comparisons of logits: the same position reached in two ways must give the same numbers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from replay.backends.plan import Plan
from replay.backends.resident import Engine
from replay.backends.result import Check, RewindView
from replay.decisions import Missed
from replay.models.deepseek import ring_needed
from replay.models.model import Tokens

COLD: Final = "a prefill from nothing in one piece"
TWIN: Final = "the session that was stored, never evicted"
DONE: Final = "the prefill that the server made"


class Prover:
    """Makes the comparisons that were planned, and looks at each miss: could a rewind have saved it?

    `ring`: raw rows of a live DeepSeek session at full size, where a scaled one holds them rounded up."""

    def __init__(self, engine: Engine, plan: Plan, ring: int | None = None) -> None:
        self.engine, self.plan, self.ring = engine, plan, ring
        self.checks: list[Check] = []
        self.rewinds: list[RewindView] = []
        self._twins: dict[str, Any] = {}
        self._cold: dict[int, Any] = {}
        self._instead: dict[int, tuple[Any, Tokens]] = {}

    def stored(self, file: str, resident: Any) -> None:
        """Keep the session of a file that a planned comparison will load."""
        if file in self.plan.twins:
            self._twins[file] = resident.fork()

    def missed(self, row: Missed, resident: Any, prompt: Tokens, common: int) -> None:
        """LC3, seen from the tensors: the cache's own predicate at the common prefix."""
        position = min(common, len(prompt) - 1)
        if not row.common or position <= 0 or resident.length == 0:
            return
        verdict = resident.can_rewind(position)
        kept = min(row.common, row.prompt - 1)
        deepseek = self.engine.family.startswith("deepseek")
        needed = ring_needed(row.live, kept) if deepseek else None
        reason = verdict.reason or self.out_of_reach(row.live, kept)
        back = row.live - kept
        self.rewinds.append(RewindView(row.request, row.live, row.common, back, not reason, reason, needed))
        if not reason and row.request in self.plan.instead:
            other = resident.fork()
            other.rewind(position)
            other.extend(prompt[position:])
            self._instead[row.request] = other, prompt

    def out_of_reach(self, live: int, kept: int) -> str:
        """What scaled tensors cannot tell, since tokens and rows are rounded: why the full ones do not reach
        back; empty if they do."""
        if self.ring is None or kept >= live:
            return ""
        if self.engine.family == "qwen-next":
            return f"no recurrent state of position {kept} was saved"
        needed = ring_needed(live, kept)
        if needed <= self.ring or not self.engine.family.startswith("deepseek"):
            return ""
        return f"at full size the ring has {self.ring} rows, {needed} are needed"

    def prompt_done(self, request: int, resident: Any, prompt: Tokens) -> None:
        """All comparisons at the end of a prompt."""
        if request in self._instead:
            other, canonical = self._instead.pop(request)
            if np.array_equal(canonical, prompt):
                self._compare(request, "rewind-instead", DONE, resident, other)
        for file in [file for file, of in self.plan.twins.items() if of == request and file in self._twins]:
            twin = self._twins.pop(file)
            twin.extend(prompt[twin.length :])
            self._compare(request, "restore", TWIN, resident, twin)
        kind = self.plan.cold.get(request)
        if kind is not None:
            cold = self.engine.new()
            cold.extend(prompt)
            self._compare(request, kind, COLD, resident, cold)
            if request in self.plan.decode:
                self._cold[request] = cold

    def finished(self, request: int, resident: Any) -> None:
        """At the end of a reply: decoded token by token, or prefilled in one piece."""
        if request not in self.plan.decode:
            return
        cold = self._cold.pop(request, None) or self.engine.new()
        tokens = resident.tokens
        if cold.length < len(tokens) and cold.common(tokens) == cold.length:
            cold.extend(tokens[cold.length :])
            self._compare(request, "decode", COLD, resident, cold)

    def _compare(self, request: int, kind: str, against: str, one: Any, other: Any) -> None:
        a, b = one.logits(), other.logits()
        if a is None or b is None or one.length != other.length:
            return
        gap, same = float(np.abs(a - b).max()), bool(a.argmax() == b.argmax())
        allowed = self.engine.tolerance * float(np.abs(b).max())
        self.checks.append(Check(request, kind, against, one.length, gap, same, allowed))
