"""A tree of prefixes: every rope that a replay meets is one node, so that comparing is walking a few links.

Two trees of one class: token strings, and their texts. Each token node knows its text node; twins (equal
bytes, other tokens) meet there. A workload without twins needs one tree: each node is its own text. A node
stands for the string from the root to its end; jump links give the common prefix of two strings in
O(log pieces).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from replay.rope import Piece, Rope
from replay.workload import Segment, Workload


class Node:
    """A string: that of `parent`, and `piece` after it. `size` counts the units in which the strings of its tree
    are compared (tokens; bytes in a text tree), `bytes` its text.

    `text` is the text node of a token node (a text node's own self), `map_bytes` the tool map bytes of a token
    node. `files` and `uses` belong to the disk tier and to foresight: what hangs on the pieces that start here.
    """

    __slots__ = (
        "bytes",
        "children",
        "depth",
        "files",
        "jump",
        "map_bytes",
        "parent",
        "piece",
        "size",
        "text",
        "uses",
    )

    parent: Node
    jump: Node
    text: Node
    files: dict[tuple[str, int], list[Any]] | None
    uses: list[int] | None

    def __init__(self, parent: Node | None, piece: Piece, size: int) -> None:
        self.piece, self.size = piece, size
        self.children: dict[Piece, Node] = {}
        self.files = self.uses = None
        self.map_bytes = 0
        self.bytes = 0
        self.text = self
        if parent is None:
            self.parent = self.jump = self
            self.depth = 0
            return
        self.parent = parent
        self.depth = parent.depth + 1
        hop = parent.jump
        self.jump = hop.jump if parent.depth - hop.depth == hop.depth - hop.jump.depth else parent


def common(one: Node, other: Node) -> int:
    """Units of the longest common prefix of two strings of one tree."""
    if one.depth < other.depth:
        one, other = other, one
    while one.depth > other.depth:
        one = one.jump if one.jump.depth >= other.depth else one.parent
    if one is other:
        return one.size
    while one.parent is not other.parent:
        if one.jump is other.jump:
            one, other = one.parent, other.parent
        else:
            one, other = one.jump, other.jump
    a, b = one.piece, other.piece
    if a.segment == b.segment and a.start == b.start:
        return one.parent.size + min(a.end, b.end) - a.start
    return one.parent.size


def extends(longer: Node, shorter: Node) -> bool:
    """`shorter` is a prefix of `longer` (or equal)."""
    return longer is shorter or (shorter.size <= longer.size and common(longer, shorter) == shorter.size)


class Forest:
    """The token tree and the text tree of one workload."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        empty = Piece("", 0, 0)
        self.empty = Node(None, empty, 0)
        self._twins = any(segment.text is not None for segment in workload.segments.values())
        if self._twins:
            self.empty.text = Node(None, empty, 0)
        self._segments: dict[str, tuple[Segment, str, int]] = {}
        for name, segment in workload.segments.items():
            own = segment.text if segment.text is not None else name
            self._segments[name] = (segment, own, workload.text_bytes(segment))

    def node(self, rope: Rope) -> Node:
        """The node of a rope of tokens."""
        node = self.empty
        for piece in rope:
            node = node.children.get(piece) or self.add(node, piece)
        return node

    def extend(self, node: Node, pieces: Iterable[Piece]) -> Node:
        """The string of `node` and the pieces after it."""
        for piece in pieces:
            node = self.add(node, piece)
        return node

    def add(self, node: Node, piece: Piece) -> Node:
        """The string of `node` and one piece more, in normal form (`replay.rope`)."""
        last = node.piece
        if last.segment == piece.segment and last.end == piece.start and node is not self.empty:
            node, piece = node.parent, Piece(last.segment, last.start, piece.end)
        child = node.children.get(piece)
        if child is None:
            child = node.children[piece] = self._new(node, piece)
        return child

    def _new(self, node: Node, piece: Piece) -> Node:
        child = Node(node, piece, node.size + piece.end - piece.start)
        segment, text, size = self._segments[piece.segment]
        start, end = piece.start * size // segment.tokens, piece.end * size // segment.tokens
        child.bytes = node.bytes + end - start
        child.map_bytes = node.map_bytes + (segment.tool_map if piece.end == segment.tokens else 0)
        if self._twins:
            before = node.text.piece
            if before.segment == text and 0 < before.end - start < -(-size // segment.tokens):
                start = before.end  # the first token of a twin holds what the live text left of it
            child.text = _text_child(node.text, Piece(text, start, end))
            child.bytes = child.text.size
        return child

    def cut(self, node: Node, tokens: int) -> Node:
        """The first `tokens` tokens of a string."""
        if tokens >= node.size:
            return node
        while node.parent.size >= tokens and node.depth:
            node = node.jump if node.jump.size >= tokens else node.parent
        if node.size == tokens:
            return node
        piece = node.piece
        return self.add(
            node.parent, Piece(piece.segment, piece.start, piece.start + tokens - node.parent.size)
        )

    def after_tokens(self, node: Node, tokens: int) -> list[Piece]:
        """What follows the first `tokens` tokens of a string."""
        pieces: list[Piece] = []
        while node.size > tokens:
            start = node.piece.start + max(0, tokens - node.parent.size)
            pieces.append(Piece(node.piece.segment, start, node.piece.end))
            node = node.parent
        pieces.reverse()
        return pieces

    def after_text(self, node: Node, text: Node) -> list[Piece]:
        """The tokens of a string that end behind `text`, a prefix of its text: the rest, tokenised. Where `text`
        ends inside a token, the remainder of that counts as one token."""
        if not self._twins:
            return self.after_tokens(node, text.size)
        pieces: list[Piece] = []
        while node.depth and node.text.size > text.size:
            above = node.parent
            pieces.append(node.piece if above.text.size >= text.size else self._tail(node, text.size))
            node = above
        pieces.reverse()
        return pieces

    def _tail(self, node: Node, text_end: int) -> Piece:
        """The tokens of the node's piece whose text ends behind `text_end`, inside it."""
        piece = node.piece
        segment, _, size = self._segments[piece.segment]
        into = piece.start * size // segment.tokens + text_end - node.parent.text.size
        return Piece(piece.segment, -(-(into + 1) * segment.tokens // size) - 1, piece.end)


def _text_child(node: Node, piece: Piece) -> Node:
    last = node.piece
    if last.segment == piece.segment and last.end == piece.start and node.depth:
        node, piece = node.parent, Piece(last.segment, last.start, piece.end)
    child = node.children.get(piece)
    if child is None:
        child = node.children[piece] = Node(node, piece, node.size + piece.end - piece.start)
        child.bytes = child.size
    return child


def rope_of(node: Node) -> Rope:
    """The pieces of a string, from the start."""
    pieces = []
    while node.depth:
        pieces.append(node.piece)
        node = node.parent
    pieces.reverse()
    return tuple(pieces)
