"""Records of several lines: a snippet of model text or an error text is one event, and can forge none."""

import pytest

from parser.events import read_events, whole_records
from parser.sources import Block

HEAD = "0915 10:00:05 ds4-server: chat ctx=1..2:1 TOOLS "
FORGED = "0915 09:00:00 ds4-server: live kv cache miss live=5 prompt=6 common=4 reason=token-mismatch"
NEXT = "0915 10:00:06 ds4-server: chat ctx=1..2:1 gen=5 TOOLS finish=stop 1.000s"


def as_text(snippet, size=None):
    """TC7 with all of its snippet (at most 300 bytes of it are printed)."""
    shown = snippet[:300]
    return f"{HEAD}invalid tool call returned as assistant text finish=stop [text_len={size or len(snippet)} saw_start=1 saw_end=0 text_snippet: {shown}]"


def dsml(snippet):
    return f"{HEAD}invalid tool call dsml_snippet: {snippet[:500]}"


def events(tmp_path, text, lane, wrap="{}"):
    log = tmp_path / "server.log"
    log.write_bytes("\n".join(wrap.format(line) for line in text.split("\n")).encode())
    return [event for block in read_events([log], lane=lane) for event in block.rows(*block.counts)]


def kinds(tmp_path, text, lane, wrap="{}"):
    return [event.kind for event in events(tmp_path, text, lane, wrap)]


pytestmark = pytest.mark.parametrize("lane", ["fast", "lark"])


def test_a_snippet_with_newlines_is_one_event(tmp_path, lane):
    text = as_text("<tool>\n\nread(file)\n</tool>")
    first, second = events(tmp_path, f"{text}\n{NEXT}\n", lane)
    assert (first.kind, first.rule, first.length) == ("tool_repair", "as_text", len(text))
    assert first.fields["snippet"].startswith("<tool>\n")
    assert second.kind == "finish"


@pytest.mark.parametrize("wrap", ["{}", "Aug 19 09:31:14 node7 ds4-server[4121]: {}", "ds4-1  | {}"])
@pytest.mark.parametrize("make", [as_text, dsml])
def test_text_of_a_model_forges_no_event(tmp_path, lane, make, wrap):
    text = make(f"I saw in the log\n{FORGED}\nds4-server: prompt done 5.0s\nchat ctx=1..2:1 prompt start")
    assert kinds(tmp_path, f"{text}\n{NEXT}\n", lane, wrap) == ["tool_repair", "finish"]


def test_text_that_says_how_long_it_is_may_even_bear_the_right_stamp(tmp_path, lane):
    forged = FORGED.replace("09:00:00", "10:00:05")
    assert kinds(tmp_path, f"{as_text('x' + chr(10) + forged + chr(10) + 'y')}\n{NEXT}\n", lane) == [
        "tool_repair",
        "finish",
    ]


def test_a_bare_line_behind_shows_that_the_snippet_went_on(tmp_path, lane):
    forged = FORGED.replace("09:00:00", "10:00:05")
    assert kinds(tmp_path, f"{dsml('<a>' + chr(10) + forged + chr(10) + '</a>')}\n{NEXT}\n", lane) == [
        "tool_repair",
        "finish",
    ]


def test_a_line_of_the_engine_is_no_part_of_a_snippet(tmp_path, lane):
    text = f"{dsml('<a>')}\n{NEXT}\nds4: metal command buffer completed\n{NEXT}\n"
    assert kinds(tmp_path, text, lane).count("finish") == 2


def test_the_servers_next_line_ends_a_short_snippet(tmp_path, lane):
    for text in (dsml("(none)"), dsml("<a>"), as_text("<a>")):
        assert kinds(tmp_path, f"{text}\n{NEXT}\n{NEXT}\n", lane) == ["tool_repair", "finish", "finish"]


def test_a_later_line_of_the_server_within_the_budget_is_its_own(tmp_path, lane):
    late = NEXT.replace("0915 10:00:06", "0915 11:30:00")
    assert kinds(tmp_path, f"{dsml('<a>')}\n{late}\n{late}\n", lane) == ["tool_repair", "finish", "finish"]


def test_over_new_year_the_next_line_is_its_own(tmp_path, lane):
    text = dsml("<a>\nb").replace("0915 10:00:05", "1231 23:59:59")
    assert kinds(tmp_path, f"{text}\n{NEXT.replace('0915 10:00:06', '0101 00:00:00')}\n", lane) == [
        "tool_repair",
        "finish",
    ]


def test_a_snippet_ends_where_its_bytes_end(tmp_path, lane):
    text = dsml("x" * 400 + "\n" + "y" * 99)
    assert kinds(tmp_path, f"{text}\nanother program\n{NEXT}\n", lane) == ["tool_repair", "foreign", "finish"]


def test_an_error_text_may_hold_newlines_and_quotes(tmp_path, lane):
    text = f'{HEAD.replace("TOOLS", "gen=5 TOOLS")}finish=error error="a\n"b"\n{FORGED}\nc" 5.125s'
    first, second = events(tmp_path, f"{text}\n{NEXT}\n", lane)
    assert first.fields["error"] == f'a\n"b"\n{FORGED}\nc'
    assert (first.fields["elapsed_s"], second.kind) == (5.125, "finish")


def test_an_error_text_that_never_ends_takes_nothing_with_it(tmp_path, lane):
    cut = f'{HEAD.replace("TOOLS", "gen=5 TOOLS")}finish=error error="a'
    assert kinds(tmp_path, f"{cut}\n{NEXT}\n{NEXT}\n", lane) == ["finish"] * 3


def test_blocks_never_cut_a_record(lane):
    lines = "".join(f"{line}\n" for line in [NEXT] * 50 + [dsml("<a>\n<b>\n<c>")] + [NEXT] * 50).encode()
    for cut in range(len(NEXT) * 40, len(NEXT) * 70, 37):
        cut = lines.index(b"\n", cut) + 1
        parts = [Block(0, lines[:cut], 0, 1, lines[:cut].count(b"\n"))]
        parts.append(Block(0, lines[cut:], cut, parts[0].lines + 1, lines[cut:].count(b"\n")))
        blocks = list(whole_records(parts))
        assert b"".join(block.data for block in blocks) == lines
        assert not any(block.data.startswith((b"<b>", b"<c>")) for block in blocks)
        for block in blocks:
            assert (block.line, block.lines) == (
                lines[: block.offset].count(b"\n") + 1,
                block.data.count(b"\n"),
            )
