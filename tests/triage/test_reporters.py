"""Reports in every format: what they show, and that hostile text of a log stays inert in each."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pyte
import pytest

from parser.reading import read
from triage.finding import Counterfactual
from triage.reporters import FORMATS, renderer
from triage.reporters.words import cost, how_sure, proof
from triage.triage import triage

ROOT = Path(__file__).parents[2]
STEAL = ROOT / "fixtures/captures/a-steal-sequential-1k/server.log"

#: model text, paths and errors that try to be a terminal command, a tag, a link, a mention, a formula
HOSTILE = "\x1b[2J\x1b]0;owned\x07<script>alert(1)</script> [x](javascript:alert(1)) @everyone `|` =cmd|' /C calc'!A0 \u202e\u2028```\n"
LOG = f"""1130 10:00:00 ds4-server: KV disk cache /kv/{HOSTILE.strip()} (budget=8192 MiB, cross-quant=accept, min=512, cold_max=30000, continued=10000, trim=32, align=2048, hit_half_life=21600s)
1130 10:00:00 ds4-server: live kv cache miss live=10960 prompt=10907 common=10907 reason=token-mismatch
1130 10:00:00 ds4-server: kv cache hit text tokens=10707 text=59711 quant=2 key=token-text load=47.5 ms file=/home/{HOSTILE.strip()}.kv
1130 10:00:00 ds4-server: kv cache store failed (evict): {HOSTILE.strip()} save=1.0 ms
1130 10:00:00 ds4-server: chat ctx=0..10907:10907 prompt start
1130 10:00:09 ds4-server: chat ctx=0..10907:10907 gen=3 finish=error error="{HOSTILE}" 9.000s
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "server.log"
    path.write_text(LOG, encoding="utf-8", newline="")
    return triage(read([str(path)]))


@pytest.fixture(scope="module")
def steal():
    return triage(read([str(STEAL)]))


@pytest.mark.parametrize("name", FORMATS)
def test_no_control_or_bidi_character_in_any_format(hostile, name):
    text = renderer(name)(hostile)
    assert text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]", text)


@pytest.mark.parametrize("name", FORMATS)
def test_a_terminal_shows_the_text_and_obeys_nothing(hostile, name):
    screen = pyte.Screen(200, 400)
    screen.set_title("before")
    pyte.Stream(screen).feed(renderer(name)(hostile).replace("\n", "\r\n"))
    assert screen.title == "before"


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.links = set(), set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.links |= {value for name, value in attrs if name in ("href", "src", "onload", "onclick")}


def test_html_holds_no_script_and_reaches_no_network(hostile, steal):
    for report in (hostile, steal):
        page = renderer("html")(report)
        tags = Tags()
        tags.feed(page)
        assert not tags.tags & {"script", "iframe", "img", "link", "object", "form"}
        assert all(link.startswith(("#", "https://github.com/antirez/ds4/issues/")) for link in tags.links)
        assert "default-src 'none'" in page


def test_html_links_findings_to_requests_that_are_drawn(steal):
    page = renderer("html")(steal)
    drawn = set(re.findall(r'<g id="r(\d+)"', page))
    linked = set(re.findall(r'<a href="#r(\d+)"', page))
    assert linked and linked <= drawn
    assert len(drawn) == len(steal.details.bars) == 16


def test_markdown_is_short_redacted_and_cannot_mention_or_link(hostile):
    text = renderer("markdown")(hostile)
    assert len(text) < 65_536
    assert "<script" not in text and "/home/" not in text
    prose = re.sub(r"(?ms)^(`{3,})text$.*?^\1$", "", text)  # what stands outside fences
    assert not re.search(r"(?<!\\)\[x\]", prose) and not re.search(r"@\w", prose)


def test_markdown_fences_cannot_be_closed_from_inside():
    from triage.reporters.markdown import code, fence

    assert fence(["```", "````"])[0] == "`````text"
    assert code("a ``b`` c") == "``` a ``b`` c ```"


def test_markdown_names_build_digest_evidence_and_upstream(steal):
    text = renderer("markdown")(steal)
    assert text.startswith("**slot-steal-shared-prefix**")
    assert "antirez/ds4#1069" in text and "ds4-2026-08" in text and "evidence:" in text and "slot 0" in text


