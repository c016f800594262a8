"""Scene, level of detail and moments against slow, plain ways to the same answers."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parser.request import Request, Store
from tui.axis import Axis, origin, ticks
from tui.lod import Peaks
from tui.moments import moment, step, stops
from tui.picture import Window
from tui.scene import Setting, build, fitting
from tui.tables import DELETED, FLOW_ENDS, RESTORED, STORED, STORED_EVICT, Deleted, Tables


@st.composite
def histories(draw):
    """Requests on two slots, one after the other in each, some with waits for the disk."""
    ends, rows = [0.0, 0.0], []
    for number in range(1, draw(st.integers(1, 40)) + 1):
        slot = draw(st.integers(0, 1))
        prompt = draw(st.integers(1, 10_000))
        cached = draw(st.integers(0, prompt))
        prefill, decode = draw(st.floats(0, 50)), draw(st.floats(0, 50))
        load = draw(st.sampled_from([0.0, 400.0]))
        start = ends[slot] + load / 1000 + draw(st.floats(0, 100))
        request = Request(number, number * 3, start_s=start, start_error_s=0.0, slot=slot, load_ms=load)
        request.prompt_tokens, request.cached_tokens, request.prefilled_tokens = (
            prompt,
            cached,
            prompt - cached,
        )
        request.prefill_s, request.total_s, request.slot_confidence = prefill, prefill + decode, "certain"
        request.conversation = draw(st.sampled_from("ABC"))
        request.evicted_live_tokens = draw(st.sampled_from([None, 500]))
        request.evict_stored = draw(st.booleans())
        request.disk_hit_tokens = 300 if load else None
        request.live_after = prompt + 10
        ends[slot] = start + prefill + decode
        rows.append(request)
    return rows


def scene_of(requests):
    tables = Tables()
    tables.add(requests)
    return build(tables.freeze(), Setting(slots=2), axis="time")


@settings(max_examples=25, deadline=None)
@given(histories(), st.integers(1, 60), st.floats(0, 0.9), st.floats(0.01, 1))
def test_cells_are_what_counting_each_request_gives(requests, width, begin, share):
    scene = scene_of(requests)
    length = scene.axis.hi - scene.axis.lo
    window = Window(scene.axis.lo + begin * length, scene.axis.lo + begin * length + share * length, width)
    edges = window.edges()
    for lane in scene.lanes:
        cells = lane.index.cells(edges)
        spans = lane.index.spans.to_dicts()
        for number in range(width):
            lo, hi = edges[number], edges[number + 1]
            inside = [span for span in spans if lo <= span["begin"] < hi]
            assert cells.begun[number] == len(inside)
            assert cells.evicts[number] == sum(span["evict"] for span in inside)
            assert cells.losses[number] == sum(span["loss"] for span in inside)
            assert cells.restores[number] == sum(span["restore"] for span in inside)
            assert cells.decode[number] == pytest.approx(covered(spans, lo, hi, "prefilled", "end"), abs=1e-6)
            prefill = cells.cached[number] + cells.fresh[number]
            assert prefill == pytest.approx(covered(spans, lo, hi, "start", "prefilled"), abs=1e-6)
            before = [span for span in spans if span["begin"] < hi]
            assert cells.row[number] == (before[-1]["row"] if before else cells.row[number])


def covered(spans, lo, hi, begin, end):
    """Axis units of lo..hi that lie between two columns of some span."""
    return sum(max(0.0, min(hi, span[end]) - max(lo, span[begin])) for span in spans)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=400), st.data())
def test_peaks_are_the_highest_within(values, data):
    import polars as pl

    cuts = sorted(data.draw(st.lists(st.integers(-1, len(values) - 1), min_size=2, max_size=12)))
    found = Peaks(pl.Series(values)).within(cuts)
    for cell, (first, last) in enumerate(pairwise(cuts)):
        expected = max(values[max(first, 0) : last], default=None) if last > max(first, 0) else None
        assert found.get(cell) == expected


@settings(max_examples=25, deadline=None)
@given(histories(), st.floats(0, 1))
def test_an_instant_is_the_last_span_that_began(requests, share):
    scene = scene_of(requests)
    at = scene.axis.lo + share * (scene.axis.hi - scene.axis.lo)
    for lane, instant in zip(scene.lanes, moment(scene, at).lanes, strict=True):
        began = [span for span in lane.index.spans.to_dicts() if span["begin"] < at]
        assert instant.row == (began[-1]["row"] if began else None)


@settings(max_examples=25, deadline=None)
@given(histories())
def test_stepping_forward_and_back_visits_the_same_stops(requests):
    scene = scene_of(requests)
    places = stops(scene, "request")
    forward, row, at = [], None, scene.axis.lo - 1
    while (row := step(places, at, row, True)) is not None:
        forward.append(row)
        at = scene.table["begin"][row]
    backward, row, at = [], None, scene.axis.hi + 1
    while (row := step(places, at, row, False)) is not None:
        backward.append(row)
        at = scene.table["begin"][row]
    assert forward == backward[::-1] == places["row"].to_list()


@settings(max_examples=25, deadline=None)
@given(histories(), st.integers(1, 39))
def test_columns_do_not_depend_on_how_the_requests_came(requests, cut):
    whole, parts = Tables(), Tables()
    whole.add(requests)
    parts.add(requests[:cut])
    parts.add(requests[cut:])
    preview = Tables()
    preview.add(requests[:cut])
    for other in (parts.freeze(), preview.freeze(requests[cut:])):
        assert other.requests.equals(whole.freeze().requests)
        assert other.flows.sort("from_row", "to_row").equals(whole.freeze().flows.sort("from_row", "to_row"))
    assert len(preview) == len(requests[:cut])


def turn(number, conversation, slot, live, **more):
    request = Request(
        number, number, start_s=10.0 * number, start_error_s=0.0, total_s=5.0, prefill_s=1.0, slot=slot
    )
    request.conversation, request.live_after, request.slot_confidence = conversation, live, "certain"
    for name, value in more.items():
        setattr(request, name, value)
    return request


def ends(*requests, deleted=None):
    tables = Tables()
    tables.add(requests, deleted)
    return [FLOW_ENDS[end] for end in tables.freeze().flows["end"]]


def test_how_the_flow_of_an_evicted_state_ends():
    out = turn(2, "B", 0, 900, evicted_live_tokens=500, evict_stored=True, previous_in_slot=1)
    assert ends(turn(1, "A", 0, 500), out) == ["waiting"]
    assert ends(turn(1, "A", 0, 500), out, turn(3, "A", 0, 600, disk_hit_tokens=500)) == ["restored"]
    assert ends(turn(1, "A", 0, 500), out, turn(3, "A", 0, 600, disk_hit_tokens=100)) == ["partly"]
    assert ends(turn(1, "A", 0, 500), out, turn(3, "A", 0, 600)) == ["unused"]
    gone = turn(3, "C", 1, 600, evicted_files=(7,))
    assert ends(turn(1, "A", 0, 500), out, gone, deleted={7: Deleted(500, 30.0)}) == ["deleted"]


def test_marks_stand_where_the_frontier_passes():
    """A continued checkpoint of 1,500 tokens of a prompt of 2,000 (1,000 cached): half the prefill is done."""
    request = turn(1, "A", 0, 2100, cached_tokens=1000, prompt_tokens=2000, generated_tokens=100)
    request.stores = (
        Store(1500, "continued", 50.0),
        Store(2050, "continued", 60.0),
        Store(900, "evict", 40.0),
    )
    request.disk_hit_tokens = 1000
    tables = Tables()
    tables.add([request])
    marks = build(tables.freeze(), Setting(slots=1), axis="time").disk.marks
    at = {(kind, tokens): at for kind, tokens, at in marks.select("kind", "tokens", "at").iter_rows()}
    assert at[STORED_EVICT, 900] == 10.0
    assert at[RESTORED, 1000] == 10.0
    assert at[STORED, 1500] == pytest.approx(10.5)
    assert at[STORED, 2050] == pytest.approx(13.0)


def test_disk_use_never_falls_below_what_was_deleted():
    """A file deleted that this log never saw written was there before: the curve begins above zero."""
    request = turn(1, "A", 0, 500, evicted_files=(3,), stores=(Store(500, "cold", 20.0),))
    tables = Tables()
    tables.add([request], {3: Deleted(2048, 100.0)})
    disk = build(tables.freeze(), Setting(slots=1), axis="time").disk
    assert disk.marks.filter(disk.marks["kind"] == DELETED)["mib"].to_list() == [-100.0]
    assert disk.mib([0.0, 20.0]) == [100.0, 20.0]


@pytest.mark.parametrize(
    ("limit", "highest", "scale"), [(65536, 3000, 4096), (65536, 60000, 65536), (None, 77, 77), (0, 0, 1)]
)
def test_a_curve_is_scaled_to_the_limit_or_a_half_quarter_of_it(limit, highest, scale):
    assert fitting(limit, highest) == scale


AXIS = Axis("time", 0.0, 7200.0, origin("1130 23:30:00")[0], True)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("23:30:10", 10),
        ("23:31", 60),
        ("00:10:00", 2400),
        ("1201 00:00:00", 1800),
        ("+90", 90),
        ("+1:30", 90),
        ("+1:00:00", 3600),
    ],
)
def test_places_as_people_write_them(text, at):
    assert AXIS.parse(text) == at


@pytest.mark.parametrize("text", ["", "noon", "+x", "12", "1:2:3:4"])
def test_a_place_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        AXIS.parse(text)


def test_ticks_stand_on_round_times():
    step_, places = ticks(AXIS, 100.0, 700.0, 60)
    assert step_ == 120
    assert [AXIS.label(at, step_) for at in places] == ["23:32", "23:34", "23:36", "23:38", "23:40"]


@given(st.floats(0, 1e7), st.floats(1e-3, 1e7), st.integers(1, 400))
def test_ticks_are_visible_and_far_enough_apart(lo, length, width):
    axis = Axis("time", lo, lo + length)
    _, places = ticks(axis, lo, lo + length, width)
    assert all(lo - 1e-6 <= at <= lo + length + 1e-3 * length for at in places)
    assert len(places) <= width
