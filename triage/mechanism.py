"""Mechanism and Sign: what a plug-in of `ds4scope.mechanisms` is made of.

A mechanism is one way in which turns get slow (or an explicit all-clear). It looks at a `View` and yields
`Sign`s: evidence, figures, cost. Ranking, roles and confidence are not its business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from triage.episodes import Episode
    from triage.view import View

#: kinds of evidence a finding can rest on (mechanisms 1, "How sure a finding can be"), strongest first
GRADES: Final = ("log", "config", "turns", "trace", "possible", "hearsay")

#: section 5: how a finding is placed
BROKEN, FAULT, CONSEQUENCE, INFORMATION = "broken", "fault", "consequence", "information"


@dataclass(frozen=True, slots=True)
class Replay:
    """The counterfactual that proves a mechanism: policy names and server options of `docs/outputs.md`.

    `options` go to the replay as they are ("scheduler": "reuse-aware"); "+1" for `slots` and "x4" for a
    budget are relative to what the log shows. None in `Mechanism.replay` means that no replay can prove it.
    """

    note: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sign:
    """Evidence for one mechanism in one input.

    `figures` are named quantities (section 1 and the mechanism's own); `avoidable_tokens` and
    `avoidable_s` rank it; `grade` and `confidence` (0..1) say how sure it is; `lines` are 1-based.
    `trigger` marks section 3.1 (with `possible` in its grade it ranks behind a certain fallback).
    """

    explanation: str
    episodes: tuple[Episode, ...] = ()
    lines: tuple[int, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    avoidable_tokens: int | None = None
    avoidable_s: float | None = None
    grade: str = "log"
    confidence: float = 0.9
    numbers: tuple[int, ...] = ()  # `Request.request`, where the episodes themselves are let go (long logs)
    triggers: frozenset[str] = frozenset()  # of a fallback: the triggers of its episodes
    role: str | None = None  # "contributing" where the mechanism itself knows that another one leads
    severity: str | None = None  # where this occurrence differs from the mechanism's own severity

    @property
    def requests(self) -> tuple[int, ...]:
        """Numbers of the requests it is about, in order, each once."""
        return self.numbers or tuple(sorted({e.request.request for e in self.episodes}))


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One mechanism of `docs/spec/mechanisms.md` section 4 (or of a plug-in).

    `place` is where section 5 ranks it; `trigger` and `fallback` mark the two halves of section 3.
    `repeats` marks a fallback that leads where it repeats over sessions while triggers differ (5.3).
    """

    id: str
    title: str
    family: str
    grades: tuple[str, ...]
    severity: str
    evidence: str
    not_if: str
    user: str
    server: str
    detect: Callable[[View], Iterable[Sign]]
    upstream: tuple[int, ...] = ()
    replay: Replay | None = None
    place: str = FAULT
    trigger: bool = False
    fallback: bool = False
    repeats: bool = False
    causes: tuple[str, ...] = ()  # a consequence of these, if they are found as well
