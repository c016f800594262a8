"""The findings of `triage`, linked to requests: which rows a finding names, which finding names a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from parser.sanitise import sanitise
from triage.finding import Finding
from triage.reporters import words
from tui.words import Line, cut, requests_words, seconds

_QUIET = ("healthy", "nothing-to-judge")


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings in order of rank, each with the rows of its requests. `state` says what is known of them:
    "none yet", "working", "done", or why there are none."""

    found: tuple[Finding, ...] = ()
    places: tuple[tuple[int, ...], ...] = ()
    state: str = "none yet"
    by_row: dict[int, int] = field(default_factory=dict)

    @staticmethod
    def of(found: Sequence[Finding], row_of: Callable[[int], int | None]) -> Findings:
        """Link findings to rows; `row_of` maps `Request.request` to a row."""
        places = tuple(
            tuple(sorted(row for number in finding.requests if (row := row_of(number)) is not None))
            for finding in found
        )
        by_row: dict[int, int] = {}
        for number, rows in enumerate(places):
            for row in rows:
                by_row.setdefault(row, number)
        return Findings(tuple(found), places, "done", by_row)

    def rows(self, number: int) -> Sequence[int]:
        """Rows of the requests that finding `number` names."""
        return self.places[number] if 0 <= number < len(self.places) else ()

    def at_row(self, row: int | None) -> int | None:
        """The first finding that names this row."""
        return None if row is None else self.by_row.get(row)

    def mechanisms(self) -> dict[str, Sequence[int]]:
        """mechanism -> rows, for the filter."""
        found: dict[str, list[int]] = {}
        for finding, rows in zip(self.found, self.places, strict=True):
            found.setdefault(finding.mechanism, []).extend(rows)
        return {name: sorted(set(rows)) for name, rows in found.items()}

    def all_rows(self) -> list[int]:
        """Rows that some finding other than "healthy" names."""
        pairs = zip(self.found, self.places, strict=True)
        return sorted({row for finding, rows in pairs if finding.mechanism not in _QUIET for row in rows})

    def headline(self) -> str:
        """The first finding in one sentence; empty where there is none."""
        if not self.found:
            return ""
        first = self.found[0]
        sentence = sanitise(first.explanation).split(". ")[0]
        return sentence or first.mechanism

    def entries(self) -> list[list[Line]]:
        """One entry a finding for the list; a single line saying why where there are none."""
        if not self.found:
            return [[[(self.state, "dim")]]]
        return [_entry(finding, len(rows)) for finding, rows in zip(self.found, self.places, strict=True)]


def _entry(finding: Finding, requests: int) -> list[Line]:
    role = "restore" if finding.mechanism in _QUIET else "evict"
    sure = f"{finding.confidence:.0%} sure · {finding.grade} · {requests_words(requests)}"
    lines: list[Line] = [
        [(f"{finding.rank}. {finding.mechanism}", role), (f"  {words.role(finding)} · {sure}", "dim")]
    ]
    lines.append([(cut(sanitise(finding.explanation), 400), "plain")])
    remedy = finding.remedy_user or finding.remedy_server
    lines += [[("→ " + cut(sanitise(remedy), 300), "dim")]] if remedy else []
    return lines + _proof(finding)


def _proof(finding: Finding) -> list[Line]:
    proof = finding.counterfactual
    if proof is None:
        return []
    tokens = f"{proof.tokens_saved:,} tokens" if proof.tokens_saved is not None else ""
    time = seconds(proof.seconds_saved) if proof.seconds_saved is not None else ""
    saved = " and ".join(part for part in (tokens, time) if part)
    return [[(f"under {proof.profile}: {saved or 'nothing measurable'} saved", "restore")]]
