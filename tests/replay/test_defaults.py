"""What prompts extend where no line says it: chosen as a whole, since what comes later tells of what came before."""

from itertools import pairwise
from random import Random

import pytest
from chats import Day
from test_several import logged, shares

from replay.account import Account
from replay.asides import asides, side_calls
from replay.evidence import Evidence
from replay.people import People
from replay.prefixes import Agree, grow
from replay.rope import common, length
from replay.strings import canonical


@pytest.mark.parametrize("slots", ["single", 3])
@pytest.mark.parametrize("seed", range(8))
def test_two_conversations_without_a_disk(tmp_path, seed, slots):
    """A miss says only what the prompt shares with the other conversation's state; lengths and later turns say the rest."""
    workload = Day(Random(seed), [2], 14).workload()
    made, _, order = logged(workload, tmp_path, slots=slots, kv_disk=False)

    assert shares(made.workload, range(1, len(order) + 1)) == shares(workload, order)


@pytest.mark.parametrize("seed", range(1, 6))
def test_two_people_without_a_disk(tmp_path, seed):
    """Four conversations, two at once: who was served beside whom parts those of one length."""
    workload = Day(Random(seed), [2, 2], 14).workload()
    made, _, order = logged(workload, tmp_path, slots=3, kv_disk=False)

    assert shares(made.workload, range(1, len(order) + 1)) == shares(workload, order)


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 7, 8, 9])
def test_side_calls_without_a_disk_share_a_template(tmp_path, seed):
    """They met only others in their slot, so that they share something is a default: half of the shortest."""
    workload = Day(Random(seed), [3], 40, helpers=0.2).workload()
    made, _, order = logged(workload, tmp_path, slots=2, kv_disk=False)
    tasks = [
        made.workload.requests[i]
        for i, number in enumerate(order)
        if workload.by_number[number].conversation.startswith("help")
    ]

    assert len({row.conversation for row in tasks}) == len(tasks) >= 4
    assert {common(one.prompt, other.prompt) for one, other in pairwise(tasks)} == {
        min(length(row.prompt) for row in tasks) // 2
    }


def evidence(*lengths):
    strings = [n for prompt, whole in lengths for n in (prompt, whole, 0)]
    return Evidence([None] * len(lengths), strings)


def test_a_template_is_what_two_are_known_to_share():
    """Three prompts of 900 tokens; the log shows that the first two share 700."""
    known = evidence((900, 920), (950, 990), (980, 1000))
    tree = grow(known.lengths, [Agree(canonical(1), canonical(0), 700)])

    assert {i: way and (way.string, way.depth) for i, (way, _) in asides(known, tree, [{0, 1, 2}])} == {
        0: None,
        1: (canonical(0), 700),
        2: (canonical(0), 700),
    }


def test_a_template_that_nothing_shows_is_half_of_the_shortest():
    known = evidence((900, 920), (950, 990))
    tree = grow(known.lengths, [])

    way, spread = dict(asides(known, tree, [{0, 1}]))[1]
    assert (way.depth, spread) == (450, 50)


@pytest.mark.parametrize(
    ("lengths", "talks", "expected"),
    [
        ([900, 950, 910, 990], [(0,), (1,), (2,), (3,)], {0, 1, 2, 3}),
        ([900, 950, 910], [(0,), (1,), (2,)], set()),  # three are too few
        ([900, 2000, 5000, 12000], [(0,), (1,), (2,), (3,)], set()),  # of no common length
        ([900, 2000, 3000, 4000], [(0, 1, 2, 3)], set()),  # a conversation that grows
    ],
)
def test_what_may_be_side_calls(lengths, talks, expected):
    known = evidence(*((n, n + 20) for n in lengths))
    account = Account(
        grow(known.lengths, []), talks=talks, talk_of=[t for t, talk in enumerate(talks) for _ in talk]
    )

    assert set().union(*side_calls(known, account)) == expected


def test_clients_are_as_many_as_are_served_at_once():
    """1 and 2 are asked while 0 runs: two clients for 0 and 1; 2 met 0 only, so it is the client's of 1."""
    people = People()
    more = [people.ask(talk, beside, first=first) for talk, beside, first in [
        (0, (), True), (1, (0,), True), (2, (0,), True), (0, (), False), (1, (), False), (2, (), False),
    ]]  # fmt: skip

    assert more == [0, 0, 0, 1, 1, 0]


def test_a_conversation_that_is_asked_twice_at_once_needs_another_client():
    people = People()
    people.ask(0, (), first=True)

    assert people.ask(0, (0,), first=False) == 2
