"""The model against what the real server did: every capture of the matrix, each request, each total."""

import json
from functools import cache

import pytest
from matrix import MATRIX, captures, configuration, machine, rows, workload

from replay.decisions import Skipped, Stored
from replay.server import replay

#: one configuration of each model family, from which its workload is taken
SOURCES = {("W1", False): "aug-2-disk", ("W4", False): "aug-1-disk", ("W4", True): "GLMRW-1-disk"}


@cache
def source(name, glm):
    return workload(name, SOURCES[name, glm])


@pytest.mark.parametrize(("name", "folder"), captures())
def test_what_each_configuration_did(name, folder):
    truth = json.loads((MATRIX / name / folder / "summary.json").read_text())
    log = []
    outcome = replay(source(name, folder.startswith("GLM")), configuration(name, folder), machine(name), log)

    for served, seen in zip(outcome.requests, rows(MATRIX / name / folder / "truth.jsonl"), strict=True):
        assert {"none": "cold"}.get(seen["source"], seen["source"]) == served.source
        assert (seen["slot"], seen["cached"], seen["prefilled"]) == (
            served.slot, served.cached_tokens, served.prefilled_tokens,
        )  # fmt: skip
        assert (seen["live_before"], seen["common"]) == (served.live_before, served.common)
        tried = [row for row in log if isinstance(row, Stored | Skipped) and row.reason == "evict"]
        tried = [
            row.tokens for row in tried if row.request == served.request and not getattr(row, "silent", False)
        ]
        assert sum(tried) == seen["evict_store"]

    totals = outcome.totals
    assert totals.live_misses == truth["live_misses"]
    assert totals.evict_stores == truth["evict_stores"]
    assert totals.disk_hits == truth["disk_hits"]
    assert totals.evictions == truth["evictions"]
    assert totals.prefilled_tokens == truth["prefilled_tokens_total"]
    assert totals.loaded_tokens == truth["tokens_loaded_total"]
    assert sum(isinstance(row, Skipped) for row in log) == truth["skipped_stores"]
    for reason in ("cold", "continued", "shutdown"):
        made = sum(isinstance(row, Stored) and row.reason == reason and not row.silent for row in log)
        assert made == truth[f"{reason}_stores"]
    assert totals.wall_s == pytest.approx(truth["wall_s"], rel=0.05)
    assert totals.latency_s_sum == pytest.approx(truth["sum_latency_s"], rel=0.05)
