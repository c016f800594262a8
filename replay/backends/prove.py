"""Comparisons of logits: the same position reached in two ways must give the same numbers."""

from __future__ import annotations

from collections.abc import Callable
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
    """Makes the comparisons that were planned, and looks at each miss: could a rewind have saved it?"""

    def __init__(self, engine: Engine, plan: Plan, progress: Callable[[int], None]) -> None:
        self.engine, self.plan, self.progress = engine, plan, progress
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
        view = RewindView(
            row.request, row.live, row.common, row.live - kept, bool(verdict), verdict.reason, needed
        )
        self.rewinds.append(view)
        if verdict and row.request in self.plan.instead:
            other = resident.fork()
            other.rewind(position)
            self._extend(other, prompt[position:])
            self._instead[row.request] = other, prompt

    def prompt_done(self, request: int, resident: Any, prompt: Tokens) -> None:
        """All comparisons at the end of a prompt."""
        if request in self._instead:
            other, canonical = self._instead.pop(request)
            if np.array_equal(canonical, prompt):
                self._compare(request, "rewind-instead", DONE, resident, other)
        for file in [file for file, of in self.plan.twins.items() if of == request and file in self._twins]:
            twin = self._twins.pop(file)
            self._extend(twin, prompt[twin.length :])
            self._compare(request, "restore", TWIN, resident, twin)
        kind = self.plan.cold.get(request)
        if kind is not None:
            cold = self.engine.new()
            self._extend(cold, prompt)
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
            self._extend(cold, tokens[cold.length :])
            self._compare(request, "decode", COLD, resident, cold)

    def _extend(self, resident: Any, tokens: Tokens) -> None:
        if len(tokens):
            resident.extend(tokens)
            self.progress(len(tokens))

    def _compare(self, request: int, kind: str, against: str, one: Any, other: Any) -> None:
        a, b = one.logits(), other.logits()
        if a is None or b is None or one.length != other.length:
            return
        gap, same = float(np.abs(a - b).max()), bool(a.argmax() == b.argmax())
        allowed = self.engine.tolerance * float(np.abs(b).max())
        self.checks.append(Check(request, kind, against, one.length, gap, same, allowed))
