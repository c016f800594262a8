"""Carrying a decision log out: every claim is checked against the tokens and tensors at hand, and what does not
hold is named."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from listed import RING, WINDOW, carried, decided
from worlds import configs, workloads

from parser.reading import read
from replay.backends.carry import pieces
from replay.backends.mlx import TensorOptions, carry_out
from replay.backends.tokens import TokenMap, sampled
from replay.config import ServerConfig
from replay.decisions import Decoded, EvictedFile, Missed, Prefilled, Restored, Rewound, Stored
from replay.models.model import IMAGE_ROW
from replay.models.scale import Scale
from replay.rope import Piece, cut, length
from replay.study import study_of
from replay.workload import Asked, Image, Segment, Workload

FIXTURES = Path(__file__).parents[2] / "fixtures"


# -- the server's own decisions hold, whatever the workload ------------------------------------------------------


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(workloads(), configs())
def test_the_ladder_of_every_generation_is_borne_out(workload, config):
    config = replace(config, reuse="ladder", store="profile")
    log, outcome = decided(workload, config)
    carrier, differ = carried(workload, config, log, outcome)
    assert not carrier.unsound and not differ
    assert all(check.difference == 0.0 for check in carrier.prover.checks)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(workloads(), configs(), st.sampled_from((2, 3, 16)))
def test_a_scaled_replay_moves_the_same_decisions(workload, config, scale):
    """Counts are rounded up together, so order and equality of positions are kept."""
    config = replace(config, reuse="ladder", store="profile")
    log, outcome = decided(workload, config)
    carrier, differ = carried(workload, config, log, outcome, scale)
    assert not carrier.unsound and not differ


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(workloads(), configs())
def test_a_rewind_is_named_exactly_when_the_cache_cannot(workload, config):
    config = replace(config, reuse="rewind-to-common")
    log, outcome = decided(workload, config)
    carrier, _ = carried(workload, config, log, outcome)
    named = [u.request for u in carrier.unsound if u.decision == "Rewound"]
    rewinds = [r for r in log if isinstance(r, Rewound) and r.kept < r.live]
    if config.family == "glm":
        assert not carrier.unsound
    elif config.family == "qwen-next":
        assert named == [r.request for r in rewinds]
    else:
        assert set(named) >= {r.request for r in rewinds if r.live - max(0, r.kept - WINDOW) > RING}
    assert all("rewind-to-common" in u.why for u in carrier.unsound if u.decision == "Rewound")


@settings(max_examples=35, deadline=None, suppress_health_check=list(HealthCheck))
@given(workloads(), configs(), st.sampled_from(("rewind-in-ring", "rewind-points")))
def test_rewinds_within_the_ring_and_to_saved_points_are_those_that_the_cache_can(workload, config, reuse):
    """The policies' integers against the cache's own predicate, also after restores and earlier rewinds."""
    config = replace(config, reuse=reuse, ring_rows=RING, store="profile")
    log, outcome = decided(workload, config)
    carrier, differ = carried(workload, config, log, outcome)
    assert not carrier.unsound and not differ


# -- a small world to break --------------------------------------------------------------------------------------


def world():
    """Two talks with a common head on one slot: each turn misses, is stored, and comes back from its file."""
    segments, requests = {"head": Segment("head", 300)}, []
    talks = {"a": (Piece("head", 0, 300),), "b": (Piece("head", 0, 300),)}
    for number in range(1, 7):
        who = "ab"[number % 2]
        for kind, tokens in (("ask", 60), ("say", 20)):
            segments[f"{kind}{number}"] = Segment(f"{kind}{number}", tokens)
        prompt = (*talks[who], Piece(f"ask{number}", 0, 60))
        reply = (Piece(f"say{number}", 0, 20),)
        talks[who] = (*prompt, *reply)
        requests.append(
            Asked(number, prompt, reply, 20, after=number - 1 or None, arrival_s=None if number > 1 else 0.0)
        )
    config = ServerConfig(
        ctx=4096, kv_cache_min_tokens=64, kv_cache_cold_max_tokens=0, kv_cache_continued_interval_tokens=0,
        prefill_chunk=128, kv_disk_space_mb=4096,
    )  # fmt: skip
    return Workload(segments, tuple(requests)), config


def test_the_small_world_misses_and_restores_on_real_tensors():
    workload, config = world()
    log, outcome = decided(workload, config)
    assert outcome.totals.disk_hits == 4 and outcome.totals.live_misses == 5
    result = carry_out(workload, [config], log, outcome, TensorOptions(device="cpu", samples=None))
    assert result.agree and result.exact
    assert {check.kind for check in result.checks} >= {"chunking", "restore", "decode", "rewind-instead"}
    assert result.spent.prefill_tokens == outcome.totals.prefilled_tokens
    assert result.memory_peak_bytes <= result.memory_bound_bytes
    assert result.disk_peak_bytes > 0
    assert all(view.ring_needed == view.back + 128 for view in result.rewinds)
    assert (
        result.rewinds[0].sound and "holds those from" in result.rewinds[-1].reason
    )  # restored: window only


def test_seconds_and_bytes_are_those_of_real_files():
    workload, config = world()
    log, outcome = decided(workload, config)
    spent = carry_out(workload, [config], log, outcome, TensorOptions(device="cpu", samples=0)).spent
    assert spent.save_bytes >= spent.load_bytes > 0 and spent.save_s > 0 and spent.load_s > 0
    assert spent.decode_steps == 6 * 20


def broken(change, kind):
    """The small world with one record of its log changed; what is then named."""
    workload, config = world()
    log, outcome = decided(workload, config)
    at = next(i for i, row in enumerate(log) if isinstance(row, kind))
    log[at : at + 1] = change(log[at])
    carrier, differ = carried(workload, config, log, outcome)
    return [u.why for u in (*carrier.unsound, *differ)]


def test_reuse_that_is_not_in_the_cache_is_named():
    """A scheduler or reuse plug-in that says: these 200 tokens are there, start behind them."""
    named = broken(lambda row: [replace(row, start=200)], Prefilled)
    assert any("200 reused tokens are claimed, the cache holds 0" in why for why in named)


def test_a_restore_from_a_file_that_was_evicted_is_named():
    def evict(row):
        return [EvictedFile(row.at_s, row.request, row.file, row.tokens, 0, row.size), row]

    assert any("to load" in why for why in broken(evict, Restored))


def test_a_file_of_another_conversation_is_named():
    other = "f1"  # the first evict store is of the other talk
    named = broken(lambda row: [replace(row, file="f2" if row.file == other else other)], Restored)
    assert any("does not hold" in why or "to load" in why for why in named)


def test_a_state_that_the_slot_does_not_hold_is_not_stored():
    named = broken(lambda row: [replace(row, state=cut(row.state, length(row.state) - 1))], Stored)
    assert any("is not what slot 0 holds" in why for why in named)


def test_a_wrong_common_prefix_is_named():
    named = broken(lambda row: [replace(row, common=row.common + 5)], Missed)
    assert any("common=305, the caches agree for 300" in why for why in named)


def test_a_live_state_that_was_not_evaluated_is_named():
    named = broken(lambda row: [replace(row, end=row.end - 1)], Decoded)
    assert any("live tokens are not what slot 0 holds" in why for why in named)


def test_an_outcome_that_counts_other_tokens_than_were_moved_is_named():
    named = broken(lambda row: [], Stored)
    assert any(why.startswith("stores: the model counts") for why in named)


def test_a_directory_over_its_budget_is_named():
    named = broken(lambda row: [replace(row, size=5 << 30)], Stored)
    assert any("over the budget" in why for why in named)


def test_a_rewind_is_carried_out_and_its_logits_are_those_of_a_cold_prefill():
    workload, config = world()
    for family in ("glm", "deepseek-v4"):
        one = replace(config, family=family, reuse="rewind-to-common", kv_disk=False)
        log, outcome = decided(workload, one)
        assert any(isinstance(row, Rewound) for row in log)
        result = carry_out(workload, [one], log, outcome, TensorOptions(device="cpu", scale=2))
        assert result.agree and "rewind" in {check.kind for check in result.checks}


def test_a_rewind_of_recurrent_state_is_refused_unless_the_point_was_saved():
    workload, config = world()
    one = replace(config, family="qwen-next", reuse="rewind-to-common", kv_disk=False)
    log, outcome = decided(workload, one)
    result = carry_out(workload, [one], log, outcome, TensorOptions(device="cpu", scale=4))
    rewinds = [row for row in log if isinstance(row, Rewound)]
    assert len([u for u in result.unsound if u.decision == "Rewound"]) == len(rewinds)
    assert "was not saved" in result.unsound[0].why and not result.agree
    first = workload.requests[0]
    longer = replace(first, request=2, after=1, arrival_s=None, prompt=(*first.prompt, Piece("ask2", 0, 60)))
    again = Workload(workload.segments, (first, longer))
    points = replace(one, reuse="rewind-points")
    log, outcome = decided(again, points)
    assert any(isinstance(row, Rewound) for row in log)
    assert carry_out(again, [points], log, outcome, TensorOptions(device="cpu", scale=4)).agree


def mismatch(depth):
    """The second seed's request: live 340263, prompt 340551, common 340144, moved to another depth."""
    live, shared, prompt = depth, depth - 119, depth + 288
    segments = {
        "talk": Segment("talk", shared),
        "end": Segment("end", 119),
        "new": Segment("new", prompt - shared),
    }
    first = Asked(
        1, (Piece("talk", 0, shared), Piece("end", 0, 118)), (Piece("end", 118, 119),), 1, arrival_s=0.0
    )
    second = Asked(2, (Piece("talk", 0, shared), Piece("new", 0, prompt - shared)), after=1)
    assert live == shared + 119
    return Workload(segments, (first, second))


