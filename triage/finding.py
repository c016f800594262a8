"""Finding: one mechanism seen in an input, with its evidence, figures, remedy and proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """The replay that proves the finding: what the named profile would have saved (ranges are low, high)."""

    profile: str
    tokens_saved: int | None
    seconds_saved: float | None
    tokens_range: tuple[int, int] | None = None
    seconds_range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `mechanism` is an id of `docs/spec/mechanisms.md`; `confidence` is 0..1; `grade` says what
    kind of evidence it rests on ("log", "config", "turns", "trace", "hearsay", "possible").
    `lines` are 1-based lines of the input, `requests` are `Request.request`."""

    mechanism: str
    rank: int
    confidence: float
    role: str
    requests: tuple[int, ...] = ()
    lines: tuple[int, ...] = ()
    quantities: Mapping[str, Any] = field(default_factory=dict)
    explanation: str = ""
    remedy_user: str = ""
    remedy_server: str = ""
    upstream: tuple[int, ...] = ()
    counterfactual: Counterfactual | None = None
    grade: str = "log"
