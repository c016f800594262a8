"""The tree of prefix relations, held against strings that are really there."""

from hypothesis import given
from hypothesis import strategies as st

from replay.prefixes import Agree, Guess, Part, grow, solve
from replay.rope import common as shared
from replay.rope import length
from replay.weave import weave

STRINGS = st.lists(st.text("ab", max_size=12), min_size=1, max_size=9)


def lcp(one, other):
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def told(strings, pairs):
    return [Agree(i, j, lcp(strings[i], strings[j])) for i, j in pairs if i != j]


@given(strings=STRINGS, data=st.data())
def test_all_pairs_told_in_any_order_give_every_common_prefix(strings, data):
    pairs = [(i, j) for i in range(len(strings)) for j in range(i)]
    tree = grow([len(s) for s in strings], told(strings, data.draw(st.permutations(pairs))))

    for i, one in enumerate(strings):
        for j, other in enumerate(strings):
            assert tree.common(i, j) == lcp(one, other)


@given(strings=STRINGS, data=st.data())
def test_part_of_the_pairs_never_claims_more_than_is_there(strings, data):
    every = [(i, j) for i in range(len(strings)) for j in range(i)]
    pairs = data.draw(st.lists(st.sampled_from(every), max_size=8)) if every else []
    tree = grow([len(s) for s in strings], told(strings, pairs))

    for i, one in enumerate(strings):
        for j, other in enumerate(strings):
            assert tree.common(i, j) <= lcp(one, other)
    assert all(tree.common(i, j) == lcp(strings[i], strings[j]) for i, j in pairs)
    assert all(parent < string for string, parent in enumerate(tree.parent))


@given(strings=STRINGS)
def test_ropes_share_what_the_tree_says(strings):
    """Woven ropes are the strings: as long, and alike as far."""
    pairs = [(i, j) for i in range(len(strings)) for j in range(i)]
    tree = grow([len(s) for s in strings], told(strings, pairs))
    woven = weave(tree, [f"s{n}" for n in range(len(strings))], {})

    for i, one in enumerate(strings):
        assert length(woven.ropes[i]) == len(one)
        for j, other in enumerate(strings):
            assert shared(woven.ropes[i], woven.ropes[j]) == lcp(one, other)
    assert all(
        piece.start == 0 and piece.end == woven.segments[piece.segment] for r in woven.ropes for piece in r
    )


def test_a_guess_that_the_log_contradicts_gives_way_to_the_next():
    """Three prompts of 10, 20 and 30 tokens; the last shares 5 with the first at most."""
    guess = Guess(2, [(0, 10), (1, 4)])

    found = solve([10, 20, 30], [], [Part(2, 0, 5)], [guess])

    assert (found.tree.common(2, 0), found.tree.common(2, 1)) == (0, 4)
    assert (found.withdrawn, found.contradictions) == (1, [])


def test_a_log_that_contradicts_itself_is_told():
    found = solve([10, 20], [Agree(1, 0, 10)], [Part(1, 0, 5)], [])

    assert found.contradictions == [Part(1, 0, 5)]
    assert found.tree.common(0, 1) == 10


def test_of_several_guesses_the_latest_gives_way():
    """String 2 goes on from 1 and 3 from 2 by default; yet 3 parts from 1 at once."""
    first, second = Guess(2, [(1, 20)]), Guess(3, [(2, 30)])

    found = solve([5, 20, 30, 40], [], [Part(3, 1, 0)], [first, second])

    assert (first.way, second.way) == ((1, 20), None)
    assert found.tree.common(3, 2) == 0
