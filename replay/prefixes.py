"""Prefix relations: from "these two token strings agree that far" to the tree of all strings.

Longest common prefixes (LCP) form an ultrametric: LCP(a, c) >= min(LCP(a, b), LCP(b, c)). So statements
"a and b agree for at least d tokens" are closed by walking two paths of a tree in which each string hangs on
the earliest one that shares most with it. Nothing is shared beyond what a statement says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

#: rounds of dropping defaults that contradict what the log says; each round is linear
ROUNDS = 12


class Agree(NamedTuple):
    """Strings `one` and `other` share their first `depth` tokens. `guess` is None where the log says so, else
    the number of the guess that may be withdrawn."""

    one: int
    other: int
    depth: int
    guess: int | None = None


class Part(NamedTuple):
    """Strings `one` and `other` share no more than `most` tokens."""

    one: int
    other: int
    most: int


@dataclass(slots=True)
class Guess:
    """A relation the log leaves open: ways to read it, the likeliest first; the last may be no way at all.

    `ways` are (other string, depth); `about` is the string that is placed; `taken` the way in force.
    """

    about: int
    ways: Sequence[tuple[int, int]]
    taken: int = 0

    @property
    def way(self) -> tuple[int, int] | None:
        """The way in force, or None if every way contradicts the log."""
        return self.ways[self.taken] if self.taken < len(self.ways) else None


@dataclass(slots=True)
class Tree:
    """String `n` shares its first `depth[n]` tokens with the earlier string `parent[n]` (-1: with none)."""

    parent: list[int]
    depth: list[int]
    lengths: Sequence[int]
    #: statements by string: (other, depth, guess)
    links: list[list[tuple[int, int, int | None]]]

    def common(self, one: int, other: int) -> int:
        """LCP of two strings, tokens."""
        shared = min(self.lengths[one], self.lengths[other])
        while one != other:
            if one < other:
                one, other = other, one
            if self.parent[one] < 0:
                return 0
            shared = min(shared, self.depth[one])
            one = self.parent[one]
        return shared

    def join(self, link: Agree) -> None:
        """Take a statement in. What the later string was known to share goes on to the earlier one."""
        one, other, depth = link.one, link.other, link.depth
        self.links[one].append((other, depth, link.guess))
        self.links[other].append((one, depth, link.guess))
        while depth > 0:
            early, late = sorted((self.carrier(one, depth), self.carrier(other, depth)))
            if early == late:
                return
            one, other = early, self.parent[late]
            self.parent[late], depth, self.depth[late] = early, self.depth[late], depth
            if other < 0:
                return

    def carrier(self, string: int, depth: int) -> int:
        """The earliest string that holds the first `depth` tokens of `string`."""
        while self.depth[string] >= depth:
            string = self.parent[string]
        return string


def grow(lengths: Sequence[int], agreed: Iterable[Agree]) -> Tree:
    """The tree of all strings; numbers are in order of time, so a parent is always the earlier string."""
    count = len(lengths)
    tree = Tree([-1] * count, [0] * count, lengths, [[] for _ in range(count)])
    for link in agreed:
        tree.join(link)
    return tree


@dataclass(slots=True)
class Solution:
    """The tree, with the contradictions that no guess explains: statements the log makes against itself."""

    tree: Tree
    contradictions: list[Part]
    withdrawn: int = 0


def solve(
    lengths: Sequence[int], agreed: Sequence[Agree], parted: Sequence[Part], guesses: Sequence[Guess]
) -> Solution:
    """Grow the tree; where it contradicts a `Part`, withdraw the latest guess on the way and grow it
    again."""
    withdrawn = 0
    for _ in range(ROUNDS):
        tree = grow(lengths, [*agreed, *_standing(guesses)])
        broken = [part for part in parted if tree.common(part.one, part.other) > part.most]
        culprits = {culprit for part in broken if (culprit := _culprit(tree, part, guesses)) is not None}
        if not culprits:
            break
        withdrawn += len(culprits)
        for number in culprits:
            guesses[number].taken += 1
    return Solution(tree, broken, withdrawn)


def _standing(guesses: Sequence[Guess]) -> Iterable[Agree]:
    for number, guess in enumerate(guesses):
        if guess.way is not None:
            yield Agree(guess.about, *guess.way, number)


def _culprit(tree: Tree, part: Part, guesses: Sequence[Guess]) -> int | None:
    """The guess about the latest string among those that hold the two together deeper than `most`."""
    path = _path(tree, part)
    numbers = [guess for _, guess in path if guess is not None]
    return max(numbers, key=lambda number: guesses[number].about, default=None)


def _path(tree: Tree, part: Part) -> list[tuple[int, int | None]]:
    came: dict[int, tuple[int, int | None]] = {part.one: (-1, None)}
    waiting = [part.one]
    while waiting and part.other not in came:
        string = waiting.pop()
        for other, depth, guess in tree.links[string]:
            if depth > part.most and other not in came:
                came[other] = (string, guess)
                waiting.append(other)
    path, string = [], part.other
    while string in came and string != part.one:
        path.append((string, came[string][1]))
        string = came[string][0]
    return path
