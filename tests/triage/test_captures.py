"""Logs of the real server (`fixtures/captures`): the sure verdicts, what else is true of them, no false alarm."""

from __future__ import annotations

from pathlib import Path

import pytest

from parser.reading import read
from triage.triage import triage

CAPTURES = Path(__file__).parents[2] / "fixtures" / "captures"
#: what each capture shows, by its `command.txt` and `truth.jsonl`: rank 1, and what may stand beside it
TRUE = {
    "a-steal-sequential-1k": ("slot-steal-shared-prefix", {"write-amplification"}),
    "a-steal-sequential-11k": ("slot-steal-shared-prefix", {"write-amplification"}),
    "a-steal-sequential-11k-nodisk": ("slot-steal-shared-prefix", set()),
    "b-steal-after-overlap-1k": ("healthy", set()),
    "b-steal-after-overlap-11k": ("healthy", set()),
    "c-single-slot-11k": ("too-few-slots", {"write-amplification"}),
    "c-single-slot-11k-2026-05": ("too-few-slots", {"write-amplification"}),
    "d-3conv-2slots": ("too-few-slots", {"write-amplification"}),
    "e-tail-mismatch-ds4": (
        "exact-retry-no-rewind",
        {"tail-mismatch-no-rewind", "reasoning-retokenised", "shallow-disk-checkpoint", "write-amplification"},
    ),
    "e-tail-mismatch-glm": (
        "reasoning-retokenised",
        {"tail-mismatch-no-rewind", "shallow-disk-checkpoint", "write-amplification"},
    ),
    "f-regenerate-glm-2slots": ("slot-steal-shared-prefix", set()),
    "g-disk-pressure-400mb": ("slot-steal-shared-prefix", {"store-then-evict", "write-amplification"}),
    "h-long-continued-2slots": ("slot-steal-trivial-prefix", {"write-amplification"}),
    "h-sigterm-busy": ("server-stopped", {"unrelated-prompt"}),
    "i-openai-tools": (
        "tool-bytes-retokenised",
        {"reasoning-retokenised", "shallow-disk-checkpoint", "write-amplification"},
    ),
    "i-tools-2026-05": (
        "reasoning-retokenised",
        {"lost-tool-turn", "client-history-rewrite", "unrelated-prompt", "write-amplification"},
    ),
    "j-errors": (
        "client-gave-up",
        {"exact-retry-no-rewind", "slot-steal-trivial-prefix", "slot-steal-shared-prefix", "unrelated-prompt",
         "write-amplification"},
    ),
    "m-tty-colours": ("slot-steal-shared-prefix", {"slot-steal-trivial-prefix"}),
}  # fmt: skip
NODISK = sorted((CAPTURES / "matrix").glob("*/*nodisk*/server.log"))


@pytest.fixture(scope="module")
def report():
    known = {}

    def of(name: str):
        if name not in known:
            known[name] = triage(read([str(CAPTURES / name / "server.log")]))
        return known[name]

    return of


@pytest.mark.parametrize("name", sorted(TRUE))
def test_verdict_and_no_false_alarm(name, report):
    first, beside = TRUE[name]
    ids = [f.mechanism for f in report(name).findings]
    assert ids[0] == first
    assert set(ids) <= {first, *beside}


def test_all_captures_are_judged():
    assert {p.parent.name for p in CAPTURES.glob("*/server.log")} == set(TRUE)


@pytest.mark.parametrize("log", NODISK, ids=lambda p: p.parent.name)
def test_without_a_disk_nothing_is_blamed_on_it(log):
    family = {"disk", "budget"}
    from triage.mechanisms import catalogue

    found = triage(read([str(log)])).findings
    assert not {f.mechanism for f in found if catalogue()[f.mechanism].family in family}


@pytest.mark.parametrize(
    ("log", "tokens"),
    [("matrix/W1/aug-2-nodisk", 1_619_562 - 256_195), ("matrix/W1/aug-2-disk", 412_988 - 245_955)],
)
def test_cost_equals_what_the_other_server_did(log, tokens):
    """The same workload was run under the reuse-aware server: the avoidable tokens are the measured difference."""
    first = triage(read([str(CAPTURES / log / "server.log")])).findings[0]
    assert first.mechanism == "slot-steal-shared-prefix"
    assert abs(first.quantities["avoidable_tokens"] - tokens) <= 0.01 * tokens


def test_counterfactual_proves_the_steal():
    reading = read([str(CAPTURES / "a-steal-sequential-11k-nodisk" / "server.log")])
    first = triage(reading, counterfactuals=True).findings[0]
    proof = first.counterfactual
    assert proof is not None and "reuse-aware" in proof.profile
    low, high = proof.tokens_range
    assert low <= proof.tokens_saved <= high
    assert abs(proof.tokens_saved - first.quantities["avoidable_tokens"]) <= 0.01 * proof.tokens_saved


def test_a_trace_settles_what_the_log_leaves_open():
    """Client "NR" of this capture does not replay the reasoning; by the log alone its tool turns look re-rendered."""
    folder = CAPTURES / "i-openai-tools"
    found = triage(read([str(folder / "server.log")], traces=[str(folder / "trace.txt")])).findings
    assert (found[0].mechanism, found[0].grade) == ("reasoning-retokenised", "trace")
    assert found[0].quantities["prompt_text_there"] == "</think>"
    assert "tool-bytes-retokenised" not in {f.mechanism for f in found}


def test_an_excerpt_says_that_it_was_not_replayed(tmp_path):
    path = tmp_path / "paste.md"
    path.write_text("live kv cache miss live=70120 prompt=70004 common=70004 reason=token-mismatch\n")
    first = triage(read([str(path)]), counterfactuals=True).findings[0]
    assert first.counterfactual is None
    assert "replay needs" in first.quantities["not_replayed"]
