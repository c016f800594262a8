"""`--format json`: the stable shape of `docs/outputs.md` (`"schema": 1`)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from parser.sanitise import sanitise
from triage.finding import Finding
from triage.report import Report


def render(report: Report) -> str:
    """One JSON object, indented."""
    import json

    return json.dumps(document(report), ensure_ascii=False, indent=1) + "\n"


def document(report: Report) -> dict[str, Any]:
    """The report as plain values; keys are only ever added."""
    server = report.server
    return {
        "schema": 1,
        "input": _clean(dict(report.input)),
        "server": {
            "profile": server.profile,
            "profile_confidence": server.profile_confidence,
            "slots": server.slots,
            "family": server.family,
            "config": _clean(dict(server.config)),
            "evidence": [_clean(asdict(e)) for e in server.evidence],
        },
        "totals": dict(report.totals),
        "events": dict(report.events),
        "findings": [_finding(f) for f in report.findings],
        "ruled_out": [{"mechanism": r.mechanism, "because": r.because} for r in report.ruled_out],
        "not_knowable": list(report.not_knowable),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    proof = finding.counterfactual
    return {
        "mechanism": finding.mechanism,
        "rank": finding.rank,
        "confidence": finding.confidence,
        "grade": finding.grade,
        "role": finding.role,
        "requests": list(finding.requests),
        "lines": list(finding.lines),
        "quantities": _clean(dict(finding.quantities)),
        "explanation": sanitise(finding.explanation),
        "remedy": {"user": finding.remedy_user, "server": finding.remedy_server},
        "upstream": list(finding.upstream),
        "counterfactual": None if proof is None else asdict(proof),
    }


def _clean(value: Any) -> Any:
    """Text of the log made inert, whatever holds it."""
    if isinstance(value, str):
        return sanitise(value)
    if isinstance(value, dict):
        return {sanitise(str(k)): _clean(v) for k, v in value.items()}
    return [_clean(v) for v in value] if isinstance(value, (list, tuple)) else value
