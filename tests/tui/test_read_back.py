"""What the picture says equals the table of requests: the drawn cells are read back, request by request."""

from functools import cache
from pathlib import Path

import pytest

from parser.reading import Reading, read
from parser.request import Request
from tui.feed import deletions, setting_of
from tui.glyphs import UNICODE, letter
from tui.layout import Slice
from tui.picture import Row, Window, paint
from tui.scene import Scene, build
from tui.tables import Tables

FIXTURES = Path(__file__).parents[2] / "fixtures"
CAPTURES = sorted(FIXTURES.glob("captures/*/server.log")) + sorted(
    FIXTURES.glob("captures/matrix/*/*/server.log")
)
SEEDS = sorted((FIXTURES / "seeds").iterdir())
CASES = sorted(FIXTURES.glob("cases/*/input.*"))  # many hold no request: what people paste is short
LOGS = [*CAPTURES, *SEEDS, *CASES]
CELLS = 40  # cells in which one request is drawn


@cache
def drawn(path: Path) -> tuple[Reading, Scene]:
    reading = read([str(path)])
    tables = Tables()
    tables.add(reading.requests, deletions(reading))
    setting = setting_of(reading.server, reading.runs, reading.stamps.first)
    return reading, build(tables.freeze(), setting)


def lane_of(scene: Scene, row: int) -> int:
    """The lane in which a request is drawn: found in the picture's own index, not computed from the slot."""
    lanes = [number for number, lane in enumerate(scene.lanes) if row in lane.index.spans["row"]]
    assert len(lanes) == 1, f"row {row} is drawn in lanes {lanes}"
    return lanes[0]


def close_up(scene: Scene, row: int) -> tuple[Row, Row]:
    """`who` and `work` of one request alone: from its begin until the next in its lane (or its end)."""
    lane = lane_of(scene, row)
    span = (
        scene.lanes[lane].index.spans.filter(scene.lanes[lane].index.spans["row"] == row).row(0, named=True)
    )
    end = min(max(span["end"], span["begin"] + 1e-6), span["until"])
    window = Window(span["begin"], max(end, span["begin"] + 1e-6), CELLS)
    who, work = paint(scene, window, [Slice("who", lane), Slice("work", lane)], UNICODE)
    return who, work


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_request_is_drawn_in_its_slot_with_its_conversation_and_eviction(path):
    reading, scene = drawn(path)
    assert len(scene.table) == len(reading.requests)
    assert len(scene.table) > 0 or path in CASES
    known = conversations(reading)
    for row, request in enumerate(reading.requests):
        lane = scene.lanes[lane_of(scene, row)]
        assert lane.slot == request.slot
        assert lane.name == (f"slot {request.slot}" if request.slot is not None else lane.name)
        who, work = close_up(scene, row)
        check_eviction(request, work)
        expected = letter(request.conversation, known.index(request.conversation))
        assert who.text[0] == expected, f"request {request.request}: {who.text}"


def conversations(reading: Reading) -> list[str | None]:
    """Conversations by first appearance, as the picture numbers them."""
    return list(dict.fromkeys(r.conversation for r in reading.requests if r.conversation is not None)) or [
        None
    ]


def check_eviction(request: Request, work: Row) -> None:
    """An eviction is drawn once, and says whether it was saved."""
    seen = [char for char in work.text if char in (UNICODE.evict, UNICODE.lost, UNICODE.swap)]
    assert len(seen) == (1 if request.evicted_live_tokens else 0), f"request {request.request}: {work.text}"
    if seen:
        assert (seen[0] != UNICODE.lost) == request.evict_stored


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_evictions_add_up_at_every_zoom(path):
    reading, scene = drawn(path)
    expected = sum(1 for request in reading.requests if request.evicted_live_tokens)
    for width in (400, 66, 25):
        window = Window(scene.axis.lo, scene.axis.hi, width)
        rows = paint(scene, window, [Slice("work", lane) for lane in range(len(scene.lanes))], UNICODE)
        assert sum(evictions(row) for row in rows) == expected or any("+" in row.text for row in rows)


