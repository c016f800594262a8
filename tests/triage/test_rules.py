"""Rules on records built by hand: the order of 3.1, the arithmetic of section 1, ranking, stretches."""

from __future__ import annotations

from itertools import count

import pytest

from parser.event import Event
from parser.eventlog import EventLog
from parser.reading import Reading, ServerRun
from parser.request import Request
from triage.build import view_of
from triage.evidence import event_sign
from triage.fallback import fallbacks
from triage.mechanisms import built_in
from triage.merge import merged
from triage.ranking import Judged, rank
from triage.thresholds import Thresholds
from triage.trigger import triggers


class Log:
    """A log in the making: misses and spans become events and request rows."""

    def __init__(self, slots: int | None = None) -> None:
        self.events: list[Event] = []
        self.requests: list[Request] = []
        self.slots, self.seq = slots, count()

    def event(self, kind: str, rule: str, **fields) -> Event:
        seq = next(self.seq)
        event = Event(seq, seq + 1, 0, 0, 0, None, kind, rule, fields)
        self.events.append(event)
        return event

    def miss(
        self, live: int, prompt: int, common: int, *, hit=None, start=None, gen=None, finish=None, flags=()
    ):
        own = [self.event("live_miss", "miss", live=live, prompt=prompt, common=common)]
        if hit is not None:
            own.append(self.event("kv_hit", "hit", tokens=hit))
        begun = self.event("prompt_start", "start", span_end=prompt)
        start = start if start is not None else hit or 0
        row = Request(
            len(self.requests) + 1, own[0].line, prompt_tokens=prompt, canonical_prompt_tokens=prompt,
            cached_tokens=start, prefilled_tokens=prompt - start, live_before=live, common=common,
            disk_hit_tokens=hit, generated_tokens=gen, finish=finish, flags=tuple(flags),
            events=(*(e.seq for e in own), begun.seq), prompt_line=begun.line,
        )  # fmt: skip
        self.requests.append(row)
        return row

    def view(self):
        run = ServerRun(0, 0, 0, 1, len(self.events), 0, len(self.events), slots=self.slots)
        log = EventLog(self.events)
        return view_of(
            Reading(kind="report", events=log, requests=self.requests, runs=[run], counts=log.counts),
            Thresholds(),
        )


def trigger_of(log: Log, index: int = -1) -> str:
    view = log.view()
    return triggers(view)[id(view.episodes[index])].mechanism


@pytest.mark.parametrize(
    ("live", "prompt", "common", "wanted"),
    [
        (30_000, 31_000, 0, "invalid-checkpoint"),
        (30_000, 29_000, 29_000, "exact-retry-no-rewind"),
        (30_000, 9_000, 63, "side-calls-on-one-slot"),
        (30_000, 29_000, 63, "unrelated-prompt"),
        (30_000, 31_000, 29_500, "tool-bytes-retokenised"),
        (30_000, 29_900, 29_500, "reasoning-retokenised"),
        (30_000, 31_000, 14_000, "client-early-edit"),
        (30_000, 27_000, 24_000, "tail-mismatch-no-rewind"),
        (30_000, 20_000, 9_000, "client-history-rewrite"),
    ],
)
def test_the_first_rule_that_fits_names_the_trigger(live, prompt, common, wanted):
    log = Log()
    log.miss(live, prompt, common)
    assert trigger_of(log) == wanted


def test_reply_begins_where_the_last_prompt_ended():
    log = Log()
    log.miss(9_000, 20_000, 100, gen=300, finish="tool_calls")
    log.miss(20_300, 20_900, 20_007)
    assert trigger_of(log) == "tool-bytes-retokenised"
    log.requests[0].finish = "stop"
    assert trigger_of(log) == "reasoning-retokenised"


def test_sixteen_tokens_before_it_is_no_reply():
    log = Log()
    log.miss(9_000, 20_000, 100, gen=300, finish="stop")
    log.miss(20_300, 20_900, 19_984)
    assert trigger_of(log) == "tail-mismatch-no-rewind"


