"""`--format html`: one self-contained page, the slots drawn over time and the findings linked to them.

No script and no network: a content-security policy forbids both, links and `:target` do the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape as _escape
from typing import Final

from parser.sanitise import sanitise
from triage.finding import Finding
from triage.history import TableData
from triage.report import Report
from triage.reporters import words
from triage.reporters.svg import drawing

_LINKED: Final = 60  # requests that one finding links to
_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1b1f24;--dim:#667;--line:#ccd;--bg:#fff;--card:#f6f7f9;--bad:#b3261e;--warn:#9a6700;--ok:#1a7f37}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--dim:#9aa3ad;--line:#39424e;--bg:#111418;--card:#1a1f25;--bad:#ff7b72;--warn:#d9a441;--ok:#56d364}}
body{margin:0 auto;max-width:76rem;padding:1.5rem;font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--bg)}
h1{font-size:1.5rem;margin:0 0 .3rem}h2{font-size:1.15rem;margin:2rem 0 .6rem}.dim{color:var(--dim)}
.card{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.8rem 1rem;margin:.8rem 0}
.card h3{margin:0 0 .3rem;font-size:1.05rem}.card h3 .dim{font-weight:400}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:.5rem;background:var(--card)}
pre{overflow-x:auto;font:13px/1.45 ui-monospace,monospace;margin:.5rem 0}table{border-collapse:collapse;margin:.6rem 0;font-variant-numeric:tabular-nums}
td,th{padding:.15rem .7rem;border-bottom:1px solid var(--line);text-align:right}td:first-child,th:first-child{text-align:left}
dl{margin:.4rem 0}dl div{display:flex;gap:.8rem;break-inside:avoid}dt{color:var(--dim);min-width:4rem}dd{margin:0}.figures{columns:17rem;font-size:.9rem}.figures div{justify-content:space-between;padding-right:1.5rem}
svg text{fill:var(--ink);font:11px system-ui,sans-serif}svg .axis{stroke:var(--line)}svg .lost{fill:var(--bad)}svg .restored{fill:var(--warn)}
svg g:target rect{stroke:var(--bad);stroke-width:3}svg g:hover rect{stroke:var(--ink);stroke-width:1.5}svg .kept{opacity:.18}svg .decode{opacity:.55}svg .unsure{stroke:var(--dim);stroke-dasharray:3 2}
"""


def render(report: Report) -> str:
    """The page; every text of the log is sanitised and escaped, paths and names in evidence are replaced."""
    return "\n".join(_page(report)) + "\n"


def text(value: object) -> str:
    """Text that HTML shows as it is."""
    return _escape(sanitise(str(value)), quote=True)


def _page(report: Report) -> Iterator[str]:
    verdict = report.verdict
    title = verdict.mechanism if verdict else "nothing-to-judge"
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<title>ds4scope: {text(title)}</title><style>{_STYLE}</style></head><body>"
    yield f"<h1>{text(title)}</h1>"
    if verdict:
        yield f"<p>{text(verdict.explanation)}</p>"
    yield f'<p class="dim">{text(words.cost(report))}</p>'
    yield from _timeline(report)
    yield "<h2>Findings</h2>"
    for finding in report.findings:
        yield from _finding(finding, report)
    yield from _tables(report)
    yield from _rest(report)
    yield "</body></html>"


def _timeline(report: Report) -> Iterator[str]:
    if report.details is None or not report.details.bars:
        return
    yield "<h2>Slots over time</h2>"
    yield f'<div class="scroll">{drawing(report.details)}</div>'
    yield (
        '<p class="dim">Solid: prefill. Lighter: decode. Faint: kept in the slot. Red mark: live state missed and lost; '
        "amber: missed and restored from disk. A letter is a conversation. A dashed edge: the slot is not certain.</p>"
    )


def _finding(finding: Finding, report: Report) -> Iterator[str]:
    grade = f"{words.role(finding)}, {words.how_sure(finding)}"
    yield f'<section class="card" id="f{finding.rank}">'
    yield f'<h3>{finding.rank}. {text(finding.mechanism)} <span class="dim">({text(grade)})</span></h3>'
    yield f"<p>{text(finding.explanation)}</p>"
    remedies = (
        ("part", words.part(finding.mechanism)),
        ("you", finding.remedy_user),
        ("server", finding.remedy_server),
        ("proof", words.proof(finding)),
    )
    yield from _pairs("", remedies)
    yield from _pairs(' class="figures"', words.figures(finding))
    yield from _links(finding, report)
    quoted = words.evidence(finding, report, 12, redacted=True)
    if quoted:
        yield "<pre>" + "\n".join(f"{line:>6}  {text(said)}" for line, said in quoted) + "</pre>"
    yield "</section>"


def _pairs(kind: str, pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    rows = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in pairs if value
    )
    if rows:
        yield f"<dl{kind}>{rows}</dl>"


def _links(finding: Finding, report: Report) -> Iterator[str]:
    drawn = {bar.request for bar in report.details.bars} if report.details else set()
    shown = [r for r in finding.requests if r in drawn][:_LINKED]
    if shown:
        yield "<p>requests " + " ".join(f'<a href="#r{r}">{r}</a>' for r in shown) + "</p>"
    if finding.upstream:
        issues = ", ".join(
            f'<a href="{words.UPSTREAM}{n}" rel="noreferrer">#{n}</a>' for n in finding.upstream
        )
        yield f'<p class="dim">upstream {issues}</p>'


def _tables(report: Report) -> Iterator[str]:
    if report.details is None:
        return
    yield "<h2>Tables</h2>"
    for table in report.details.tables:
        yield from _table(table)


def _table(table: TableData) -> Iterator[str]:
    yield (
        f"<h3>{text(table.title)}</h3><table><tr>"
        + "".join(f"<th>{text(c)}</th>" for c in table.columns)
        + "</tr>"
    )
    for row in table.rows:
        yield "<tr>" + "".join(f"<td>{_cell(v)}</td>" for v in row) + "</tr>"
    yield "</table>"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else text(value)


def _rest(report: Report) -> Iterator[str]:
    if report.ruled_out:
        yield "<h2>Ruled out</h2><ul>"
        yield from (f"<li>{text(r.mechanism)}: {text(r.because)}</li>" for r in report.ruled_out)
        yield "</ul>"
    if report.not_knowable:
        yield "<h2>What this input cannot tell</h2><ul>"
        yield from (f"<li>{text(said)}</li>" for said in report.not_knowable)
        yield "</ul>"
    yield f'<p class="dim">Server: {text(words.flags_seen(report))}</p>'
    for digest in report.input.get("sha256") or ():
        yield f'<p class="dim">Input: sha256 {text(digest)}</p>'
    if fidelity := report.input.get("fidelity"):
        yield f'<p class="dim">Fidelity of the replay: {text(fidelity)}</p>'
