"""Delta debugging: what is left is small and still shows the thing."""

import pytest
from captured import study
from chats import MACHINE, days
from hypothesis import given, settings

from replay.configure import configs_of
from replay.rope import Piece
from replay.server import replay
from replay.shrink import shrink, without
from replay.workload import Asked, Segment, Workload
from replay.workload_file import dumps, loads


def misses(configs, costs, least):
    return lambda workload: replay(workload, configs, costs).totals.live_misses >= least


def test_a_steal_needs_three_requests():
    """A, B takes its slot, A again: of sixteen requests with up to 136,000 tokens."""
    made = study("matrix/W1/aug-2-disk")
    keeps = misses(made.configs(), made.costs, 2)

    found = shrink(made.workload, keeps)

    assert keeps(found.workload)
    assert len(found.workload.requests) == 3
    assert sum(a.prompt_tokens for a in found.workload.requests) < 2000
    assert found.tried <= 600


@settings(max_examples=8)
@given(days(lanes=2, turns=4))
def test_the_smallest_still_shows_it_and_is_a_workload_file(workload):
    configs = configs_of(None, {"server": "ds4-2026-08", "slots": 2}, workload)
    total = replay(workload, configs, MACHINE).totals.live_misses
    keeps = misses(configs, MACHINE, min(total, 1))

    found = shrink(workload, keeps, most=150)

    assert keeps(found.workload)
    assert len(found.workload.requests) <= len(workload.requests)
    assert loads(dumps(found.workload)) == found.workload


def test_no_request_of_the_smallest_can_be_left_out():
    made = study("matrix/W4/aug-1-disk")
    keeps = misses(made.configs(), made.costs, 3)

    found = shrink(made.workload, keeps).workload

    assert not any(keeps(without(found, {asked.request})) for asked in found.requests)


@pytest.fixture
def chain():
    segments = {name: Segment(name, 5) for name in "abc"}
    rope = {name: (Piece(name, 0, 5),) for name in "abc"}
    return Workload(
        segments,
        (
            Asked(1, rope["a"], arrival_s=2.0),
            Asked(2, rope["b"], after=1, think_s=3.0),
            Asked(3, rope["c"], after=2, think_s=4.0),
        ),
    )


def test_who_waited_for_a_request_waits_for_what_it_waited_for(chain):
    left = without(chain, {2}).requests[1]

    assert (left.request, left.after, left.think_s) == (3, 1, 7.0)


def test_who_waited_for_the_first_comes_by_itself(chain):
    left = without(chain, {1}).requests[0]

    assert (left.after, left.arrival_s) == (None, 5.0)
