"""Prefix relations: from "these two token strings agree that far" to the tree of all strings.

Longest common prefixes (LCP) form an ultrametric: LCP(a, c) >= min(LCP(a, b), LCP(b, c)). So statements
"a and b agree for at least d tokens" are closed by walking two paths of a tree in which each string hangs on
the earliest one that shares most with it. Nothing is shared beyond what a statement says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

#: rounds of dropping defaults that contradict what the log says; each round is linear, and drops some
ROUNDS = 400


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


#: a guess by the string that it is about, and its number; NO_GUESS comes before all
By = tuple[int, int]
NO_GUESS: By = (-1, -1)


@dataclass(slots=True)
class Tree:
    """String `n` shares its first `depth[n]` tokens with the earlier string `parent[n]` (-1: with none)."""

    parent: list[int]
    depth: list[int]
    lengths: Sequence[int]
    #: the latest guess that the relation of `n` with its parent rests on
    by: list[By]

    def copy(self) -> Tree:
        """The same relations, to which others may be added."""
        return Tree(self.parent.copy(), self.depth.copy(), self.lengths, self.by.copy())

    def common(self, one: int, other: int) -> int:
        """LCP of two strings, tokens."""
        parent, depth = self.parent, self.depth
        shared = min(self.lengths[one], self.lengths[other])
        while one != other:
            if one < other:
                one, other = other, one
            if parent[one] < 0:
                return 0
            if depth[one] < shared:
                shared = depth[one]
            one = parent[one]
        return shared

    def share(self, one: int, other: int, tokens: int) -> bool:
        """Whether two strings share so many tokens (at least 1)."""
        enough = min(self.lengths[one], self.lengths[other]) >= tokens
        return enough and self.carrier(one, tokens) == self.carrier(other, tokens)

    def join(self, link: Agree) -> list[tuple[int, int]]:
        """Take a statement in. What the later string was known to share goes on to the earlier one. Returns the strings
        that hang elsewhere now, each with its depth before."""
        one, other, depth = link.one, link.other, link.depth
        by = NO_GUESS if link.guess is None else (link.one, link.guess)
        moved = []
        while depth > 0:
            by = max(by, self._up(one, depth), self._up(other, depth))
            early, late = sorted((self.carrier(one, depth), self.carrier(other, depth)))
            if early == late:
                break
            one, other, before = early, self.parent[late], self.by[late]
            self.parent[late], self.by[late] = early, by
            moved.append((late, self.depth[late]))
            depth, self.depth[late], by = self.depth[late], depth, max(by, before)
            if other < 0:
                break
        return moved

    def under(self, string: int, depth: int, until: int) -> set[int]:
        """The strings before number `until` that share more than `depth` tokens with `string`, one of them, and hang
        on it."""
        found = {string}
        for other in range(string + 1, until):
            if self.depth[other] > depth and self.parent[other] in found:
                found.add(other)
        return found

    def carrier(self, string: int, depth: int) -> int:
        """The earliest string that holds the first `depth` tokens of `string`."""
        while self.depth[string] >= depth:
            string = self.parent[string]
        return string

    def _up(self, string: int, depth: int) -> By:
        """The latest guess on the way to the carrier."""
        by = NO_GUESS
        while self.depth[string] >= depth:
            by, string = max(by, self.by[string]), self.parent[string]
        return by

    def latest_guess(self, one: int, other: int) -> int | None:
        """The guess about the latest string among those that their common prefix rests on."""
        by = NO_GUESS
        while one != other and max(one, other) >= 0:
            one, other = max(one, other), min(one, other)
            by, one = max(by, self.by[one]), self.parent[one]
        return None if by == NO_GUESS else by[1]


def grow(lengths: Sequence[int], agreed: Iterable[Agree]) -> Tree:
    """The tree of all strings; numbers are in order of time, so a parent is always the earlier string."""
    count = len(lengths)
    tree = Tree([-1] * count, [0] * count, lengths, [NO_GUESS] * count)
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
    """Grow the tree; where it contradicts a `Part`, the latest guess on the way is to blame. The earliest of those
    are withdrawn (one, of many a quarter), since what comes later may only rest on them; then the tree is grown
    again."""
    withdrawn = 0
    for _ in range(ROUNDS):
        tree = grow(lengths, [*agreed, *_standing(guesses)])
        broken = [part for part in parted if tree.share(part.one, part.other, part.most + 1)]
        culprits = {
            culprit for part in broken if (culprit := tree.latest_guess(part.one, part.other)) is not None
        }
        if not culprits:
            break
        blamed = sorted(culprits, key=lambda number: (guesses[number].about, number))
        for number in blamed[: 1 + len(blamed) // 4]:
            withdrawn += 1
            guesses[number].taken += 1
    return Solution(tree, broken, withdrawn)


def _standing(guesses: Sequence[Guess]) -> Iterable[Agree]:
    for number, guess in enumerate(guesses):
        if guess.way is not None:
            yield Agree(guess.about, *guess.way, number)