def seen(workload, family, ring, scale):
    config = ServerConfig(ctx=400_000, family=family, kv_disk=False, ring_rows=ring)
    log, outcome = decided(workload, config)
    result = carry_out(workload, [config], log, outcome, TensorOptions(device="cpu", scale=scale))
    assert result.agree and any("ds4" in note for note in result.notes)
    (view,) = result.rewinds
    assert view.back == 119
    return result, view


def test_the_second_seeds_rewind_turns_with_the_size_of_the_ring():
    """119 tokens back: sound where rows can be cut; in a ring from 119 + 128 rows on."""
    for ring in (128, 246, 247, 4352):
        result, view = seen(mismatch(500), "deepseek-v4", ring, 1)
        assert view.sound == (ring >= 247) and view.ring_needed == 247
        proved = [check.difference for check in result.checks if check.kind == "rewind-instead"]
        assert proved == ([0.0] if view.sound else [])
        assert "holds those from" in view.reason or view.sound
    result, view = seen(mismatch(500), "glm", None, 1)
    assert view.sound and view.ring_needed is None
    assert [check.difference for check in result.checks if check.kind == "rewind-instead"] == [0.0]


def test_the_second_seeds_rewind_at_its_own_depth():
    assert seen(mismatch(340263), "deepseek-v4", 247, 512)[1].sound
    assert "246 rows, 247 are needed" in seen(mismatch(340263), "deepseek-v4", 246, 512)[1].reason
    assert not seen(mismatch(340263), "qwen-next", None, 512)[1].sound


