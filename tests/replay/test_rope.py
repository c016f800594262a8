"""Ropes and the prefix tree against whole lists of tokens and whole texts."""

from hypothesis import given
from hypothesis import strategies as st

from replay import rope
from replay.rope import Piece
from replay.tree import Forest, common, extends, rope_of
from replay.workload import Segment, Workload

SIZES = {"a": 7, "b": 5, "c": 9, "d": 3}


@st.composite
def ropes(draw, twins=False):
    """Slices in normal form. With twins: `c` and `d` are one text, taken whole so that texts meet."""
    names = draw(st.lists(st.sampled_from("abcd"), max_size=5))
    pieces = []
    for name in names:
        start = 0 if twins else draw(st.integers(0, SIZES[name] - 1))
        end = SIZES[name] if twins else draw(st.integers(start + 1, SIZES[name]))
        pieces.append(Piece(name, start, end))
    return rope.join(pieces)


def tokens(pieces):
    return [(name, at) for name, start, end in pieces for at in range(start, end)]


def prefix(a, b):
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@given(ropes(), st.integers(0, 40))
def test_cut_and_rest_are_slices(pieces, n):
    assert tokens(rope.cut(pieces, n)) == tokens(pieces)[:n]
    assert tokens(rope.rest(pieces, n)) == tokens(pieces)[n:]
    assert rope.join(rope.cut(pieces, n), rope.rest(pieces, n)) == pieces
    assert rope.length(pieces) == len(tokens(pieces))


@given(ropes(), ropes(), ropes())
def test_common_prefix_is_that_of_the_pieces(head, one, other):
    """Pieces of other segments, or with another start, differ at once: that is what a segment means."""
    a, b = rope.join(head, one), rope.join(head, other)
    whole = prefix(a, b)
    expected = rope.length(a[:whole])
    if whole < min(len(a), len(b)) and a[whole][:2] == b[whole][:2]:
        expected += min(a[whole].end, b[whole].end) - a[whole].start
    assert rope.common(a, b) == expected


@given(st.lists(ropes(), min_size=1, max_size=8), st.data())
def test_the_tree_agrees_with_ropes(some, data):
    forest = Forest(Workload({n: Segment(n, size) for n, size in SIZES.items()}, ()))
    nodes = [forest.node(pieces) for pieces in some]
    for pieces, node in zip(some, nodes, strict=True):
        assert rope_of(node) == pieces
        assert node.size == rope.length(pieces)
        n = data.draw(st.integers(0, node.size))
        assert rope_of(forest.cut(node, n)) == rope.cut(pieces, n)
        assert rope.join(forest.after_tokens(node, n)) == rope.rest(pieces, n)
    for a, one in zip(some, nodes, strict=True):
        for b, other in zip(some, nodes, strict=True):
            assert common(one, other) == rope.common(a, b)


@given(ropes(twins=True), ropes(twins=True))
def test_twins_are_equal_in_text_and_differ_in_tokens(a, b):
    text = {"a": "aaaaaaaa", "b": "bbbbb", "c": "0123456789", "d": "0123456789"}
    segments = {n: Segment(n, SIZES[n], bytes=len(text[n]), text="t" if n in "cd" else None) for n in "abcd"}
    forest = Forest(Workload(segments, ()))
    one, other = forest.node(a), forest.node(b)
    whole = ["".join(text[name] for name, *_ in pieces) for pieces in (a, b)]
    assert extends(one.text, other.text) == whole[0].startswith(whole[1])
    assert one.bytes == len(whole[0])
    if extends(one.text, other.text):
        rest = forest.after_text(one, other.text)
        assert "".join(text[name] for name, *_ in rest) == whole[0][len(whole[1]) :]
