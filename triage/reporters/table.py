"""The text for a person: verdict, whose part, cost, remedy, proof, evidence, the slots; then the rest, short."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from textwrap import wrap
from typing import Final

from parser.sanitise import sanitise
from triage.finding import Finding
from triage.report import Report
from triage.reporters import words

_INDENT: Final = 10
_QUOTED: Final = 6
_BOLD, _DIM, _RED, _GREEN, _YELLOW, _OFF = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
_CLEAR: Final = frozenset(
    {"healthy", "nothing-to-judge", "slow-but-right", "unrelated-prompt", "budget-eviction"}
)


def render(report: Report) -> str:
    """Text as wide as the terminal (100 columns elsewhere), in colour on a terminal only (`NO_COLOR` is kept)."""
    return text(report, colour=_colour(), width=_width())


def text(report: Report, *, colour: bool = False, width: int = 100) -> str:
    """The report as text; every byte of the log is sanitised before colour is put around it."""
    lines = list(_lines(report, width))
    if not colour:
        return "".join(f"{said}\n" for _, said in lines)
    return "".join(f"{style}{said}{_OFF}\n" if style else f"{said}\n" for style, said in lines)


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _width() -> int:
    return max(60, min(140, shutil.get_terminal_size((100, 24)).columns)) if sys.stdout.isatty() else 100


def _lines(report: Report, width: int) -> Iterator[tuple[str, str]]:
    if report.verdict is not None:
        yield from _verdict(report.verdict, report, width)
    if report.details is not None and report.details.picture is not None:
        yield from (("", line) for line in report.details.picture.text().splitlines())
        yield "", ""
    for finding in report.findings[1:]:
        yield from _further(finding, report, width)
    yield from _listed("ruled out", [f"{r.mechanism}: {r.because}" for r in report.ruled_out], width)
    yield from _listed("not told", list(report.not_knowable), width)
    yield from ((_DIM, line) for line in _labelled("server", words.flags_seen(report), width))


def _verdict(finding: Finding, report: Report, width: int) -> Iterator[tuple[str, str]]:
    style = _GREEN if finding.mechanism in _CLEAR else _RED
    yield _BOLD + style, f"{finding.mechanism}  ({words.how_sure(finding)})"
    yield from (("", line) for line in _plain(finding.explanation, width))
    yield "", ""
    yield from _labels(finding, report, width)
    yield "", ""
    yield from _evidence(finding, report, width)


def _labels(finding: Finding, report: Report, width: int) -> Iterator[tuple[str, str]]:
    pairs = [("part", words.part(finding.mechanism)), ("cost", words.cost(report))]
    pairs += [("figures", "; ".join(f"{name} {value}" for name, value in words.figures(finding)))]
    pairs += [("you", finding.remedy_user), ("server", _server(finding)), ("proof", words.proof(finding))]
    for name, said in pairs:
        if said:
            yield from (("", line) for line in _labelled(name, said, width))


def _server(finding: Finding) -> str:
    issues = f" ({', '.join(f'#{n}' for n in finding.upstream)})" if finding.upstream else ""
    return f"{finding.remedy_server}{issues}" if finding.remedy_server else ""


def _evidence(finding: Finding, report: Report, width: int) -> Iterator[tuple[str, str]]:
    quoted = words.evidence(finding, report, _QUOTED, redacted=False)
    for line, said in quoted:
        yield _DIM, f"{line:>8}  {said}"[:width]
    if len(finding.lines) > len(quoted) > 0:
        yield (
            _DIM,
            f"{'':8}  … {len(finding.lines) - len(quoted)} more lines of evidence (--format json lists them)",
        )
    if quoted:
        yield "", ""


def _further(finding: Finding, report: Report, width: int) -> Iterator[tuple[str, str]]:
    style = "" if finding.mechanism in _CLEAR else _YELLOW
    yield (
        style,
        f"{finding.rank}. {finding.mechanism}  ({words.role(finding)}, {finding.confidence:.0%} sure)",
    )
    for name, said in (
        ("", finding.explanation),
        ("you", finding.remedy_user),
        ("proof", words.proof(finding)),
    ):
        if said:
            yield from (("", line) for line in _labelled(name, said, width))
    for line, said in words.evidence(finding, report, 2, redacted=False):
        yield _DIM, f"{line:>8}  {said}"[:width]
    yield "", ""


def _listed(name: str, items: list[str], width: int) -> Iterator[tuple[str, str]]:
    for number, item in enumerate(items):
        yield from ((_DIM, line) for line in _labelled(name if number == 0 else "", item, width))


def _labelled(name: str, said: str, width: int) -> list[str]:
    parts = wrap(sanitise(said), width - _INDENT, break_long_words=True) or [""]
    return [f"{name if n == 0 else '':<{_INDENT}}{part}" for n, part in enumerate(parts)]


def _plain(said: str, width: int) -> list[str]:
    return wrap(sanitise(said), width) or [""]
