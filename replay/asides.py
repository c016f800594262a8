"""Side calls: a title, a summary, a check. Each is one prompt behind a template, and nothing goes on from it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from replay.account import Account, Head
from replay.candidates import Way
from replay.evidence import Evidence
from replay.heads import LEAST_HEAD
from replay.prefixes import Tree
from replay.strings import canonical, owner

#: fewer prompts, or conversations of so many turns on average, are none
_LEAST, _TURNS = 4, 3
#: side calls without a known template are of one length within this factor, and three of four of that length
_BAND, _SHARE = 1.5, 0.75
#: so many groups are tried, the largest
_GROUPS = 3


def side_calls(evidence: Evidence, told: Account) -> list[frozenset[int]]:
    """What may be groups of side calls (indices), by an account: behind one head, or of about one length."""
    behind: dict[Head, list[int]] = {}
    for index, head in told.behind.items():
        behind.setdefault(head, []).append(index)
    groups = ([owner(head[0]), *indices] for head, indices in behind.items())
    found = [frozenset(group) for group in groups if _go_on_from_nothing(told, group)]
    alike = _alike(evidence, told, frozenset().union(*found))
    return sorted([*found, alike] if alike else found, key=len, reverse=True)[:_GROUPS]


def _go_on_from_nothing(told: Account, members: list[int]) -> bool:
    talks = {told.talk_of[index] for index in members}
    few = len(members) < _TURNS * len(talks)
    return len(members) >= _LEAST and few and told.gone_on_from.isdisjoint(members)


def _alike(evidence: Evidence, told: Account, besides: Collection[int]) -> frozenset[int]:
    """The most requests of about one length in conversations that stay so long, of which there are few others."""
    short = {
        index
        for talk in told.talks
        if told.gone_on_from.isdisjoint(talk)
        and evidence.lengths[canonical(talk[-1])] <= _BAND * evidence.lengths[canonical(talk[0])]
        for index in talk
    }
    order = sorted(
        (evidence.lengths[canonical(index)], index)
        for index in range(len(told.talk_of))
        if index not in besides
    )
    lengths = [tokens for tokens, _ in order]
    until = [0, *accumulate(index in short for _, index in order)]
    best, most = range(0), _LEAST - 1
    for start, tokens in enumerate(lengths):
        end = bisect_right(lengths, tokens * _BAND)
        members = until[end] - until[start]
        if members > max(most, _SHARE * (end - start)):
            best, most = range(start, end), members
    return frozenset(order[place][1] for place in best if order[place][1] in short)


class Aside(NamedTuple):
    """A side call: what its prompt shares with others by default (None for the first), and the tokens by which the
    shortest and the longest of its kind differ."""

    way: Way | None
    spread: int


def asides(evidence: Evidence, tree: Tree, groups: Iterable[Collection[int]]) -> Iterator[tuple[int, Aside]]:
    """Index of each side call, and what is known of it. They share as much as `tree` knows of two of them, else half of
    the shortest one."""
    for group in groups:
        first, lengths = min(group), [evidence.lengths[canonical(index)] for index in group]
        shown = [
            (tree.depth[canonical(index)], tree.parent[canonical(index)])
            for index in sorted(group)
            if owner(tree.parent[canonical(index)]) in group and tree.depth[canonical(index)] >= LEAST_HEAD
        ]
        depth, string = max(shown, default=(min(lengths) // 2, canonical(first)))
        for index in group:
            way = None if index == first else Way(0.0, string, depth)
            yield index, Aside(way, max(lengths) - min(lengths))
