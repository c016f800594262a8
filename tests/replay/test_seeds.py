"""The two excerpts from issues: no start lines, no seconds in their lines, a miss and what it cost."""

import pytest
from captured import seed


@pytest.mark.parametrize("name", ["slot-steal", "image-tail-miss"])
def test_what_the_excerpt_shows_is_what_the_replay_does(name):
    made = seed(name)
    found = made.fidelity(made.run())

    assert found.requests == found.agree == 2


def test_a_steal_shows_its_misses_stores_and_restore():
    first, second = seed("slot-steal").run().requests

    assert (
        first.evicted_live_tokens,
        first.common,
        [s.tokens for s in first.stores if s.reason == "evict"],
    ) == (
        80268,
        11154,
        [80268],
    )
    assert (second.evicted_live_tokens, second.disk_hit_tokens) == (90166, 80268)
    assert first.slot == second.slot


def test_under_the_reuse_aware_score_no_miss_is_left_after_both_first_turns():
    after = seed("slot-steal").run(server="ds4-2026-09-reuse", slots=2)

    _, second = after.requests
    assert after.totals.live_misses == after.totals.evict_stores == 0
    assert (second.source, second.cached_tokens, second.disk_hit_tokens) == ("memory-token", 80268, 0)
    assert {row.slot for row in after.requests} == {0, 1}


def test_a_rewind_keeps_all_but_the_last_407_tokens_of_an_image_session():
    miss = seed("image-tail-miss").run(reuse="rewind-to-common").requests[1]

    assert (miss.source, miss.cached_tokens, miss.prefilled_tokens) == ("memory-rewind", 340144, 407)


def test_without_it_every_token_is_evaluated_again():
    miss = seed("image-tail-miss").run().requests[1]

    assert (miss.cached_tokens, miss.prefilled_tokens, miss.evicted_live_tokens) == (0, 340551, 340263)


def test_disk_reuse_for_image_sessions_loads_the_last_checkpoint():
    miss = seed("image-tail-miss").run(store="images-on-disk").requests[1]

    assert miss.source == "disk-text"
    assert 0 < miss.cached_tokens < 340144
    assert miss.prefilled_tokens == 340551 - miss.cached_tokens


def test_the_lines_say_nothing_of_seconds():
    """The 24-28 seconds a turn stand in prose: the costs are declared or nobody's."""
    made = seed("slot-steal")

    assert not made.costs.known
    assert made.reading.hearsay
