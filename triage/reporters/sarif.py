"""`--format sarif`: SARIF 2.1.0, one result a finding, for code-scanning views."""

from __future__ import annotations

from typing import Any, Final

from parser.sanitise import sanitise
from triage.finding import Finding
from triage.report import Report

#: verdicts that are no finding for a code scanner
CLEAR: Final = frozenset({"healthy", "nothing-to-judge"})
_LEVEL: Final = {"critical": "error", "high": "error", "medium": "warning", "low": "note", "none": "none"}
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def render(report: Report) -> str:
    """One SARIF log with one run."""
    import json

    findings = [f for f in report.findings if f.mechanism not in CLEAR]
    return (
        json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [_run(report, findings)]}, indent=1)
        + "\n"
    )


def _run(report: Report, findings: list[Finding]) -> dict[str, Any]:
    from triage.mechanisms import catalogue

    known = catalogue()
    rules = [
        {
            "id": f.mechanism,
            "shortDescription": {"text": known[f.mechanism].title if f.mechanism in known else f.mechanism},
        }
        for f in findings
    ]
    source = str(next(iter(report.input.get("sources", ())), "-"))
    return {
        "tool": {"driver": {"name": "ds4scope", "rules": rules}},
        "results": [_result(f, number, source) for number, f in enumerate(findings)],
    }


def _result(finding: Finding, rule: int, source: str) -> dict[str, Any]:
    return {
        "ruleId": finding.mechanism,
        "ruleIndex": rule,
        "level": _LEVEL.get(str(finding.quantities.get("severity", "medium")), "warning"),
        "rank": round(100 * finding.confidence, 1),
        "message": {
            "text": sanitise(
                f"{finding.explanation}. You: {finding.remedy_user}. Server: {finding.remedy_server}."
            )
        },
        "locations": [_location(source, line) for line in finding.lines[:10]],
        "properties": {"role": finding.role, "grade": finding.grade, "upstream": list(finding.upstream)},
    }


def _location(source: str, line: int) -> dict[str, Any]:
    from urllib.parse import quote

    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(source, errors="surrogateescape")},
            "region": {"startLine": line},
        }
    }
