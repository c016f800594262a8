"""`--format markdown`: ready for an issue comment; under 65,536 characters, paths and texts redacted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from triage.finding import Finding
from triage.history import TableData
from triage.report import Report
from triage.reporters import words

MOST: Final = 65_000  # an issue comment holds 65,536 characters
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~@!])")


def render(report: Report) -> str:
    """The comment. Whatever comes from the log stands in code spans or fences, or is escaped."""
    text = "\n".join(_parts(report)) + "\n"
    if len(text) <= MOST:
        return text
    return (
        text[: text.rfind("\n", 0, MOST - 200)]
        + "\n```\n\n(cut: the rest is in `ds4scope triage --format json`)\n"
    )


def escape(text: str) -> str:
    """Text that Markdown shows as it is: no emphasis, link, mention, tag or table cell can come of it."""
    escaped = _SPECIAL.sub(r"\\\1", text.replace("&", "&amp;"))
    return escaped.replace("\\@", "@\u200b").replace("://", ":\u200b//").replace("\n", " ")


def code(text: str) -> str:
    """A code span that its own back quotes cannot end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    ticks = "`" * (longest + 1)
    return f"{ticks} {text} {ticks}" if longest else f"`{text}`"


def fence(lines: list[str]) -> list[str]:
    """A fenced block that no line of its own can close."""
    longest = max((len(run) for line in lines for run in re.findall(r"`{3,}", line)), default=2)
    ticks = "`" * max(3, longest + 1)
    return [f"{ticks}text", *lines, ticks]


def _parts(report: Report) -> Iterator[str]:
    verdict = report.verdict
    if verdict is not None:
        yield f"**{verdict.mechanism}** ({verdict.confidence:.0%}): {escape(verdict.explanation)}"
        yield ""
    yield escape(words.cost(report))
    yield ""
    for finding in report.findings:
        yield from _finding(finding, report)
    yield from _picture(report)
    yield from _tables(report)
    yield from _rest(report)


def _finding(finding: Finding, report: Report) -> Iterator[str]:
    yield f"### {finding.rank}. {finding.mechanism} ({words.role(finding)}, {words.how_sure(finding)})"
    yield ""
    yield f"Whose part: {words.part(finding.mechanism)}."
    yield ""
    yield escape(finding.explanation)
    yield ""
    named = words.figures(finding)
    if named:
        yield "; ".join(f"{escape(name)} {escape(text)}" for name, text in named)
        yield ""
    if finding.remedy_user:
        yield f"- **You**: {escape(finding.remedy_user)}"
    if finding.remedy_server:
        issues = ", ".join(f"antirez/ds4#{n}" for n in finding.upstream)
        yield f"- **Server**: {escape(finding.remedy_server)}" + (f" ({issues})" if issues else "")
    if proved := words.proof(finding):
        yield f"- **Proof**: {escape(proved)}"
    yield ""
    yield from _evidence(finding, report)


def _evidence(finding: Finding, report: Report) -> Iterator[str]:
    quoted = words.evidence(finding, report, 12, redacted=True)
    if not quoted:
        return
    yield f"<details><summary>evidence: {len(finding.lines)} lines</summary>"
    yield ""
    yield from fence([f"{line}: {text}" for line, text in quoted])
    yield ""
    yield "</details>"
    yield ""


def _picture(report: Report) -> Iterator[str]:
    if report.details is None or report.details.picture is None:
        return
    yield "<details><summary>slots</summary>"
    yield ""
    yield from fence(report.details.picture.text().splitlines())
    yield ""
    yield "</details>"
    yield ""


def _tables(report: Report) -> Iterator[str]:
    if report.details is None or report.details.drawn_of < 8:
        return
    yield "<details><summary>tables</summary>"
    yield ""
    for table in report.details.tables:
        yield from table_lines(table)
    yield "</details>"
    yield ""


def table_lines(table: TableData) -> Iterator[str]:
    """One Markdown table with its title."""
    yield f"**{escape(table.title)}**"
    yield ""
    yield "| " + " | ".join(escape(name) for name in table.columns) + " |"
    yield "|" + "---|" + "--:|" * (len(table.columns) - 1)
    for row in table.rows:
        yield "| " + " | ".join("-" if value is None else escape(str(value)) for value in row) + " |"
    yield ""


def _rest(report: Report) -> Iterator[str]:
    if report.ruled_out:
        yield "<details><summary>ruled out</summary>"
        yield ""
        yield from (f"- {r.mechanism}: {escape(r.because)}" for r in report.ruled_out)
        yield ""
        yield "</details>"
        yield ""
    if report.not_knowable:
        yield "This input cannot tell:"
        yield ""
        yield from (f"- {escape(text)}" for text in report.not_knowable)
        yield ""
    yield f"Server: {escape(words.flags_seen(report))}"
    digests = report.input.get("sha256") or []
    for digest in digests:
        yield f"Input: sha256 `{digest}`"
    if fidelity := report.input.get("fidelity"):
        yield f"Fidelity of the replay: {escape(str(fidelity))}"
    if reproduction := report.input.get("reproduction"):
        yield ""
        yield "<details><summary>minimal reproduction</summary>"
        yield ""
        yield from reproduction
        yield ""
        yield "</details>"