def test_a_scaled_ring_goes_back_as_far_as_the_full_one_and_no_further():
    workload = mismatch(9000)
    for ring in (246, 247):
        config = ServerConfig(ctx=10_000, kv_disk=False, ring_rows=ring, reuse="rewind-to-common")
        log, outcome = decided(workload, config)
        result = carry_out(workload, [config], log, outcome, TensorOptions(device="cpu", scale=64))
        named = [u.why for u in result.unsound if u.decision == "Rewound"]
        assert len(named) == (ring < 247) and all(
            "at full size the ring has 246 rows" in why for why in named
        )


# -- logs of the real server -------------------------------------------------------------------------------------

LOGS = (
    "captures/b-steal-after-overlap-11k", "captures/c-single-slot-11k-2026-05", "captures/d-3conv-2slots",
    "captures/e-tail-mismatch-glm", "captures/h-sigterm-busy", "captures/i-openai-tools", "captures/j-errors",
    "captures/matrix/W1/aug-2-disk", "captures/matrix/W4/GLMRW-2-disk", "seeds/slot-steal.md", "seeds/image-tail-miss.md",
)  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_replayed_with_every_miss_and_eviction(name):
    """The whole of `fixtures/captures` is replayed by `benchmarks/mlx.py --logs`; here a few, far scaled down."""
    path = FIXTURES / name if name.endswith(".md") else FIXTURES / name / "server.log"
    study, log = study_of(read([path])), []
    outcome = study.run(log=log)
    result = carry_out(study.workload, study.configs(), log, outcome, TensorOptions(device="cpu", scale=256))
    assert result.agree and result.exact and result.checks
    assert study.observed.totals.live_misses == outcome.totals.live_misses
    assert study.observed.totals.evictions == outcome.totals.evictions


