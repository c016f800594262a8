"""Two lanes, one grammar: on every line they say the same."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from printed import CHANGES, changed, printed

from parser import events as reading
from parser import prescan
from parser.event import BULK_KINDS
from parser.events import parse_line, parse_lines, read_events
from parser.grammar import Grammar, grammar
from parser.lanes import InColumns, LineByLine
from parser.line import Line
from parser.sources import BLOCK_BYTES, Block
from parser.text_lane import TextLane

FIXTURES = Path(__file__).parents[2] / "fixtures"
CAPTURES = sorted(FIXTURES.glob("captures/**/server.log"))
CASES = sorted(FIXTURES.glob("cases/*/input.*"))
LARK, FAST = LineByLine(TextLane(grammar(), printed=False)), InColumns(grammar(), TextLane(grammar()))


def events(data: bytes, lane):
    block = Block(0, data, 0, 1, data.count(b"\n"))
    log = lane.prepare(block).log(0, grammar())
    return list(log.rows(*log.counts))


@pytest.mark.parametrize("path", CAPTURES + CASES, ids=lambda path: path.parent.name)
def test_same_events_on_every_line_there_is(path):
    data = path.read_bytes()
    assert events(data, FAST) == events(data, LARK)


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.parent.name)
def test_every_line_of_a_capture_is_known(path):
    for event in events(path.read_bytes(), FAST):
        assert event.kind not in ("unknown", "foreign"), event.text


@settings(max_examples=150)
@given(
    st.lists(st.tuples(printed(), CHANGES), max_size=8),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "ds4-1  | ", "Aug 19 09:31:14 n ds4-server[4]: "]),
)
def test_same_events_on_lines_made_from_the_grammar(lines, end, wrapper):
    texts = [wrapper + changed(f"0915 10:00:01 ds4-server: {line.text}", changes) for line, changes in lines]
    data = end.join(text.replace("\n", " ") for text in texts).encode()
    assert events(data, FAST) == events(data, LARK)


@settings(max_examples=150)
@given(printed(), CHANGES, st.lists(st.integers(0, 10**6), min_size=1, max_size=30))
def test_what_was_learned_from_one_line_holds_for_its_like(line, changes, numbers):
    """Lark sees each shape once; a line of the same shape gives what Lark itself would say."""
    import re

    first = changed(line.text, changes).replace("\0", "")
    supply = iter(numbers * 40)
    other = re.sub(r"(?<=[=: (./])[0-9]+", lambda _: str(next(supply)), first)
    learned, fresh = TextLane(grammar(), printed=False), TextLane(grammar(), printed=False)
    learned.parse(first)
    assert learned.parse(other) == fresh.parse(other)


def test_a_shape_costs_one_parse(monkeypatch):
    parses = []
    original = Grammar.parser
    monkeypatch.setattr(
        Grammar, "parser", lambda self, symbol: parses.append(symbol) or original(self, symbol)
    )
    lane = TextLane(grammar())
    for number in range(5000):
        assert lane.parse(f"kv cache stored tokens={number} shard={number % 7} reason=evict").extra == {
            "shard": str(number % 7)
        }
        assert lane.parse(f"worker {number}: prompt done in {number} seconds") is None
    assert len(parses) <= 4


def test_lines_of_another_program_never_reach_lark(monkeypatch):
    monkeypatch.setattr(Grammar, "parser", None)
    data = "".join(
        f"INFO:root:{word} job {n} done in {n / 7:.3f}s\n" for n, word in enumerate("abcdefgh" * 500)
    ).encode()
    assert {event.kind for event in events(data, FAST)} == {"foreign"}


def test_numbers_run_on_over_blocks_and_sources(tmp_path, monkeypatch):
    log = CAPTURES[0].read_bytes()
    (tmp_path / "a.log").write_bytes(log * 3)
    (tmp_path / "b.log").write_bytes(log)
    monkeypatch.setattr(reading, "iter_blocks", lambda source, max_bytes: _small(source))
    found = [
        e
        for block in read_events([tmp_path / "a.log", tmp_path / "b.log"], lane="fast")
        for e in block.rows(*block.counts)
    ]
    lines = log.count(b"\n")
    assert [event.seq for event in found] == list(range(4 * lines))
    assert [event.line for event in found] == [*range(1, 3 * lines + 1), *range(1, lines + 1)]
    assert {event.source for event in found} == {0, 1}
    text = log * 3
    for event in found[: 3 * lines : 7]:
        assert text[event.offset : event.offset + event.length].decode().endswith(event.text)


def _small(source):
    from parser.sources import iter_blocks

    return iter_blocks(source, block_bytes=4000)


def test_bulk_comes_as_columns(tmp_path):
    log = tmp_path / "server.log"
    log.write_bytes(CAPTURES[0].read_bytes() * 8)
    (block,) = read_events([log], lane="fast")
    chunks = block.frame("prefill_chunk")
    assert chunks.columns[:4] == ["seq", "line", "offset", "stamp"]
    assert chunks["seq"].is_sorted()
    assert len(chunks) == block.counts["prefill_chunk"]
    assert chunks["done"].to_list() == [event.get("done") for event in block.rows("prefill_chunk")]
    assert not any(event.kind in BULK_KINDS for event in block.rows())
    (objects,) = read_events([log], lane="lark")
    for kind in block.counts:
        assert objects.frame(kind).equals(block.frame(kind))


@pytest.mark.parametrize(
    "kinds",
    [
        ("live_miss", "kv_evicted"),
        ("finish",),
        ("kv_failed", "tool_repair"),
        ("foreign",),
        ("startup", "unknown"),
    ],
)
def test_a_few_kinds_are_what_is_left_of_all(tmp_path, monkeypatch, kinds):
    monkeypatch.setattr(prescan, "LONG", 1000)
    monkeypatch.setattr(prescan, "REGION", 9000)
    monkeypatch.setattr(prescan, "PIECE", 1500)
    monkeypatch.setattr(prescan, "TAIL", 1000)
    log = tmp_path / "server.log"
    forged = b"0915 10:00:01 ds4-server: chat ctx=1..2:1 invalid tool call dsml_snippet: <a>\n0101 00:00:00 ds4-server: live kv cache miss live=1 prompt=2 common=0\n"
    log.write_bytes(
        b"".join(path.read_bytes() + forged for path in CAPTURES[:6])
        + b"some words\n0915 10:00:01 ds4-server: new words"
    )
    some = [e for block in read_events([log], kinds=kinds) for e in block.rows(*block.counts)]
    all_ = [e for block in read_events([log], lane="lark") for e in block.rows(*kinds)]
    assert [(e.line, e.offset, e.kind, dict(e.fields), e.text) for e in some] == [
        (e.line, e.offset, e.kind, dict(e.fields), e.text) for e in all_
    ]


@pytest.mark.parametrize("lane", ["fast", "lark"])
def test_what_no_log_should_hold(tmp_path, lane):
    log = tmp_path / "server.log"
    long = b"0915 10:00:01 ds4-server: " + b"x" * 200_000
    bad = b"0915 10:00:01 ds4-server: kv cache hit text tokens=5 text=6 quant=2 load=1.0 ms file=/kv/\xff\xfe\x80.kv"
    nul = b"0915 10:00:01 ds4-server: \0prompt start\0"
    cut = b"0915 10:00:01 ds4-server: chat ctx=1..2:1 prompt do"
    log.write_bytes(b"\n".join([long, bad, nul, b"", b"   ", b"...", cut]))
    found = [event for block in read_events([log], lane=lane) for event in block.rows(*block.counts)]
    assert [event.kind for event in found] == ["unknown", "kv_hit", "prompt_start", "unknown"]
    assert found[1].fields["file"] == "/kv/\ufffd\ufffd\ufffd.kv"
    assert [event.line for event in found] == [1, 2, 3, 7]
    assert found[0].length == len(long)
    assert len(found[0].text) < 70_000


def test_an_endless_line_is_not_copied_into_columns(tmp_path):
    log = tmp_path / "server.log"
    log.write_bytes(b"y" * (5 * BLOCK_BYTES) + b"\n0915 10:00:01 ds4-server: prompt start\n")
    found = [event for block in read_events([log], lane="fast") for event in block.rows(*block.counts)]
    assert [(event.line, event.kind) for event in found] == [(1, "foreign"), (2, "prompt_start")]


def test_packed_input_gives_the_same(tmp_path):
    packed = tmp_path / "server.log.gz"
    packed.write_bytes(gzip.compress(CAPTURES[0].read_bytes()))
    one = [event for block in read_events([packed], lane="fast") for event in block.rows(*block.counts)]
    assert one == events(CAPTURES[0].read_bytes(), LARK)


def test_lines_of_a_report_come_with_their_place():
    lines = [
        Line(3, 10, 20, "chat ctx=1..2:1 prompt start", "10:00:01", "ds4-server", 2, 4, "excerpt"),
        Line(4, 30, 20, "live kv cache miss live=1 prompt=2 common=0", None, None, 2, 4, "prose"),
    ]
    first, second = parse_lines(lines).rows("prompt_start", "foreign")
    assert (first.line, first.offset, first.length, first.source, first.excerpt, first.place) == (
        3,
        10,
        20,
        2,
        4,
        "excerpt",
    )
    assert (first.stamp, first.kind, second.kind) == ("10:00:01", "prompt_start", "foreign")


def test_one_line_says_all_about_itself():
    event = parse_line("0915 10:00:01 ds4-server: chat ctx=1..2:1 prompt start", line=7, offset=99)
    assert (event.line, event.offset, event.length, event.text) == (7, 99, 54, "chat ctx=1..2:1 prompt start")