def test_two_slots_make_the_head_a_steal():
    log = Log(slots=2)
    log.miss(30_000, 29_000, 63)
    assert trigger_of(log) == "slot-steal-trivial-prefix"


@pytest.mark.parametrize(
    ("common", "hit", "wanted"),
    [
        (30_000, 28_500, "shallow-disk-checkpoint"),  # C/20 = 1500
        (30_000, 28_501, None),
        (10_000, 8_976, "shallow-disk-checkpoint"),  # 1024
        (10_000, 8_977, None),
    ],
)
def test_shallow_begins_at_the_larger_of_1024_and_five_percent(common, hit, wanted):
    log = Log()
    log.miss(common + 100, common, common, hit=hit)
    view = log.view()
    fell = fallbacks(view).get(id(view.episodes[0]))
    assert (fell.mechanism if fell else None) == wanted


def test_section_1_arithmetic():
    log = Log()
    log.miss(73_610, 75_219, 73_502)
    episode = log.view().episodes[0]
    assert episode.reprefill == 75_219
    assert episode.changed == 1_717
    assert episode.not_replayed == 108
    assert episode.new == 1_609
    assert episode.cache_loss() == 73_502


def judged(name: str, tokens: int, *, requests=(), grade="log") -> Judged:
    sign = event_sign(name, [], {}, tokens=tokens, grade=grade, numbers=tuple(requests))
    return Judged(built_in(name), sign)


def order(*signs: Judged) -> list[str]:
    return [j.id for j in rank(signs, 200.0)]


def test_broken_runs_come_first_the_most_specific_of_them_ahead():
    assert order(
        judged("client-early-edit", 900_000), judged("engine-prefill-failure", 10), judged("poisoned-checkpoint", 1),
        judged("out-of-memory", 0), judged("distributed-failure", 0),
    ) == ["out-of-memory", "distributed-failure", "poisoned-checkpoint", "engine-prefill-failure", "client-early-edit"]  # fmt: skip


def test_cost_decides_among_independent_faults():
    assert order(judged("client-early-edit", 10_000), judged("exact-retry-no-rewind", 20_000)) == [
        "exact-retry-no-rewind",
        "client-early-edit",
    ]


def test_the_trigger_stands_before_its_fallback_even_if_that_costs_more():
    assert order(
        judged("shallow-disk-checkpoint", 9_000, requests=[1]), judged("client-early-edit", 100, requests=[1])
    ) == ["client-early-edit", "shallow-disk-checkpoint"]


def test_a_hit_not_used_leads_its_trigger():
    assert order(
        judged("exact-retry-no-rewind", 9_000, requests=[1]), judged("hit-not-used", 8_000, requests=[1])
    ) == ["hit-not-used", "exact-retry-no-rewind"]


def test_consequences_stand_behind_their_cause_and_lead_without_it():
    assert order(judged("client-gave-up", 90_000), judged("prefill-stall", 10)) == [
        "prefill-stall",
        "client-gave-up",
    ]
    assert order(judged("client-gave-up", 90_000), judged("client-early-edit", 10))[0] == "client-gave-up"


def test_information_comes_last_and_the_all_clear_never_beside_an_alarm():
    assert order(judged("healthy", 0), judged("unrelated-prompt", 0), judged("client-early-edit", 1)) == [
        "client-early-edit",
        "unrelated-prompt",
    ]
    assert order(judged("healthy", 0)) == ["healthy"]


def test_hearsay_stands_behind_events():
    assert order(judged("client-early-edit", 900_000, grade="hearsay"), judged("budget-eviction", 0)) == [
        "budget-eviction",
        "client-early-edit",
    ]


def test_stretches_of_a_long_log_add_up():
    signs = [judged("client-early-edit", n, requests=[n]) for n in (100, 300, 200)]
    for one in signs:
        one.sign.figures.update(changed_tokens=one.sign.avoidable_tokens, common_tokens=7, reuse_percent=50.0)
    (whole,) = merged(signs, 200.0)
    assert whole.sign.avoidable_tokens == 600
    assert whole.sign.figures["changed_tokens"] == 600
    assert whole.sign.figures["common_tokens"] == 7
    assert whole.sign.requests == (100, 200, 300)
