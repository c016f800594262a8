"""Ropes: prompts as a few slices of shared segments, so that a 340k-token prompt is a few objects.

A `Piece` is the tokens `start..end` of one segment; a `Rope` is a tuple of pieces in normal form: no empty
piece, and no two neighbours that could be one. Two ropes agree exactly as far as their leading pieces name
the same tokens of the same segments: pieces of different segments (or of different starts) differ at their
first token, by the definition of a segment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Piece(NamedTuple):
    """Tokens `start..end` (half open) of the segment named `segment`."""

    segment: str
    start: int
    end: int


Rope = tuple[Piece, ...]


def length(rope: Rope) -> int:
    """Tokens of the rope."""
    return sum(piece.end - piece.start for piece in rope)


def join(*parts: Iterable[Piece]) -> Rope:
    """The parts one after the other, in normal form."""
    pieces: list[Piece] = []
    for part in parts:
        for piece in part:
            _append(pieces, piece)
    return tuple(pieces)


def _append(pieces: list[Piece], piece: Piece) -> None:
    if piece.start >= piece.end:
        return
    last = pieces[-1] if pieces else None
    if last is not None and last.segment == piece.segment and last.end == piece.start:
        pieces[-1] = Piece(last.segment, last.start, piece.end)
    else:
        pieces.append(piece)


def cut(rope: Rope, tokens: int) -> Rope:
    """The first `tokens` tokens (the whole rope if it is not longer)."""
    left, kept = tokens, []
    for piece in rope:
        size = piece.end - piece.start
        if size >= left:
            if left > 0:
                kept.append(Piece(piece.segment, piece.start, piece.start + left))
            break
        kept.append(piece)
        left -= size
    return tuple(kept)


def rest(rope: Rope, tokens: int) -> Rope:
    """What follows the first `tokens` tokens."""
    left, kept = tokens, []
    for piece in rope:
        size = piece.end - piece.start
        if left >= size:
            left -= size
            continue
        kept.append(Piece(piece.segment, piece.start + left, piece.end))
        left = 0
    return tuple(kept)


def common(one: Rope, other: Rope) -> int:
    """Tokens of the longest common prefix, in O(pieces)."""
    shared = 0
    for a, b in zip(one, other, strict=False):
        if a.segment != b.segment or a.start != b.start:
            break
        shared += min(a.end, b.end) - a.start
        if a.end != b.end:
            break
    return shared
