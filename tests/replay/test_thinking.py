"""Conversations whose client sends no reasoning back, and turns with tool calls: what later prompts hold of a reply."""

from random import Random

import pytest
from chats import MACHINE, Day
from test_several import logged

from parser.request import Request
from replay.configure import configs_of
from replay.decisions import Finished
from replay.marks import Between, marks
from replay.rope import length
from replay.server import replay
from replay.shown import Known, Link, shown

TOTALS = ("live_misses", "evict_stores", "disk_hits", "evictions", "prefilled_tokens")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("mixed", [{"thinking": 1}, {"thinking": 0.5, "tools": 0.5}, {"tools": 1}])
def test_other_servers(tmp_path, seed, mixed):
    """From the log of a server with room on its disk, three conversations of one client under others."""
    workload = Day(Random(seed), [3], 16, **mixed).workload()
    made, _, _ = logged(workload, tmp_path, slots=2, kv_disk_space_mb=8192)

    for slots, disk in (("single", 8192), (3, 600), (2, 0)):
        chosen = {
            "server": "ds4-2026-09-reuse",
            "slots": slots,
            "kv_disk": disk > 0,
            "kv_disk_space_mb": disk or 1,
        }
        truth = replay(workload, configs_of(None, chosen, workload), MACHINE).totals
        found = made.run(**chosen).totals
        for total in TOTALS:
            exact = getattr(truth, total)
            assert abs(getattr(found, total) - exact) <= max(1, 0.02 * exact), (total, chosen)
        assert found.latency_s_sum == pytest.approx(truth.latency_s_sum, rel=0.05)


def kept(rows):
    """Tokens of each thinking turn's reply that a next prompt holds."""
    return [length(row.shown) - row.drop for row in rows if row.thinking and row.shown is not None]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_shown_without_a_disk(tmp_path, seed):
    """Flags of decoding lines tell it to within 50 tokens."""
    workload = Day(Random(seed), [2], 20, thinking=1).workload()
    made, _, order = logged(workload, tmp_path, slots="single", kv_disk=False)
    true = kept(workload.by_number[number] for number in order)
    off = [abs(one - other) for one, other in zip(kept(made.workload.requests), true, strict=True)]

    assert max(off) <= 25


@pytest.mark.parametrize("seed", range(4))
def test_what_is_shown_is_exact_behind_a_file(tmp_path, seed):
    """A prompt that goes on from a file of its visible text has all its tokens in the log."""
    workload = Day(Random(seed), [2], 12, thinking=1).workload()
    made, _, order = logged(workload, tmp_path, slots="single", kv_disk_space_mb=8192)
    links = made.extraction.evidence.served_from
    read = [index for index, file in links.items() if file.key == "thinking-visible"]

    assert read
    for index in read:
        assert made.workload.requests[index].prompt_tokens == workload.by_number[order[index]].prompt_tokens


def test_a_chain_up_to_a_prompt_of_known_length_is_exact_together():
    """1000 tokens, two replies of which 40 to 60 and 100 to 200 are shown, 30 and 20 tokens behind them: 1230 in all."""
    links = {1: Link(0, 30, None), 2: Link(1, 20, 1230)}
    known = Known(
        [request(1000), request(None), request(1230)], {0: Between(40, 60), 1: Between(100, 200)}, links
    )

    assert shown(known) == {0: 47, 1: 133}


def request(tokens):
    return Request(1, 1, prompt_tokens=tokens, canonical_prompt_tokens=tokens)


@pytest.mark.parametrize("seed", range(3))
def test_flags_say_where_reasoning_ends_and_a_call_begins(tmp_path, seed):
    workload = Day(Random(seed), [2], 10, thinking=0.5, tools=0.5).workload()
    made, log, order = logged(workload, tmp_path, slots=2, kv_disk=False)
    found = marks(made.reading)
    done = {row.request for row in log if isinstance(row, Finished)}

    for index, number in enumerate(order):
        asked = workload.by_number[number]
        if asked.tool_block and number in done:
            assert found.block[index].least <= asked.tool_block[0] <= found.block[index].most
        if index in found.reasoning:
            ended = asked.generated - (length(asked.shown) - asked.drop) + 1
            assert found.reasoning[index].least < ended <= found.reasoning[index].most
    assert found.block
    assert found.reasoning


def test_the_middle_of_a_line():
    assert Between(50, 100).middle == 75
