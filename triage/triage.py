"""Triage: a `Reading` (or the segments of a long log) to a `Report`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from parser.reading import Reading
from triage.build import view_of
from triage.details import details_of
from triage.finding import Finding
from triage.hearsay import heard, speaks
from triage.mechanism import Mechanism, Sign
from triage.mechanisms import catalogue
from triage.mechanisms.nothing_to_judge import holds
from triage.ranking import Judged, rank, role
from triage.report import Report
from triage.thresholds import Thresholds
from triage.totals import totals
from triage.unknowns import not_knowable, ruled_out
from triage.view import View


def triage(
    reading: Reading, *, thresholds: Thresholds | None = None, counterfactuals: bool = False
) -> Report:
    """Judge one reading. `counterfactuals` replays what can be replayed (full logs only; costs seconds)."""
    view = view_of(reading, thresholds or Thresholds())
    judged = judge(view)
    return report_of(view, judged, counterfactuals=counterfactuals)


def judge(view: View) -> list[Judged]:
    """All signs of all mechanisms, then what people's own words add where the events show no fault."""
    known = catalogue()
    judged = [Judged(m, sign) for m in known.values() for sign in m.detect(view)]
    if not any(j.alarm for j in judged):
        judged += [Judged(known[name], sign) for name, sign in heard(view, known, view_of)]
    return judged or [Judged(known["nothing-to-judge"], _inconclusive(view))]


def _inconclusive(view: View) -> Sign:
    """Lines that speak about reuse, but too little of it for any verdict."""
    text = f"the lines are too few for a verdict; the input holds {holds(view)}"
    return Sign(text, figures={}, avoidable_tokens=0, confidence=0.6)


def report_of(view: View, judged: Sequence[Judged], *, counterfactuals: bool = False) -> Report:
    """Rank the signs and say what was ruled out and what the input cannot tell."""
    ranked = rank(judged, view.rate)
    since = first_stamps(view)
    findings = tuple(finding_of(j, number, ranked, since) for number, j in enumerate(ranked, start=1))
    if counterfactuals:
        from triage.counterfactual import proven

        findings = proven(findings, view, {j.id: j.mechanism for j in ranked})
    reading = view.reading
    return Report(
        input_of(reading), reading.server, totals(view), dict(reading.counts), findings,
        ruled_out(view, ranked), not_knowable(view, ranked), quoted(view, [line for f in findings for line in f.lines[:24]]), details_of(reading),
    )  # fmt: skip


def first_stamps(view: View) -> dict[int, str]:
    """Line -> stamp of the rare events, as printed."""
    return {e.line: e.stamp for events in view.events.values() for e in events if e.stamp is not None}


def finding_of(judged: Judged, number: int, ranked: Sequence[Judged], since: Mapping[int, str]) -> Finding:
    """A ranked sign as the finding of that rank; `since` are stamps by line."""
    mechanism, sign = judged.mechanism, judged.sign
    quantities = dict(sign.figures)
    quantities["severity"] = sign.severity or mechanism.severity
    stamp = next((since[line] for line in sign.lines if line in since), None)
    if stamp is not None:
        quantities["since"] = stamp
    return Finding(
        mechanism.id,
        number,
        confidence(mechanism, sign),
        role(judged, ranked),
        sign.requests[:200],
        sign.lines[:400],
        quantities,
        sign.explanation,
        mechanism.user,
        mechanism.server,
        mechanism.upstream,
        None,
        sign.grade,
    )


def confidence(mechanism: Mechanism, sign: Sign) -> float:
    """0..1: the sign's own, never above what a merely possible finding or hearsay deserves."""
    cap = {"possible": 0.6, "hearsay": 0.35}.get(sign.grade, 1.0)
    return round(min(sign.confidence, cap), 2)


def input_of(reading: Reading) -> dict[str, Any]:
    """What was read."""
    stamps = reading.stamps
    return {
        "sources": list(reading.sources),
        "kind": reading.kind,
        "runs": len(reading.runs),
        "requests": len(reading.requests),
        "first_stamp": stamps.first,
        "last_stamp": stamps.last,
        "year": stamps.year,
        "hearsay": sum(map(speaks, reading.hearsay)),
    }


def quoted(view: View, lines: Iterable[int]) -> dict[int, str]:
    """Raw text of these lines, as far as the rare events still hold it (for reporters; unsanitised)."""
    wanted = set(lines)
    texts = {e.line: e.text for events in view.events.values() for e in events if e.line in wanted}
    texts.update({e.line: e.text for e in view.engine if e.line in wanted})
    return dict(sorted(texts.items()))


def with_findings(report: Report, findings: Sequence[Finding]) -> Report:
    """The same report with other findings (renumbered by their order)."""
    numbered = tuple(replace(f, rank=n) for n, f in enumerate(findings, start=1))
    return replace(report, findings=numbered)
