"""Two clients of one slot in a day that passes so fast that stamps tell few pauses one by one."""

from random import Random

import pytest
from captured import study
from chats import Day, hurried, machine
from test_several import logged

from replay.decisions import Arrived, Dispatched


@pytest.mark.parametrize("seed", range(6))
def test_who_waited(tmp_path, seed):
    workload = hurried(Day(Random(seed), [1, 1], 24).workload(), 20)
    made, log, order = logged(workload, tmp_path, machine(20), slots="single", kv_disk=False)
    came = {row.request: row.at_s for row in log if isinstance(row, Arrived)}
    given = {row.request: row.at_s for row in log if isinstance(row, Dispatched)}
    number = {true: place for place, true in enumerate(order, 1)}
    waited = [given[n] - came[n] > 0.01 for n in order]
    agree = sum(a == b for a, b in zip(waited, made.extraction.arrivals.queued, strict=True))

    assert agree >= 0.9 * len(order)
    wrong = [
        a
        for a in made.workload.requests
        if a.after != number.get(workload.by_number[order[a.request - 1]].after)
    ]
    assert len(wrong) <= 1  # who came first waited for nobody's answer, which no line says


@pytest.mark.parametrize("name", ["matrix/W1/aug-1-disk", "matrix/W1/aug-1-nodisk", "c-single-slot-11k"])
def test_one_client_who_asks_this_and_that_waits_for_nobody(name):
    """It pauses each time: all pauses could be about as long as the mean."""
    made = study(name)

    assert not any(made.extraction.arrivals.queued)
    assert all(asked.after == asked.request - 1 for asked in made.workload.requests[1:])
