"""What a prompt may go on from where its log leaves that open, with a cost for each way (`replay.defaults`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import inf, log
from statistics import median
from typing import Final, NamedTuple

from replay.evidence import Evidence
from replay.heads import heads
from replay.prefixes import Part, Tree
from replay.strings import canonical, effective_tokens, live, owner

#: turns back that a default looks for one that a prompt could go on from
BACK: Final = 6
#: tokens by which a message boundary may be missed: the role tag, and words that two messages share
SLACK: Final = 4
#: costs are -ln(likelihood), of what a client does and of the tokens that it adds: it asks again, changes the reply, or
#: takes back turns; a new conversation is as rare, and its first message may be of any length; where there are side calls,
#: they are more frequent
_AGAIN: Final = 3.0
_CHANGED: Final = 3.0
_INNER: Final = 3.0
_NEW: Final = 3.5
_SIDE: Final = 1.5
#: ln(tokens of a turn / usual) is normally within this
_SPREAD: Final = 0.7
#: costlier by more than this than a new conversation is no account of it
_BEYOND_NEW: Final = 3.0
#: growths that a log must show before it has a usual one
_LEAST_GROWTHS: Final = 3


class Way(NamedTuple):
    """A prompt may agree with `string` for its first `depth` tokens; the lower `cost`, the likelier."""

    cost: float
    string: int
    depth: int


#: one conversation: indices of its requests, in order
Talk = Sequence[int]


class Candidates:
    """Ways for each request, by what the log rules out and what its conversations usually add."""

    def __init__(
        self,
        evidence: Evidence,
        tree: Tree,
        refuted: Collection[tuple[int, int, int]] = (),
        usual: float | None = None,
    ) -> None:
        self.evidence, self.refuted = evidence, refuted
        self.parted: dict[int, list[Part]] = defaultdict(list)
        for part in evidence.parted:
            self.parted[owner(part.one)].append(part)
            self.parted[owner(part.other)].append(Part(part.other, part.one, part.most))
        self.left = _left_at(evidence)
        self.goes_on = _gone_on_from(evidence)
        self.heads = heads(evidence, tree)
        requests = evidence.requests
        self.began = [min(r.events, default=r.line) for r in requests]
        self.ended = [max(r.events, default=r.line) for r in requests]
        self.usual = usual or _usual_growth(evidence)
        self._reach: dict[int, float] = {}

    def of(self, index: int, talks: Iterable[Talk], tree: Tree, *, new: bool = False) -> list[Way]:
        """All ways, the likeliest first; with `new`, only those that a new conversation is no far better account of.
        `tree` is what is taken for known by now."""
        ways = []
        most = self._most(index) if new and self.usual is not None else inf
        for talk in talks:
            if self._in_reach(index, talk, most) and self._alike(index, talk[-1]):
                ways += self._in_talk(index, talk, tree)
        return sorted(ways, key=lambda way: (way.cost, -way.depth, -way.string))

    def new(self, index: int, depth: int) -> float:
        """Cost of a new conversation of which `depth` tokens are shared with others."""
        return _NEW + log(max(1, self.evidence.lengths[canonical(index)] - depth))

    def side(self, spread: int) -> float:
        """Cost of a side call of a kind whose lengths differ by `spread` tokens at most."""
        return _SIDE + log(spread + 20)

    def shown(self, index: int, mother: int, depth: int, *, inner: bool = False) -> float:
        """Cost of a prompt of which the log shows that it leaves its conversation `depth` tokens in, in the prompt or reply
        of `mother`; `inner`: which is not its last turn."""
        tokens, lengths = self.evidence.lengths[canonical(index)], self.evidence.lengths
        whole = depth >= min(tokens, lengths[self.evidence.sent_back(mother)])
        return (
            (0.0 if whole else _CHANGED) + (_INNER if inner else 0.0) + self._growth(max(1, tokens - depth))
        )

    def _most(self, index: int) -> float:
        """Tokens that a turn adds at most if it could be a new conversation."""
        if index not in self._reach:
            most, beyond = self.usual or 1.0, self.new(index, 0) + _BEYOND_NEW
            while self._growth(int(most)) < beyond:
                most *= 1.25
            self._reach[index] = most
        return self._reach[index]

    def _in_reach(self, index: int, talk: Talk, most: float) -> bool:
        """Some of its last turns are no longer than the prompt, and not far too short."""
        tokens, lengths = self.evidence.lengths[canonical(index)], self.evidence.lengths
        return any(
            lengths[canonical(t)] <= tokens <= lengths[self.evidence.sent_back(t)] + most
            for t in talk[: -BACK - 1 : -1]
        )

    def _alike(self, index: int, last: int) -> bool:
        one, other = self.evidence.requests[index], self.evidence.requests[last]
        kinds = {"TOOLS", "RESPPROTO"}
        return one.api == other.api and kinds & set(one.flags) == kinds & set(other.flags)

    def _in_talk(self, index: int, talk: Talk, tree: Tree) -> list[Way]:
        found: list[Way] = []
        if self.ended[talk[-1]] > self.began[index]:
            return found  # its client still waits for an answer
        answered = (t for t in talk[: -BACK - 1 : -1] if self.ended[t] < self.began[index])
        for back, turn in enumerate(answered):
            ways = self._from_turn(index, turn, back)
            found += [way for way in ways if self.fits(index, way, tree)]
            if len(found) >= 2:
                break
        return found

    def _from_turn(self, index: int, turn: int, back: int) -> Iterator[Way]:
        tokens = self.evidence.lengths[canonical(index)]
        string, prompt = self.evidence.sent_back(turn), self.evidence.lengths[canonical(turn)]
        whole = self.evidence.lengths[string]
        inner = _INNER if back else 0.0
        if tokens == prompt:
            yield Way(_AGAIN + inner / 2, canonical(turn), tokens)
        if self.goes_on.get(turn, index) > index:
            return
        if whole < tokens and not prompt <= self.left.get(index, whole) < whole:
            yield Way(inner + self._growth(tokens - whole), string, whole)
        if prompt < tokens and prompt < whole:
            added = tokens - whole if tokens > whole else tokens - prompt
            kept = prompt - self.evidence.dropped.get(turn, 0)
            yield Way(inner + _CHANGED + self._growth(added), string, kept)

    def contradicted(self, indices: Iterable[int], until: int, tree: Tree) -> int:
        """How many statements of the log about these requests and others up to `until` the tree contradicts."""
        return sum(
            tree.share(part.one, part.other, part.most + 1)
            for index in indices
            for part in self.parted[index]
            if owner(part.other) <= until
        )

    def _growth(self, added: int) -> float:
        """How unusual it is that a turn adds so many tokens; without anything to go by, any number is as usual."""
        unusual = 0.0 if self.usual is None else log((added + 20) / (self.usual + 20)) / _SPREAD
        return log(added + 20) + unusual**2 / 2

    def fits(self, index: int, way: Way, tree: Tree) -> bool:
        """No line about this request, or about one that met it, contradicts it; nor does it end inside a head
        that the prompt shares with others, since they would share all of it too."""
        short = way.depth < self.heads.get(index, 0) - SLACK
        if short or (canonical(index), way.string, way.depth) in self.refuted:
            return False
        return all(
            not tree.share(way.string, part.other, part.most + 1)
            for part in self.parted[index]
            if part.most < min(way.depth, self.evidence.lengths[part.other])
        )


def _left_at(evidence: Evidence) -> dict[int, int]:
    """Index -> where the next prompt in its slot left its prompt. A client that replaces its last message
    keeps its history, so the last message begins no later; a reply that ends later was not sent back whole."""
    left = {}
    for after, before in evidence.occupant.items():
        shared = evidence.requests[after].common
        if shared and shared < evidence.lengths[canonical(before)]:
            left[before] = shared
    return left


def _gone_on_from(evidence: Evidence) -> dict[int, int]:
    """Index -> the last request that is known to extend its whole live state."""
    goes_on: dict[int, int] = {}
    for index in sorted(evidence.placed):
        before = evidence.occupant.get(index)
        if before is not None and evidence.requests[index].cached_tokens == evidence.lengths[live(before)]:
            goes_on[before] = index
    for index, file in evidence.served_from.items():
        if file.string % 3 == 1 and file.tokens == evidence.lengths[file.string]:
            goes_on[owner(file.string)] = max(index, goes_on.get(owner(file.string), -1))
    return goes_on


def _usual_growth(evidence: Evidence) -> float | None:
    """Tokens that a turn adds to its conversation: the median of those that the log shows. A file that holds a whole
    state is also read when it is the longest that is left of a conversation, so only its first reader counts."""
    lengths = evidence.lengths
    shown = [
        effective_tokens(evidence.requests[i]) - cached
        for i in evidence.placed
        if (cached := evidence.requests[i].cached_tokens)
    ]
    read: set[int] = set()
    for index, file in sorted(evidence.served_from.items()):
        whole = file.string >= 0 and file.tokens == lengths[file.string] and file.string % 3 == 1
        if whole and file.string not in read and index not in evidence.placed:
            shown.append(effective_tokens(evidence.requests[index]) - file.tokens)
        read.add(file.string)
    return usual(shown)


def usual(growths: Iterable[int]) -> float | None:
    """The median of what turns add, tokens, if they are enough to tell."""
    found = [tokens for tokens in growths if tokens > 1]
    return median(found) if len(found) >= _LEAST_GROWTHS else None
