"""`--format github`: workflow commands, one annotation a finding."""

from __future__ import annotations

from typing import Final

from parser.sanitise import sanitise
from triage.finding import Finding
from triage.report import Report
from triage.reporters.sarif import CLEAR

_LEVEL: Final = {"critical": "error", "high": "error", "medium": "warning", "low": "notice", "none": "notice"}


def render(report: Report) -> str:
    """`::error file=…,line=…,title=…::text` for each finding that is not an all-clear."""
    source = str(next(iter(report.input.get("sources", ())), ""))
    return "".join(_annotation(f, source) for f in report.findings if f.mechanism not in CLEAR)


def _annotation(finding: Finding, source: str) -> str:
    level = _LEVEL.get(str(finding.quantities.get("severity", "medium")), "warning")
    line = f",line={finding.lines[0]}" if finding.lines else ""
    text = f"{finding.explanation} (you: {finding.remedy_user})"
    return (
        f"::{level} file={_property(source)}{line},title={_property(finding.mechanism)}::{_message(text)}\n"
    )


def _message(text: str) -> str:
    return sanitise(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
