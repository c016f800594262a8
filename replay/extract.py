"""Reading -> Workload: what the clients asked, from the log alone (`docs/workload.md`).

Nothing that the server decided goes into it: which slot, what was reused, what was stored is only evidence
here for which prompts share how much, and when they came.
"""

from __future__ import annotations

from parser.reading import Reading
from replay.defaults import Defaults
from replay.evidence import Evidence, gather
from replay.prefixes import Solution, grow, solve
from replay.strings import canonical, live
from replay.weave import Woven, weave


def _solved(evidence: Evidence) -> tuple[Solution, Defaults]:
    defaults = Defaults(evidence, grow(evidence.lengths, evidence.agreed))
    guesses = defaults.run()
    return solve(evidence.lengths, evidence.agreed, evidence.parted, [*evidence.guesses, *guesses]), defaults


def _names(evidence: Evidence) -> list[str]:
    """Names of the own parts of all strings: p for prompts, r for replies, v for replies as sent back."""
    return [f"{kind}{request.request}" for request in evidence.requests for kind in "prv"]


def relations(reading: Reading) -> tuple[Evidence, Solution, Defaults, Woven]:
    evidence = gather(reading)
    solution, defaults = _solved(evidence)
    return evidence, solution, defaults, weave(solution.tree, _names(evidence))
