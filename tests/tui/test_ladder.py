"""The cache ladder and the prompt's segments of single requests (cache-behaviour section 3)."""

from parser.request import Request, Store
from tui.ladder import Segment, divergence, ladder, segments


def steps(**fields):
    disk, family = fields.pop("disk", True), fields.pop("family", "deepseek-v4")
    return {step.name: step for step in ladder(Request(1, 1, **fields), disk=disk, family=family)}


def test_a_disk_hit_after_a_miss():
    found = steps(
        source="disk-text", live_before=3338, common=1090, prompt_tokens=3217, cached_tokens=2825,
        evicted_live_tokens=3338, evict_stored=True, disk_hit_tokens=2825, load_ms=20.0,
        stores=(Store(3338, "evict", 70.25),),
    )  # fmt: skip
    assert found["memory-token"].verdict == "failed"
    assert "1,090 of 3,338 live tokens shared" in found["memory-token"].because
    assert found["memory-rewind"].because == "this model cannot cut its live state"
    assert found["evict"].because == "3,338 tokens saved, 70.2 MiB"
    assert (found["disk-text"].verdict, found["cold"].verdict) == ("held", "not tried")


def test_a_hit_in_memory_ends_the_ladder():
    found = steps(source="memory-token", live_before=1000, cached_tokens=1000, prompt_tokens=1200)
    assert [name for name, step in found.items() if step.verdict == "held"] == ["memory-token"]
    assert {
        found[name].verdict for name in ("thinking-visible", "memory-text", "evict", "disk-text", "cold")
    } == {"not tried"}


def test_token_or_text_is_said_where_the_log_cannot_tell():
    found = steps(source="memory", live_before=1000, cached_tokens=1000, prompt_tokens=1200)
    assert found["memory-token"].verdict == found["memory-text"].verdict == "held"
    assert "does not tell" in found["memory-text"].because


def test_a_cold_start_in_an_empty_slot():
    found = steps(source="cold", live_before=0, cached_tokens=0, prompt_tokens=500)
    assert found["memory"].because == "the slot was empty"
    assert found["cold"].verdict == "held"


def test_a_loss_without_a_disk_cache():
    found = steps(source="cold", live_before=900, common=27, evicted_live_tokens=900, disk=False)
    assert found["evict"].verdict == "failed"
    assert "no disk cache" in found["evict"].because
    assert found["disk-text"].because == "no disk cache"


def test_nothing_is_claimed_where_the_source_is_not_known():
    (step,) = ladder(Request(1, 1), disk=None, family=None)
    assert step.verdict == "unknown"


def test_segments_follow_what_was_reused_and_what_was_known():
    request = Request(1, 1, prompt_tokens=1000, cached_tokens=200, common=700, live_before=900)
    assert segments(request) == (
        Segment("reused", 0, 200),
        Segment("again", 200, 700),
        Segment("new", 700, 1000),
    )
    request.lost_to_cache_tokens = 100  # the parser's own figure goes first
    assert segments(request)[1] == Segment("again", 200, 300)
    assert segments(Request(1, 1, prompt_tokens=10, cached_tokens=10)) == (Segment("reused", 0, 10),)
    assert segments(Request(1, 1, prompt_tokens=10)) == ()


def test_divergence_is_the_traces_else_the_miss_lines():
    assert divergence(Request(1, 1, common=700, live_before=900)) == 700
    assert divergence(Request(1, 1, common=700, live_before=900, mismatch_first=701)) == 701
    assert divergence(Request(1, 1, common=900, live_before=900)) is None
