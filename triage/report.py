"""Report: what a triage says, as one frozen record. Reporters turn it into JSON, a terminal text, Markdown, …"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parser.reading import Server
from triage.details import Details
from triage.finding import Finding


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A look-alike that does not hold, and why."""

    mechanism: str
    because: str


@dataclass(frozen=True, slots=True)
class Report:
    """One triage. `totals` holds the keys that `--expect` names; `events` the number of events of each kind.

    `input` says what was read (sources, kind, runs, stamps). `not_knowable` are sentences: what this input
    cannot tell, and which lines, flag or trace would.
    """

    input: Mapping[str, Any]
    server: Server
    totals: Mapping[str, Any]
    events: Mapping[str, int]
    findings: tuple[Finding, ...]
    ruled_out: tuple[RuledOut, ...] = ()
    not_knowable: tuple[str, ...] = ()
    evidence_text: Mapping[int, str] = field(default_factory=dict)  # line -> raw text (unsanitised, bounded)
    details: Details | None = None

    @property
    def verdict(self) -> Finding | None:
        """The finding of rank 1."""
        return self.findings[0] if self.findings else None
