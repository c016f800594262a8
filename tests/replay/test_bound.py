"""The bound is one: no policy, slots or disk get below it."""

from chats import MACHINE, days, options
from hypothesis import given, settings

from replay.bound import bound
from replay.configure import configs_of
from replay.rope import Piece
from replay.server import replay
from replay.workload import Asked, Segment, Workload


@settings(max_examples=30)
@given(workload=days(lanes=3, turns=6), chosen=options())
def test_no_server_is_better(workload, chosen):
    best = bound(workload, MACHINE).totals
    served = replay(workload, configs_of(None, chosen, workload), MACHINE).totals

    assert best.prefilled_tokens <= served.prefilled_tokens
    assert best.latency_s_sum <= served.latency_s_sum + 1e-6
    assert best.live_misses == best.evict_stores == best.evictions == 0


def test_every_token_is_evaluated_once():
    """Two prompts with a head of 100 tokens, then the first one with its reply and 10 more."""
    segments = {
        s.id: s
        for s in (Segment("h", 100), Segment("a", 50), Segment("b", 60), Segment("r", 7), Segment("u", 10))
    }
    h, a, b, r, u = (Piece(name, 0, s.tokens) for name, s in segments.items())
    requests = (
        Asked(1, (h, a), (r,), 7, "A", arrival_s=0.0),
        Asked(2, (h, b), (), 0, "B", after=1, think_s=1.0),
        Asked(3, (h, a, r, u), (), 0, "A", after=2, think_s=1.0),
    )

    found = bound(Workload(segments, requests), MACHINE)

    assert [row.prefilled_tokens for row in found.requests] == [150, 60, 10]


def test_nothing_is_kept_of_a_prompt_without_tokens():
    empty = Workload({}, (Asked(1, (), arrival_s=0.0),))

    assert bound(empty, MACHINE).requests[0].cached_tokens == 0
