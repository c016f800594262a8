"""Sweeps: the same rows whoever does the work, and a front that nothing beats."""

import pytest
from captured import CAPTURES
from hypothesis import given
from hypothesis import strategies as st

from parser.errors import UsageError
from replay import sweep

LOGS = [str(CAPTURES / name / "server.log") for name in ("matrix/W1/aug-2-disk", "d-3conv-2slots")]


@pytest.fixture(scope="module")
def tasks():
    axes = {
        "policy": ["ds4-2026-08", "reuse-aware", "clairvoyant"],
        "slots": ["single", 2, 3],
        "kv_disk_space_mb": [600, 8192],
    }
    return sweep.jobs(LOGS, sweep.variants(axes, {}), {})


@pytest.fixture(scope="module")
def alone(tasks):
    return sweep.run(tasks, sweep.processes(1))


def test_all_variants_of_all_logs_in_order(alone):
    assert len(alone) == 2 * 3 * 3 * 2
    assert alone[0]["variant"] == "ds4-2026-08 slots=single kv_disk_space_mb=600"
    assert [row["log"] for row in alone] == [log for log in LOGS for _ in range(18)]


def test_two_workers_give_the_same_rows(tasks, alone):
    told = []
    assert sweep.run(tasks, sweep.processes(2), told.append) == alone
    assert told == list(range(1, len(tasks) + 1))


def test_dask_gives_the_same_rows(tasks, alone):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address=None
    ) as cluster:
        assert sweep.run(tasks, sweep.dask(cluster.scheduler_address)) == alone


def test_no_cluster_at_that_address(tasks):
    pytest.importorskip("distributed")
    with pytest.raises(UsageError, match="no Dask scheduler"):
        sweep.run(tasks, sweep.dask("tcp://127.0.0.1:9"))


def test_the_reuse_aware_score_is_on_the_front(alone):
    rows = [row for row in sweep.summed(alone) if row["logs"] == 2]
    front = sweep.pareto(rows)

    assert 0 < len(front) < len(rows)
    least = min(row["prefilled_tokens"] for row in rows)
    best = [rows[place]["variant"] for place in front if rows[place]["prefilled_tokens"] == least]
    assert any(variant.startswith("reuse-aware") for variant in best)


POINTS = st.lists(st.tuples(*[st.integers(0, 4)] * len(sweep.OBJECTIVES)), min_size=1, max_size=20)


@given(POINTS)
def test_nothing_beats_what_is_on_the_front_and_something_beats_the_rest(points):
    rows = [dict(zip(sweep.OBJECTIVES, point, strict=True)) for point in points]
    front = sweep.pareto(rows)

    for place, point in enumerate(points):
        better = [o for o in points if o != point and all(a <= b for a, b in zip(o, point, strict=True))]
        assert (place in front) == (not better)
