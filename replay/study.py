"""A study: one workload (from a log, or from a file) and what servers make of it.

study = study_of(reading)
study.observed                      # what the log says happened, or None
study.run()                         # the same under the model of the build that wrote the log
study.run(server="ds4-2026-09-reuse", slots=3)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from parser.reading import Reading
from replay.compare import Comparison, compare
from replay.config import ServerConfig
from replay.configure import as_json, configs_of
from replay.costs import FittedCosts
from replay.decisions import Decision
from replay.extract import Extraction, extract
from replay.observed import observed
from replay.outcome import Outcome
from replay.prologue import without_assumed
from replay.server import replay
from replay.workload import Workload


@dataclass
class Study:
    """`reading` and `extraction` are None for a workload file; costs may be declared in part."""

    workload: Workload
    costs: FittedCosts
    reading: Reading | None = None
    extraction: Extraction | None = None

    @cached_property
    def observed(self) -> Outcome | None:
        """What the log says the server did."""
        if self.reading is None or self.extraction is None:
            return None
        return observed(self.reading, self.extraction.arrivals)

    def configs(self, **options: Any) -> list[ServerConfig]:
        """The configuration of each server process (see `replay.configure`)."""
        return configs_of(self.reading, options, self.workload)

    def run(self, log: list[Decision] | None = None, **options: Any) -> Outcome:
        """What the server model makes of the workload; `log` receives every decision."""
        outcome = replay(self.workload, self.configs(**options), self.costs, log)
        if self.extraction is not None:
            outcome = without_assumed(outcome, self.extraction.assumed)
        return outcome

    def fidelity(self, predicted: Outcome, **options: Any) -> Comparison | None:
        """How far a replay (under `options`) reproduces the log, request by request, with the causes of what
        differs."""
        from replay.causes import OTHER_RULES, Causes

        if self.observed is None or self.reading is None or self.extraction is None:
            return None
        causes = Causes(self.reading, self.extraction, predicted)
        return compare(
            self.observed,
            predicted,
            why=(lambda before, after, field: OTHER_RULES) if self.other_rules(**options) else causes.why,
            sure_slot=causes.sure_slot,
            run_of=causes.run_of,
        )

    def other_rules(self, **options: Any) -> bool:
        """`options` ask for another server than the one of the log."""
        return [*map(as_json, self.configs(**options))] != [*map(as_json, self.configs())]


def study_of(reading: Reading, declared: Mapping[str, Any] | None = None) -> Study:
    """A study of a log; `declared` are figures that replace fitted ones (`replay.costs.declare`)."""
    from replay.costs import declare

    extraction = extract(reading)
    costs = declare(extraction.costs, **(declared or {}))
    return Study(extraction.workload, costs, reading, extraction)


def study_of_workload(workload: Workload, declared: Mapping[str, Any] | None = None) -> Study:
    """A study of a workload file: no log, so costs are declared ones or those of the reference machine."""
    from replay.costs import declare

    return Study(workload, declare(FittedCosts(), **(declared or {})))


def scaled(workload: Workload, factor: float) -> Workload:
    """The same requests with think times and arrivals `factor` times as long."""
    requests = [
        replace(
            asked,
            think_s=asked.think_s * factor,
            arrival_s=None if asked.arrival_s is None else asked.arrival_s * factor,
        )
        for asked in workload.requests
    ]
    return replace(workload, requests=tuple(requests))
