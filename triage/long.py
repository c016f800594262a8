"""Inputs of any length: a report or a short log is judged whole, a long log segment by segment and merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parser.reading import read
from triage.report import Report
from triage.thresholds import Thresholds
from triage.triage import triage


def triage_inputs(
    inputs: Sequence[str], *, thresholds: Thresholds | None = None, counterfactuals: bool = False, **options: Any
) -> Report:
    """Triage of files, `-` or a directory; `options` are those of `parser.reading.read`."""
    return triage(read(inputs, **options), thresholds=thresholds, counterfactuals=counterfactuals)