def test_sarif_has_one_result_a_finding_with_places(steal):
    log = json.loads(renderer("sarif")(steal))
    results = log["runs"][0]["results"]
    assert log["version"] == "2.1.0"
    assert [r["ruleId"] for r in results] == [f.mechanism for f in steal.findings]
    assert results[0]["locations"][0]["physicalLocation"]["region"]["startLine"] == steal.findings[0].lines[0]


def test_sarif_and_github_say_nothing_of_a_healthy_log():
    report = triage(read([str(ROOT / "fixtures/captures/b-steal-after-overlap-11k/server.log")]))
    assert report.findings[0].mechanism == "healthy"
    assert json.loads(renderer("sarif")(report))["runs"][0]["results"] == []
    assert renderer("github")(report) == ""


def test_github_annotations_are_one_line_each(hostile):
    lines = renderer("github")(hostile).splitlines()
    assert lines and all(
        re.match(r"::(error|warning|notice) file=[^:]*,title=[\w-]+::", line) for line in lines
    )


def test_tables_are_the_same_bytes_each_time(steal):
    again = triage(read([str(STEAL)]))
    assert renderer("tables")(steal) == renderer("tables")(again)


def test_tables_count_what_the_log_holds(steal):
    tables = {table.title: table.rows for table in steal.details.tables}
    assert sum(row[1] for row in tables["prompt runs"]) == 16
    assert [(row[0], row[1]) for row in tables["misses by reason"]] == [("token-mismatch", 15)]
    stores = STEAL.read_text().count("kv cache stored")
    assert sum(row[1] for row in tables["stores by reason"]) == stores


def test_picture_shows_both_slots_in_use_after_an_overlap(steal):
    overlap = triage(read([str(ROOT / "fixtures/captures/b-steal-after-overlap-1k/server.log")]))
    assert len(overlap.details.picture.lanes) == 2
    assert len(steal.details.picture.lanes) == 1  # the other slot never works
    assert "r" in steal.details.picture.marks and "x" not in overlap.details.picture.marks


# -- the words of all reports ----------------------------------------------------------------------------


def test_what_no_line_shows_is_not_said_to_be_zero():
    """Misses alone do not tell what was prefilled."""
    report = triage(read([str(ROOT / "fixtures/seeds/slot-steal.md")]))

    assert (report.totals["prefilled_tokens"], report.totals["prefill_known_for"]) == (None, 0)
    assert "do not tell how many tokens were prefilled" in cost(report)
    days = next(table for table in report.details.tables if table.title == "by day")
    assert days.rows == (("not known", 2, 2, None, None, None, None),)


@pytest.mark.parametrize("name", ["table", "markdown", "html"])
def test_whose_part_and_how_sure_stand_in_every_report_for_people(steal, name):
    said = renderer(name)(steal)
    assert "server policy" in said and how_sure(steal.findings[0]) in said


def test_a_remedy_that_the_replay_refutes_is_not_said_to_save():
    finding = triage(read([str(STEAL)])).findings[0]
    refuted = Counterfactual("a larger step", -10_240, -3.4, (-10_240, -10_240), (-3.5, -3.4))

    assert proof(replace(finding, counterfactual=refuted)) == (
        "replayed (a larger step): does not help here, costs 10,240 tokens of prefill, 3.4 s of waiting (3.4 to 3.5)"
    )


def test_an_excerpt_says_why_nothing_was_replayed_and_which_options_only_people_name():
    said = renderer("table")(triage(read([str(ROOT / "fixtures/seeds/slot-steal.md")]), counterfactuals=True))
    assert "not replayed: an excerpt" in said
    assert "batched_session=2" in said.partition("people say, no log line does:")[2]


def test_one_line_is_not_said_to_be_lines(tmp_path):
    path = tmp_path / "one.log"
    path.write_text("1130 10:00:00 ds4-server: listening on http://127.0.0.1:8000\nwhat now\n")
    assert (
        "it holds 1 start line, 1 line of other programs or prose"
        in triage(read([str(path)])).findings[0].explanation
    )
