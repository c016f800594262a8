"""Defaults where a log leaves a prefix relation open, the likeliest first (`docs/workload.md`, "What is open").

1. A prompt of exactly the length of an earlier one of its conversation is that prompt sent again.
2. Else it extends the longest last state of a conversation that is shorter than it: the reply was sent back
   as sampled and a message was added. Among several conversations the one that grows least.
3. Where the log rules that out (a file of that state was passed over, the live state in its slot parts
   earlier, an idle slot that held it was not chosen, the next prompt replaces a message that begins earlier),
   the last reply was changed from its first token on.
4. Else the last user message was replaced, or turns were cut; else it is a new conversation. It is a new one
   too if a later request is known to go on from where this one would have left.
A prompt sent again that was answered by as many tokens was answered by the same ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from replay.evidence import Evidence
from replay.prefixes import Agree, Guess, Part, Tree
from replay.strings import canonical, live, owner

#: turns back that a default looks for one that a prompt could go on from
_BACK = 6


@dataclass(slots=True, eq=False)
class Talk:
    """One conversation: indices of its requests, in order."""

    turns: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Opened:
    """What was left open about request `index`: `guess` and the tokens that are certain."""

    index: int
    guess: Guess
    certain: int


class Defaults:
    """Places each request in a conversation and says what its prompt extends where no line does."""

    def __init__(self, evidence: Evidence, tree: Tree) -> None:
        self.evidence, self.tree = evidence, tree
        self.talks: list[Talk] = []
        self.talk_of: dict[int, Talk] = {}
        self.opened: list[Opened] = []
        self.parted: dict[int, list[Part]] = defaultdict(list)
        for part in evidence.parted:
            self.parted[part.one].append(part)
        requests = evidence.requests
        self.left = _left_at(evidence)
        self.goes_on = _gone_on_from(evidence)
        self.began = [min(r.events, default=r.line) for r in requests]
        self.ended = [max(r.events, default=r.line) for r in requests]

    def run(self) -> list[Guess]:
        """Guesses for all requests, in order of time."""
        guesses = []
        for index in range(len(self.evidence.requests)):
            for guess in (self._place(index), self._same_answer(index)):
                if guess is not None:
                    guesses.append(guess)
                    self.tree.join(Agree(guess.about, *guess.ways[0]))
        return guesses

    # -- one request ---------------------------------------------------------------------------------

    def _place(self, index: int) -> Guess | None:
        mother, depth = self._certain(index)
        home = self.talk_of.get(mother) if mother is not None else None
        closed = home is not None and self._is_closed(index, mother, depth, home)
        if not closed:
            talks = [home] if home is not None and self._is_deep(depth, home) else self._ranked(index)
            ways = [way for talk in talks for way in self._ways(index, talk) if way[1] > depth]
            self._join(index, self._talk(ways, home, depth))
            if not ways:
                return None
            guess = Guess(canonical(index), ways)
            self.opened.append(Opened(index, guess, depth))
            return guess
        self._join(index, home)
        return None

    def _certain(self, index: int) -> tuple[int | None, int]:
        hidden = self.evidence.hidden.get(index)
        if hidden is not None:
            return hidden, self.evidence.lengths[live(hidden)]
        string, depth = self.tree.parent[canonical(index)], self.tree.depth[canonical(index)]
        return (owner(string), depth) if string >= 0 else (None, 0)

    def _is_closed(self, index: int, mother: int | None, depth: int, home: Talk) -> bool:
        """The log says where the prompt leaves its conversation: nothing deeper can be shared."""
        if index in self.evidence.placed or self._from_last(index, mother, home):
            return True
        before = self.evidence.occupant.get(index)
        met = before is not None and self.talk_of.get(before) is home and self._common(index) is not None
        return met and self._is_deep(depth, home)

    def _from_last(self, index: int, mother: int | None, home: Talk) -> bool:
        """A file held the whole last state of its conversation."""
        file, last = self.evidence.served_from.get(index), live(home.turns[-1])
        if file is None or mother is None or file.tokens != self.evidence.lengths[last]:
            return False
        return self.tree.common(live(mother), last) == file.tokens

    def _common(self, index: int) -> int | None:
        request = self.evidence.requests[index]
        return request.common or (request.cached_tokens if request.source == "memory-rewind" else None)

    def _is_deep(self, depth: int, home: Talk) -> bool:
        """More than a shared head: it reaches beyond the conversation's first prompt."""
        return depth >= self.evidence.lengths[canonical(home.turns[0])] - 4

    def _talk(self, ways: list[tuple[int, int]], home: Talk | None, depth: int) -> Talk | None:
        if ways:
            return self.talk_of[owner(ways[0][0])]
        return home if home is not None and self._is_deep(depth, home) else None

    def _join(self, index: int, talk: Talk | None) -> None:
        if talk is None:
            talk = Talk()
            self.talks.append(talk)
        talk.turns.append(index)
        self.talk_of[index] = talk

    # -- candidates ----------------------------------------------------------------------------------

    def _ranked(self, index: int) -> list[Talk]:
        """Conversations that the request may belong to, the likeliest first."""
        costs = []
        for number, talk in enumerate(self.talks):
            cost = self._cost(index, talk)
            if cost is not None:
                costs.append((cost, -number, talk))
        costs.sort(key=lambda entry: entry[:2])
        return [talk for _, _, talk in costs]

    def _cost(self, index: int, talk: Talk) -> int | None:
        if not self._alike(index, talk.turns[-1]):
            return None
        tokens = self.evidence.lengths[canonical(index)]
        for string, depth in self._ways(index, talk):
            return 0 if depth == tokens else tokens - self.evidence.lengths[live(owner(string))]
        return None

    def _alike(self, index: int, last: int) -> bool:
        one, other = self.evidence.requests[index], self.evidence.requests[last]
        kinds = {"TOOLS", "RESPPROTO"}
        return one.api == other.api and kinds & set(one.flags) == kinds & set(other.flags)

    def _ways(self, index: int, talk: Talk) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for turn in self._answered(index, talk):
            found += [way for way in self._from_turn(index, turn) if self._fits(index, *way)]
            if len(found) >= 2:
                break
        return found

    def _answered(self, index: int, talk: Talk) -> Iterator[int]:
        for turn in talk.turns[: -_BACK - 1 : -1]:
            if self.ended[turn] < self.began[index]:
                yield turn

    def _from_turn(self, index: int, turn: int) -> Iterator[tuple[int, int]]:
        tokens = self.evidence.lengths[canonical(index)]
        prompt, whole = self.evidence.lengths[canonical(turn)], self.evidence.lengths[live(turn)]
        if tokens == prompt:
            yield canonical(turn), tokens
        if self.goes_on.get(turn, index) > index:
            return
        if whole < tokens and not prompt <= self.left.get(index, whole) < whole:
            yield live(turn), whole
        if prompt < tokens and prompt < whole:
            yield live(turn), prompt

    def _fits(self, index: int, string: int, depth: int) -> bool:
        """No line about this request contradicts that its prompt agrees with `string` for `depth` tokens."""
        return all(
            min(depth, self.tree.common(string, part.other)) <= part.most
            for part in self.parted[canonical(index)]
        )

    def _same_answer(self, index: int) -> Guess | None:
        request, talk = self.evidence.requests[index], self.talk_of[index]
        length = self.evidence.lengths
        for turn in talk.turns[-2::-1][:_BACK]:
            other = self.evidence.requests[turn]
            alike = length[live(turn)] == length[live(index)] and other.finish == request.finish
            if alike and length[canonical(turn)] == length[canonical(index)] and request.generated_tokens:
                return Guess(live(index), [(live(turn), length[live(index)])])
        return None


def _left_at(evidence: Evidence) -> dict[int, int]:
    """Index -> where the next prompt in its slot left its prompt. A client that replaces its last message keeps
    its history, so the last message begins no later; a reply that ends later was not sent back whole."""
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
    return goes_on