def evictions(row: Row) -> int:
    """Evictions that a row of work shows: one a sign, several as a digit."""
    one = sum(char in (UNICODE.evict, UNICODE.lost, UNICODE.swap) for char in row.text)
    many = sum(int(char) for char in row.text if char.isdigit())
    return one + many


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.parent.name)
def test_the_parts_of_a_prefill_are_drawn_in_proportion(path):
    """Reused and computed cells of a prefill stand as cached and prefilled tokens do, to a cell or two."""
    reading, scene = drawn(path)
    for row, request in enumerate(reading.requests):
        if not request.prompt_tokens or request.cached_tokens is None or not request.prefill_s:
            continue
        lane = scene.lanes[lane_of(scene, row)].index.spans
        span = lane.filter(lane["row"] == row).row(0, named=True)
        if span["prefilled"] - span["start"] < 1e-4:
            continue
        window = Window(span["start"], span["prefilled"], CELLS)
        (work,) = paint(scene, window, [Slice("work", lane_of(scene, row))], UNICODE)
        cached = work.text.count(UNICODE.cached)
        assert abs(cached - CELLS * request.cached_tokens / request.prompt_tokens) <= 2, work.text


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.parent.name)
def test_curves_sum_to_the_tokens_of_the_table(path):
    reading, scene = drawn(path)
    tokens = scene.sums.between(Window(scene.axis.lo, scene.axis.hi + 1e-9, 50).edges())
    assert sum(tokens["reused"]) == sum(request.cached_tokens or 0 for request in reading.requests)
    assert sum(tokens["fresh"]) == sum(request.prefilled_tokens or 0 for request in reading.requests)
    assert sum(tokens["misses"]) == int(scene.table["miss"].sum())


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.parent.name)
def test_misses_drawn_are_the_miss_lines_of_the_log(path):
    reading, scene = drawn(path)
    printed = reading.counts.get("live_miss", 0)
    if printed:  # builds before May 14 print none
        assert int(scene.table["miss"].sum()) == printed


def test_flows_join_an_eviction_and_the_restore_of_the_same_state():
    """Two chats take turns in one slot: each is put out when the other comes, and read back whole."""
    reading, scene = drawn(FIXTURES / "captures/c-single-slot-11k/server.log")
    by_row = dict(enumerate(reading.requests))
    restored = scene.disk.flows.filter(scene.disk.flows["end"] == 0)
    assert len(restored) > 0
    for flow in restored.iter_rows(named=True):
        left, back = by_row[flow["from_row"]], by_row[flow["to_row"]]
        assert left.evicted_live_tokens == flow["tokens"] == back.disk_hit_tokens
        assert left.request < back.request


def test_a_slot_that_is_not_certain_is_drawn_as_such():
    request = Request(1, 1, start_s=0.0, prompt_tokens=10, cached_tokens=0, prefilled_tokens=10, slot=1)
    request.prefill_s, request.total_s, request.conversation = 5.0, 10.0, "A"
    request.slot_confidence, request.slot_alternatives = "ambiguous", (0, 1)
    tables = Tables()
    tables.add([request])
    scene = build(tables.freeze(), setting_of(Reading().server, [], None))
    (who,) = paint(scene, Window(0.0, 10.0, 10), [Slice("who", 1)], UNICODE)
    assert who.text == "A?" + UNICODE.unsure * 8
    assert {role for role, _ in who.inks} == {"unsure"}


def test_a_request_without_slot_has_a_lane_of_its_own():
    tables = Tables()
    tables.add(
        [Request(1, 1, start_s=0.0, total_s=4.0, conversation="A"), Request(2, 5, start_s=1.0, total_s=4.0)]
    )
    scene = build(tables.freeze(), setting_of(Reading().server, [], None))
    assert [lane.name for lane in scene.lanes] == ["slot ?", "slot ?2"]  # they overlap, so two
