"""A long log is skimmed: by the numbers of its lines alone, a skim says what the full reading says."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from parser import inputs, skim
from parser.reading import Asked
from triage import long

ROOT = Path(__file__).parents[2]
CAPTURES = sorted((ROOT / "fixtures" / "captures").glob("**/server.log"))
#: a request of which no line tells in which slot it was: the full reading weighs the slots, a skim does not
UNSETTLED = {("j-errors", "by conversation")}


def name(log: Path) -> str:
    return log.parent.relative_to(ROOT / "fixtures" / "captures").as_posix()


@pytest.fixture
def both(monkeypatch):
    """`both(log)` -> (report of the full reading, report of the skim)."""

    def run(log: Path):
        monkeypatch.setattr(inputs, "LONG", sys.maxsize)
        full = long.triage_inputs([str(log)])
        monkeypatch.setattr(inputs, "LONG", -1)
        return full, long.triage_inputs([str(log)])

    return run


def said(report, log: str) -> dict:
    """Totals, events, findings and tables; a costly request only by its line."""
    tables = {t.title: t.rows for t in report.details.tables if (log, t.title) not in UNSETTLED}
    return {
        "totals": report.totals,
        "events": report.events,
        "findings": [f.mechanism for f in report.findings],
        "tables": tables,
    }


@pytest.mark.parametrize("log", CAPTURES, ids=name)
def test_a_skim_says_what_the_full_reading_says(log, both):
    full, skimmed = both(log)
    assert said(skimmed, name(log)) == said(full, name(log))


@pytest.fixture(scope="module")
def months(tmp_path_factory):
    """Many server runs one after the other: the captures as one log."""
    path = tmp_path_factory.mktemp("months") / "server.log"
    settled = [log for log in CAPTURES if not any(name(log) == one for one, _ in UNSETTLED)]
    path.write_text("".join(log.read_text() for log in settled[:12]))
    return path


def test_many_runs_in_one_log(months, both):
    full, skimmed = both(months)
    assert said(skimmed, "months") == said(full, "months")


def test_stretches_give_the_same_requests_as_one_piece(months):
    """Requests that are open where a stretch ends, and lines before their start, come with the next one."""
    asked = Asked((str(months),))
    whole = [r for s in skim.skim_segments(asked, 1 << 30) for r in s.reading.requests]
    (block,) = inputs.Inputs(asked).blocks()
    cuts = [0, 301, 777, 1_500, 1 << 40]
    skimmer = skim.Skimmer()
    parts = [block.between(a, b) for a, b in pairwise(cuts)]
    cut = [(skimmer.read(part, ["server.log"], final=part is parts[-1])) for part in parts]
    requests = [r for reading, _ in cut for r in reading.requests]
    assert sorted(r.prompt_line for r in requests) == [r.prompt_line for r in whole]
    by_line = {r.prompt_line: r for r in requests}
    for request in whole:
        same = by_line[request.prompt_line]
        assert (same.prefill_s, same.generated_tokens, same.common, same.lines) == (
            request.prefill_s, request.generated_tokens, request.common, request.lines,
        )  # fmt: skip
    for reading, rare in cut:
        mine = {seq for r in reading.requests for seq in r.events}
        later = {seq for other, _ in cut if other is not reading for r in other.requests for seq in r.events}
        assert not {e.seq for e in rare} & later - mine


def test_a_skim_says_that_it_is_one(months, both):
    full, skimmed = both(months)
    assert any("skimmed" in text for text in skimmed.not_knowable)
    assert not any("skimmed" in text for text in full.not_knowable)


def test_a_part_of_a_long_log_is_read_line_by_line(months, monkeypatch):
    monkeypatch.setattr(inputs, "LONG", 1000)
    assert inputs.is_long_log(Asked((str(months),)))
    assert not inputs.is_long_log(Asked((str(months),), since="0101 11:00:00"))
    assert not inputs.is_long_log(Asked((str(months),), traces=("trace.txt",)))
    assert not inputs.is_long_log(Asked(("-",)))
