"""Costs fitted to a log: known costs are found again, whatever the machine's speed; the rest is said to be default."""

import itertools
from random import Random

import pytest
from captured import study
from chats import MACHINE, Day
from hypothesis import given, settings
from hypothesis import strategies as st

from parser.reading import read
from replay.configure import configs_of
from replay.costs import Figure, FittedCosts, completed, declare
from replay.emit import emit
from replay.fitting import fit
from replay.server import replay


def log_of(costs, folder, *, slots="single", lanes=1, turns=12, kv_disk=True):
    workload = Day(Random(7), [2] * lanes, turns).workload()
    configs, log = (
        configs_of(None, {"server": "ds4-2026-08", "slots": slots, "kv_disk": kv_disk}, workload),
        [],
    )
    replay(workload, configs, costs, log)
    path = folder / "server.log"
    path.write_bytes(emit(workload, configs, log, "1130 10:00:00"))
    return read([str(path)])


@pytest.mark.parametrize("factor", [0.1, 1.0, 8.0])
def test_a_machine_of_any_speed_is_found(tmp_path, factor):
    machine = declare(MACHINE, prefill_tps=430 / factor, decode_tps=25 / factor)
    found = fit(log_of(machine, tmp_path))

    assert found.token_s.value == pytest.approx(machine.token_s.value, rel=0.02)
    assert found.step_s.value == pytest.approx(machine.step_s.value, rel=0.02)
    assert found.token_s.origin == found.step_s.origin == "log"
    assert found.token_s.samples > 4 and found.token_s.spread < 0.05


def test_prefill_that_slows_with_depth(tmp_path):
    machine = FittedCosts(token_s=Figure(1 / 430), token_slope_s=Figure(4e-8), step_s=Figure(1 / 25))
    found = fit(log_of(machine, tmp_path, turns=40))

    for start, end in ((0, 2048), (6000, 8000)):
        assert found.prefill_s(start, end) == pytest.approx(machine.prefill_s(start, end), rel=0.05)


def test_a_batch_of_decoders(tmp_path):
    found = fit(log_of(MACHINE, tmp_path, slots=3, lanes=3))

    assert found.batch_share.value == pytest.approx(0.2, abs=0.06)


def test_what_the_log_does_not_show_is_a_default_as_fast_as_its_prefill(tmp_path):
    found = fit(log_of(MACHINE, tmp_path, kv_disk=False))

    assert found.store_byte_s.origin == found.load_byte_s.origin == "default"
    assert found.load_byte_s.value == pytest.approx(1 / 3e9, rel=0.05)


def test_declared_figures_stand_above_fitted_ones():
    stated = declare(study("matrix/W1/aug-1-disk").costs, prefill_tps=500.0, load_gbps=2.0)

    assert stated.prefill_s(0, 1000) == pytest.approx(2.0)
    assert (stated.token_s.origin, stated.load_byte_s.value) == ("declared", pytest.approx(5e-10))
    assert stated.step_s.origin == "log"


def test_nothing_known_is_said():
    assert not FittedCosts().known
    assert completed({"token_s": Figure(0.01)}).known


@settings(max_examples=30)
@given(
    token=st.floats(1e-5, 1),
    slope=st.floats(0, 1e-6),
    places=st.lists(st.integers(0, 10**6), min_size=2, max_size=5),
)
def test_prefill_is_additive(token, slope, places):
    """In one piece or in many: the same seconds."""
    costs, cuts = FittedCosts(token_s=Figure(token), token_slope_s=Figure(slope)), sorted(places)
    pieces = sum(costs.prefill_s(a, b) for a, b in itertools.pairwise(cuts))

    assert pieces == pytest.approx(costs.prefill_s(cuts[0], cuts[-1]), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("workload", ["W1", "W4"])
def test_the_matrix_machine(workload):
    """430 tokens and 25 steps a second, 50 and 100 times as fast."""
    factor = {"W1": 50, "W4": 100}[workload]
    costs = study(f"matrix/{workload}/aug-2-disk").costs

    depth = {"W1": 100_000, "W4": 10_000}[workload]

    assert 1000 / costs.prefill_s(depth, depth + 1000) / factor == pytest.approx(430, rel=0.03)
    assert 100 / costs.decode_s(1, depth, 100) / factor == pytest.approx(25, rel=0.05)
