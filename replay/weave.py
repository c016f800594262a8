"""From the tree of prefix relations to ropes: every string as pieces of shared segments."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from replay.prefixes import Tree
from replay.rope import Piece, Rope, cut, join, length, rest
from replay.workload import Segment


@dataclass(slots=True)
class Woven:
    """A rope for each string that has tokens, and the segments they are made of."""

    ropes: list[Rope]
    segments: dict[str, int]


def weave(tree: Tree, names: Sequence[str], spliced: Mapping[int, tuple[int, int]]) -> Woven:
    """Ropes over whole segments: each segment is cut where any string leaves it. `names` name own parts.

    `spliced` strings go on, after what they share with their parent, with what stands behind a number of
    tokens in another string: string -> (other string, tokens).
    """
    raw = _raw(tree, names, spliced)
    cuts = _cuts(raw)
    segments = {}
    for rope in raw:
        for piece in rope:
            for whole in _whole(piece, cuts[piece.segment]):
                segments[whole.segment] = whole.end
    return Woven([join(*(_whole(p, cuts[p.segment]) for p in rope)) for rope in raw], segments)


def _raw(tree: Tree, names: Sequence[str], spliced: Mapping[int, tuple[int, int]]) -> list[Rope]:
    ropes: list[Rope] = []
    for string, tokens in enumerate(tree.lengths):
        mother, depth = tree.parent[string], tree.depth[string]
        shared = cut(ropes[mother], depth) if mother >= 0 else ()
        if string in spliced:
            other, behind = spliced[string]
            shared = cut(join(shared, rest(ropes[other], behind)), tokens)
        ropes.append(join(shared, [Piece(names[string], length(shared), tokens)]) if tokens else ())
    return ropes


def _cuts(ropes: Iterable[Rope]) -> dict[str, list[int]]:
    """Where each segment is entered or left, ascending (positions count from the start of the string)."""
    cuts: dict[str, list[int]] = {}
    for rope in ropes:
        for piece in rope:
            places = cuts.setdefault(piece.segment, [])
            for place in (piece.start, piece.end):
                found = bisect_left(places, place)
                if found == len(places) or places[found] != place:
                    insort(places, place)
    return cuts


def _whole(piece: Piece, places: list[int]) -> list[Piece]:
    """The piece as whole segments `name`, or `name.1`, `name.2` where it is cut."""
    low, high = bisect_left(places, piece.start), bisect_left(places, piece.end)
    if len(places) == 2:
        return [Piece(piece.segment, 0, places[1] - places[0])]
    return [Piece(f"{piece.segment}.{n + 1}", 0, places[n + 1] - places[n]) for n in range(low, high)]


def as_segments(sizes: dict[str, int], bytes_of: dict[str, int]) -> dict[str, Segment]:
    """Segments by name, with the bytes of their text where they are known."""
    return {name: Segment(name, tokens, bytes_of.get(name)) for name, tokens in sizes.items()}
