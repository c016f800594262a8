"""Outcomes side by side: the first field that differs, slots as labels, misses that went, stayed and came."""

from dataclasses import replace

import pytest
from captured import study
from hypothesis import given
from hypothesis import strategies as st

from replay.compare import compare
from replay.matching import by_content, by_number, judge
from replay.outcome import Outcome


@pytest.fixture
def served():
    return study("matrix/W1/aug-2-disk").run()


def changed(outcome, request, **fields):
    rows = tuple(replace(r, **fields) if r.request == request else r for r in outcome.requests)
    return Outcome(rows, outcome.totals)


def test_an_outcome_agrees_with_itself(served):
    found = compare(served, served)

    assert (found.requests, found.agree, found.first_divergence) == (16, 16, None)


def test_slots_are_labels():
    """The same server with its slots counted the other way round."""
    one = study("h-long-continued-2slots").run()
    other = Outcome(tuple(replace(r, slot=1 - (r.slot or 0)) for r in one.requests), one.totals)

    assert compare(one, other).fraction == 1.0


def test_a_slot_that_only_the_other_outcome_uses_has_a_label_of_its_own():
    made = study("a-steal-sequential-11k")
    first = made.fidelity(made.run(scheduler="reuse-aware"), scheduler="reuse-aware").first_divergence

    assert (first.request, first.field, first.observed, first.predicted) == (2, "slot", 0, 1)


def test_what_differs_under_other_rules_is_no_fault_of_the_model():
    made = study("a-steal-sequential-11k")

    assert {
        d.why for d in made.fidelity(made.run(slots=3, scheduler="lru"), slots=3, scheduler="lru").divergences
    } == {"other-rules"}
    assert not made.other_rules(server="ds4-2026-08")


def test_one_request_in_another_slot_is_one_divergence(served):
    found = compare(served, changed(served, 5, slot=1))

    assert [(d.request, d.field) for d in found.divergences] == [(5, "slot")]


@pytest.mark.parametrize(
    ("field", "value"),
    [("source", "cold"), ("cached_tokens", 7), ("disk_hit_tokens", 9), ("evict_store", ())],
)
def test_the_first_field_that_differs_is_named(served, field, value):
    name = "stores" if field == "evict_store" else field
    found = compare(served, changed(served, 3, **{name: value}))

    assert [(d.request, d.field) for d in found.divergences] == [(3, field)]


def test_what_the_log_does_not_tell_is_not_compared(served):
    unknown = changed(served, 3, slot=None, source=None, cached_tokens=None, disk_hit_tokens=None)

    assert compare(unknown, served).fraction == 1.0
    assert (
        compare(changed(served, 3, source="memory"), changed(served, 3, source="memory-token")).fraction
        == 1.0
    )


def test_a_policy_that_takes_all_misses_away():
    made = study("matrix/W1/aug-2-disk")
    verdict = judge(by_number(made.observed, made.run(server="ds4-2026-09-reuse")))

    assert verdict.metrics() == {"misses_gone": 15, "misses_stayed": 0, "misses_new": 0, "unmatched": 0}


def test_two_logs_of_the_same_clients():
    one, other = study("matrix/W4/R-2-disk"), study("matrix/W4/aug-2-disk")
    pairs = by_content((one.observed, one.reading), (other.observed, other.reading))
    verdict = judge(pairs)

    assert len(pairs) == 26
    assert verdict.metrics()["unmatched"] == 0
    assert (len(verdict.gone), len(verdict.new)) == (0, 2)


@given(st.sets(st.integers(1, 16)))
def test_requests_that_one_log_lacks_have_no_counterpart(missing):
    made = study("matrix/W1/aug-2-disk")
    part = Outcome(tuple(r for r in made.observed.requests if r.request not in missing), made.observed.totals)
    pairs = by_content((made.observed, made.reading), (part, made.reading))

    assert sum(pair.after is None for pair in pairs) == len(missing)
    assert all(p.before.request == p.after.request for p in pairs if p.before and p.after)


def test_states_that_changed_places_once_are_one_divergence():
    """From request 9 on, what the log has in slot 0 the replay has in slot 1, and the other way round."""
    one = study("matrix/W1/R-2-disk").run()
    rows = tuple(r if r.request < 9 else replace(r, slot=1 - (r.slot or 0)) for r in one.requests)
    found = compare(one, Outcome(rows, one.totals))

    assert {d.field for d in found.divergences} == {"slot"}
    assert found.divergences[0].request == 9
    assert len(found.divergences) == 2  # one a conversation
