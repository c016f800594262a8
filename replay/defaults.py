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

Side calls (a title, a summary: one prompt each behind one head) go on from nothing. A head is theirs where the log
shows conversations to go on, but none of at least `_SIDE_LEAST` prompts behind it, and where their lengths would make
conversations of fewer than `_SIDE_TURNS` turns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from replay.candidates import BACK, SLACK, Candidates, Talk
from replay.evidence import Evidence
from replay.prefixes import Agree, Guess, Tree
from replay.strings import canonical, live, owner

_SIDE_LEAST = 4
_SIDE_TURNS = 3
#: the string that carries a head first, and tokens of the head
Head = tuple[int, int]


@dataclass(slots=True)
class Opened:
    """What was left open about request `index`: `guess` and the tokens that are certain."""

    index: int
    guess: Guess
    certain: int


class Defaults:
    """Places each request in a conversation and says what its prompt extends where no line does."""

    def __init__(
        self,
        evidence: Evidence,
        tree: Tree,
        refuted: Collection[tuple[int, int, int]] = (),
        side: Collection[Head] = (),
    ) -> None:
        self.evidence, self.tree, self.side = evidence, tree, side
        self.candidates = Candidates(evidence, tree, refuted)
        self.talks: list[Talk] = []
        self.talk_of: dict[int, Talk] = {}
        self.opened: list[Opened] = []
        #: indices by the head that is all their prompt surely shares; indices that another one surely goes on from
        self.behind: dict[Head, list[int]] = defaultdict(list)
        self.gone_on_from: set[int | None] = set()

    def run(self) -> list[Guess]:
        """Guesses for all requests, in order of time."""
        guesses = []
        for index in range(len(self.evidence.requests)):
            for guess in (self._place(index), self._same_answer(index)):
                if guess is not None:
                    guesses.append(guess)
                    self.tree.join(Agree(guess.about, *guess.ways[0]))
        return guesses

    def _place(self, index: int) -> Guess | None:
        mother, depth = self._certain(index)
        home = self.talk_of.get(mother) if mother is not None else None
        if home is not None and self._is_closed(index, mother, depth, home):
            self.gone_on_from.add(mother)
            self._join(index, home)
            return None
        deep = home is not None and self._is_deep(index, depth, home)
        if not deep and self._is_side_call(index, depth):
            self._join(index, None)
            return None
        talks = [home] if home is not None and deep else self.talks
        ways = [way for way in self.candidates.of(index, talks, new=not deep) if way.depth > depth]
        if ways:
            home, deep = self.talk_of[owner(ways[0].string)], True
        self._join(index, home if deep else None)
        if not ways:
            return None
        guess = Guess(canonical(index), [(way.string, way.depth) for way in ways])
        self.opened.append(Opened(index, guess, depth))
        return guess

    def _is_side_call(self, index: int, depth: int) -> bool:
        if not depth:
            return False
        head = (self.tree.carrier(canonical(index), depth), depth)
        self.behind[head].append(index)
        return head in self.side

    def side_calls(self) -> set[Head]:
        """Heads of side calls, after a run."""
        if self.candidates.usual is None:
            return set()
        return {head for head, indices in self.behind.items() if self._of_side_calls(head, indices)}

    def _of_side_calls(self, head: Head, behind: list[int]) -> bool:
        members = [owner(head[0]), *behind]
        talks = {id(self.talk_of[index]) for index in members}
        long = len(members) >= _SIDE_TURNS * len(talks)
        return len(members) >= _SIDE_LEAST and not long and self.gone_on_from.isdisjoint(members)

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
        return met and self._is_deep(index, depth, home)

    def _from_last(self, index: int, mother: int | None, home: Talk) -> bool:
        """A file held the whole last state of its conversation."""
        file, last = self.evidence.served_from.get(index), live(home.turns[-1])
        if file is None or mother is None or file.tokens != self.evidence.lengths[last]:
            return False
        return self.tree.common(live(mother), last) == file.tokens

    def _common(self, index: int) -> int | None:
        request = self.evidence.requests[index]
        return request.common or (request.cached_tokens if request.source == "memory-rewind" else None)

    def _is_deep(self, index: int, depth: int, home: Talk) -> bool:
        """More than a shared head: it reaches beyond the conversation's first prompt."""
        if depth <= self.candidates.heads.get(index, 0) + SLACK:
            return False
        return depth >= self.evidence.lengths[canonical(home.turns[0])] - SLACK

    def _join(self, index: int, talk: Talk | None) -> None:
        if talk is None:
            talk = Talk()
            self.talks.append(talk)
        talk.turns.append(index)
        self.talk_of[index] = talk

    def _same_answer(self, index: int) -> Guess | None:
        """The same prompt, answered by as many tokens with the same end."""
        request, talk = self.evidence.requests[index], self.talk_of[index]
        length = self.evidence.lengths
        for turn in talk.turns[-2::-1][:BACK]:
            other = self.evidence.requests[turn]
            alike = length[live(turn)] == length[live(index)] and other.finish == request.finish
            if alike and length[canonical(turn)] == length[canonical(index)] and request.generated_tokens:
                return Guess(live(index), [(live(turn), length[live(index)])])
        return None
