"""One account of a log: which request went on from what, told request by request (`replay.defaults`)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from replay.candidates import Talk
from replay.people import People
from replay.prefixes import Agree, Guess, Tree
from replay.strings import owner

#: the string that carries a head first, and tokens of the head
Head = tuple[int, int]


@dataclass(slots=True)
class Opened:
    """What was left open about request `index`: `guess` and the tokens that are certain."""

    index: int
    guess: Guess
    certain: int


@dataclass(slots=True, eq=False)
class Account:
    """One account of who went on from what, as far as it was told; the lower its cost, the likelier."""

    tree: Tree
    cost: float = 0.0
    talks: list[Talk] = field(default_factory=list)
    #: number of its conversation, by index of a request
    talk_of: list[int] = field(default_factory=list)
    guesses: list[Guess] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    #: by index the head that is all its prompt surely shares; indices that another one surely goes on from
    behind: dict[int, Head] = field(default_factory=dict)
    gone_on_from: set[int] = field(default_factory=set)
    people: People = field(default_factory=People)

    def copy(self) -> Account:
        """The same so far, to be told on in another way."""
        return replace(
            self,
            tree=self.tree.copy(),
            talks=self.talks.copy(),
            talk_of=self.talk_of.copy(),
            guesses=self.guesses.copy(),
            opened=self.opened.copy(),
            behind=self.behind.copy(),
            gone_on_from=self.gone_on_from.copy(),
            people=self.people.copy(),
        )

    def join(self, talk: int | None) -> None:
        """The next request belongs to a conversation; to a new one if None."""
        index = len(self.talk_of)
        if talk is None:
            talk = len(self.talks)
            self.talks.append(())
        self.talks[talk] = (*self.talks[talk], index)
        self.talk_of.append(talk)

    def guess(self, guess: Guess) -> set[int]:
        """Take the first of its ways for true; the indices of all requests that share more with another one now."""
        self.guesses.append(guess)
        index = owner(guess.about)
        moved = self.tree.join(Agree(guess.about, *guess.ways[0]))
        last = 3 * index + 3
        return {
            index,
            *(
                owner(s)
                for late, depth in moved
                if owner(late) < index
                for s in self.tree.under(late, depth, last)
            ),
        }
