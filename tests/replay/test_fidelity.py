"""A replay under the detected build does what the real server did, request by request; what differs has a cause."""

from collections import Counter
from dataclasses import replace

import pytest
from captured import CAPTURES, NAMES, TRACED, study

from parser.reading import read
from parser.request import Store
from replay.causes import CAUSES, FILE_FROM_BEFORE
from replay.study import study_of


def fidelity(made):
    return made.fidelity(made.run())


@pytest.mark.parametrize("name", NAMES)
def test_each_capture_from_its_log_alone(name):
    found = fidelity(study(name))

    assert found.requests == len(study(name).reading.requests)
    assert found.fraction >= 0.99, found.divergences
    assert {one.why for one in found.divergences} <= set(CAUSES)


@pytest.mark.parametrize("name", TRACED)
def test_each_capture_with_its_trace(name):
    found = fidelity(study(name, traced=True))

    assert found.agree == found.requests, found.divergences


def test_each_cause_explains_a_hundredth_at_most():
    found = [fidelity(study(name)) for name in NAMES]
    total = sum(one.requests for one in found)
    causes = Counter(one.why for each in found for one in each.divergences)

    assert total > 800
    assert all(count <= total / 100 for count in causes.values()), causes


@pytest.mark.parametrize(
    "name", ["a-steal-sequential-11k", "matrix/W1/aug-2-disk", "h-long-continued-2slots"]
)
def test_stores_and_evictions_are_those_of_the_log(name):
    made = study(name)
    observed, predicted = made.observed.totals, made.run().totals

    for total in (
        "live_misses",
        "evict_stores",
        "disk_hits",
        "evictions",
        "prefilled_tokens",
        "loaded_tokens",
    ):
        assert getattr(observed, total) == getattr(predicted, total), total


@pytest.mark.parametrize("name", NAMES)
def test_seconds_are_those_of_the_log(name):
    made = study(name)
    observed, predicted = made.observed.totals, made.run().totals
    if observed.latency_s_sum is None or len(made.reading.requests) < 8 or len(made.reading.runs) > 1:
        return

    assert predicted.latency_s_sum == pytest.approx(observed.latency_s_sum, rel=0.1, abs=0.2)


def test_nothing_of_the_outcome_is_copied():
    """A log that claims other slots, stores and hits than the server's rules give is contradicted, not followed."""
    made = study("matrix/W1/aug-2-disk")
    observed = made.observed
    lies = tuple(
        replace(row, slot=1, disk_hit_tokens=None, stores=(Store(row.prompt_tokens, "evict", 1.0),))
        for row in observed.requests
    )
    made_up = replace(observed, requests=lies)

    assert made.run() == study("matrix/W1/aug-2-disk").run()
    assert made_up != made.observed
    honest = made.run(server="ds4-2026-09-reuse")
    assert honest.totals.live_misses == 0
    assert observed.totals.live_misses == 15


def test_a_log_that_starts_in_the_middle_blames_the_files_that_it_must_assume(tmp_path):
    """The first request is in flight and its own store is cut off; a later hit shows that the file was there."""
    log = CAPTURES / "matrix/W4/aug-2-disk/server.log"
    cut = tmp_path / "server.log"
    cut.write_text("".join(log.read_text().splitlines(keepends=True)[20:40]))
    (one,) = fidelity(study_of(read([str(cut)]))).divergences

    assert (one.request, one.why) == (1, FILE_FROM_BEFORE)
