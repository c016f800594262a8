"""`--expect 'METRIC OP NUMBER'` and `--fail-on MECHANISM`: what a CI job holds a log to (exit status 1)."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from parser.errors import UsageError
from triage.mechanisms import catalogue
from triage.report import Report

_FORM = re.compile(r"^\s*([a-z][a-z0-9_]*)\s*(<=|>=|==|<|>)\s*(-?\d+(?:\.\d+)?)\s*$")
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<=": operator.le, "<": operator.lt, "==": operator.eq, ">=": operator.ge, ">": operator.gt,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Expectation:
    """One stated expectation: a key of `totals`, a comparison, a number."""

    metric: str
    comparison: str
    number: float

    @staticmethod
    def parse(text: str) -> Expectation:
        """From `METRIC OP NUMBER`; raises `UsageError`."""
        found = _FORM.match(text)
        if found is None:
            raise UsageError("E-EXPECT", f"no expectation: {text!r}", hint="for instance 'live_misses <= 2'")
        return Expectation(found[1], found[2], float(found[3]))

    def broken_by(self, totals: Mapping[str, Any]) -> str | None:
        """Why it does not hold, or None. A total that the input does not tell breaks it."""
        value = totals.get(self.metric)
        if self.metric not in totals:
            known = ", ".join(k for k, v in totals.items() if isinstance(v, (int, float)))
            raise UsageError("E-EXPECT", f"no such total: {self.metric}", hint=f"the totals are: {known}")
        if not isinstance(value, (int, float)):
            return f"{self.metric} is not known from this input (expected {self.comparison} {self.number:g})"
        holds = _OPERATORS[self.comparison](value, self.number)
        return None if holds else f"{self.metric} is {value:g}, expected {self.comparison} {self.number:g}"


def broken(report: Report, expectations: Iterable[Expectation], fail_on: Iterable[str]) -> list[str]:
    """All expectations and mechanisms that make the run fail, in words."""
    reasons = [why for e in expectations if (why := e.broken_by(report.totals)) is not None]
    found = {f.mechanism for f in report.findings}
    return reasons + [f"{name} was found" for name in fail_on if name in found]


def known_mechanism(name: str) -> str:
    """`name`, if it is a mechanism; raises `UsageError` naming near ones."""
    known = catalogue()
    if name in known:
        return name
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=3)
    raise UsageError(
        "E-MECHANISM", f"no mechanism {name!r}", hint=f"did you mean {', '.join(near or list(known)[:5])}?"
    )
