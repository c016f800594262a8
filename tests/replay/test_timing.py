"""Starts to a fraction of the stamps' second, lanes, and think times."""

import pytest
from captured import CAPTURES, reading
from chats import MACHINE, days
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from matrix import rows

from parser.reading import read
from replay.configure import configs_of
from replay.decisions import Answered, Arrived, Begun
from replay.emit import emit
from replay.server import replay
from replay.study import study_of
from replay.timing import Spans, settle, spans


@pytest.mark.parametrize("name", ["matrix/W1/aug-2-disk", "matrix/W4/aug-1-nodisk"])
def test_the_true_start_lies_within_its_interval(name):
    """`client.jsonl` has when each answer ended, by another clock: all differ by one constant."""
    found, sent = spans(reading(name)), [r for r in rows(CAPTURES / name / "client.jsonl") if "seq" in r]
    began = [row["t_end"] - lasted for row, lasted in zip(sent, found.lasted, strict=True)]
    low = max(at - high for at, high in zip(began, found.high, strict=True))
    high = min(at - low for at, low in zip(began, found.low, strict=True))

    assert low <= high
    assert sum(b - a for a, b in zip(found.low, found.high, strict=True)) < 0.4 * len(
        began
    )  # of whole seconds


def test_lines_of_others_narrow_a_start():
    """Two requests of 0.5 s within one second: the second begins after the first one's end."""
    found = Spans([0.0, 0.0], [1.0, 1.0], [0.5, 0.5], [1, 4], [1, 4], [3, 6], [2, 5])
    from replay.timing import _narrow

    _narrow(found)
    assert (found.low, found.high) == ([0.0, 0.5], [0.5, 1.0])


@given(
    st.lists(st.tuples(st.floats(0.01, 2), st.floats(0, 3)), min_size=2, max_size=12),
)
def test_settled_starts_keep_the_order_of_the_lines(pairs):
    """One lane: (seconds it takes, pause before it); stamps are whole seconds."""
    at, begins = 0.0, []
    for lasted, pause in pairs:
        at += pause
        begins.append(at)
        at += lasted
    lines = range(len(pairs))
    places = [3 * i for i in lines], [3 * i + 1 for i in lines], [3 * i + 2 for i in lines]
    found = Spans(
        [float(int(b)) for b in begins], [int(b) + 1.0 for b in begins], [lasted for lasted, _ in pairs],
        places[0], places[0], places[2], places[1],
    )  # fmt: skip
    from replay.timing import _narrow

    _narrow(found)
    starts = settle(found, {i: i - 1 for i in lines if i})

    for i, (start, low, high) in enumerate(zip(starts, found.low, found.high, strict=True)):
        assert low - 1e-6 <= start <= high + 1e-6
        if i:
            assert start >= starts[i - 1] + pairs[i - 1][0] - 1e-6


@settings(max_examples=20)
@given(workload=days(lanes=2, turns=6))
def test_requests_come_when_they_came(tmp_path_factory, workload):
    """Extracted arrivals, replayed: the sum of latencies and the time of the whole day are the log's."""
    configs = configs_of(None, {"server": "ds4-2026-08", "slots": 3}, workload)
    log = []
    outcome = replay(workload, configs, MACHINE, log)
    path = tmp_path_factory.mktemp("log") / "server.log"
    path.write_bytes(emit(workload, configs, log, "1130 10:00:00"))
    made = study_of(read([str(path)]))
    again = made.run()
    assume(made.fidelity(again).fraction == 1)

    assert again.totals.latency_s_sum == pytest.approx(outcome.totals.latency_s_sum, rel=0.05)
    assert again.totals.wall_s == pytest.approx(outcome.totals.wall_s, rel=0.05, abs=1.0)


@settings(max_examples=20)
@given(workload=days(lanes=3, turns=5))
def test_nobody_sends_before_the_answer_it_waits_for(tmp_path_factory, workload):
    """As many slots as people: who waits in the queue for one leaves no line of when it came."""
    configs = configs_of(None, {"server": "ds4-2026-08", "slots": 3}, workload)
    log = []
    replay(workload, configs, MACHINE, log)
    path = tmp_path_factory.mktemp("log") / "server.log"
    path.write_bytes(emit(workload, configs, log, "1130 10:00:00"))
    begun = sorted((row for row in log if isinstance(row, Begun)), key=lambda row: row.at_s)
    order = [row.request for row in begun]
    came = {row.request: row.at_s for row in log if isinstance(row, Arrived)}
    answered = {row.request: row.at_s for row in log if isinstance(row, Answered)}

    for asked in study_of(read([str(path)])).workload.requests:
        if asked.after is not None:
            one, other = order[asked.after - 1], order[asked.request - 1]
            assert answered[one] <= came[other] + 1e-6
            assert asked.think_s >= 0