# -- tokens ------------------------------------------------------------------------------------------------------


def test_tokens_of_equal_ropes_are_equal_and_those_of_others_differ_at_once():
    workload, _ = world()
    tokens = TokenMap(workload, Scale(1))
    one, other = (tokens.of(asked.prompt, None) for asked in workload.requests[:2])
    assert (one[:300] == other[:300]).all() and one[300] != other[300]
    assert len(set(one.tolist())) == len(one)


def test_an_image_is_rows_of_its_own_wherever_the_effective_prompt_puts_it():
    segments = {"s": Segment("s", 50), "i": Segment("i", 30), "w": Segment("w", 45)}
    asked = Asked(1, (Piece("s", 0, 50), Piece("i", 0, 30)), images=(Image(55, 10, "cat"),))
    other = Asked(2, asked.prompt, images=(Image(55, 10, "dog"),))
    tokens = TokenMap(Workload(segments, (asked, other)), Scale(1))
    mine, theirs = tokens.of(asked.prompt, 1), tokens.of(other.prompt, 2)
    assert [int(n) for n in (mine >= IMAGE_ROW).nonzero()[0]] == list(range(55, 65))
    assert [int(n) for n in (mine != theirs).nonzero()[0]] == list(range(55, 65))
    shifted = tokens.of((Piece("w", 0, 45), Piece("i", 0, 30)), 1)
    assert (shifted[45:] == mine[50:]).all()


@given(st.integers(1, 60), st.integers(0, 59), st.integers(1, 9))
def test_scaled_texts_agree_exactly_as_far_as_the_full_ones(size, place, factor):
    one = np.arange(size, dtype=np.uint64)
    other = one.copy()
    other[place % size] ^= np.uint64(1 << 40)  # one token differs, the rest is equal again
    a, b = sampled(one, factor), sampled(other, factor)
    assert len(a) == len(b) == Scale(factor).size(size)
    agree = int((a != b).argmax()) if (a != b).any() else len(a)
    assert agree == Scale(factor).size(place % size)


@given(st.integers(0, 500), st.integers(1, 500), st.integers(0, 90), st.integers(1, 90))
def test_pieces_cover_the_span_and_chunks_end_on_absolute_multiples(start, size, quantum, chunk):
    cut_up = pieces(start, start + size, quantum, chunk)
    assert cut_up[0][0] == start and cut_up[-1][1] == start + size
    assert all(a[1] == b[0] for a, b in pairwise(cut_up))
    assert all(end % chunk == 0 for _, end in cut_up[:-1]) or quantum
