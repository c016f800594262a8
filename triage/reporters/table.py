"""The text for a person: verdict first, then cost, evidence and remedy of each finding."""

from __future__ import annotations

from parser.sanitise import sanitise
from triage.finding import Finding
from triage.report import Report


def render(report: Report) -> str:
    """Plain text, no colour, every log byte sanitised."""
    lines = [*_head(report), ""]
    for finding in report.findings:
        lines += _finding(finding, report)
    if report.ruled_out:
        lines.append("Ruled out:")
        lines += [f"  {r.mechanism}: {r.because}" for r in report.ruled_out]
    if report.not_knowable:
        lines.append("This input cannot tell:")
        lines += [f"  {text}" for text in report.not_knowable]
    return "\n".join(sanitise(line) for line in lines) + "\n"


def _head(report: Report) -> list[str]:
    totals = report.totals
    verdict = report.verdict
    return [
        f"{verdict.mechanism if verdict else 'nothing-to-judge'}: {verdict.explanation if verdict else ''}",
        f"{totals['requests']} requests, {totals['live_misses']} misses; {totals['prefilled_tokens']} tokens prefilled, "
        f"{totals['reused_tokens']} reused, {totals['lost_to_cache_tokens']} lost to the cache, "
        f"{totals['changed_text_tokens']} changed text",
    ]


def _finding(finding: Finding, report: Report) -> list[str]:
    out = [f"{finding.rank}. {finding.mechanism} ({finding.role}, {finding.confidence:.0%}, {finding.grade})"]
    out.append(f"   {finding.explanation}")
    figures = {
        k: v for k, v in finding.quantities.items() if isinstance(v, (int, float)) and not isinstance(v, bool)
    }
    out.append(
        "   "
        + ", ".join(
            f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in list(figures.items())[:10]
        )
    )
    out += [
        f"   {n}: {report.evidence_text[n][:160]}" for n in finding.lines[:4] if n in report.evidence_text
    ]
    out.append(f"   you: {finding.remedy_user}")
    out.append(
        f"   server: {finding.remedy_server}"
        + (f" (#{', #'.join(map(str, finding.upstream))})" if finding.upstream else "")
    )
    return [*out, ""]
