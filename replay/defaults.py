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

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from replay.candidates import BACK, SLACK, Candidates, Talk, Way
from replay.evidence import Evidence
from replay.people import People, running
from replay.prefixes import Agree, Guess, Tree
from replay.strings import canonical, live, owner

_SIDE_LEAST = 4
_SIDE_TURNS = 3
_SIDE_BAND = 1.5
_SIDE_GROUPS = 3
#: accounts kept side by side: so many of a short log, and of a long one as many as stay quick
_WIDTH, _WORK = 64, 6000
#: the cost of a statement of the log that an account contradicts, and by how much more than the best one an account
#: may cost (as those of `replay.candidates`)
_CONTRADICTED, _HOPELESS = 12.0, 10.0
#: the cost of one more client
_CLIENT = 4.0
#: ways tried for one request
_TRIED = 4
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


class Defaults:
    """Places each request in a conversation and says what its prompt extends where no line does.

    Several accounts are told side by side, since what a later request shares with its slot may tell of an earlier one;
    the likeliest that contradicts no line is kept.
    """

    def __init__(
        self,
        evidence: Evidence,
        tree: Tree,
        refuted: Collection[tuple[int, int, int]] = (),
        side: Collection[Collection[int]] = (),
    ) -> None:
        self.evidence, self.side = evidence, side
        self.known = tree.copy()
        self.candidates = Candidates(evidence, tree, refuted)
        self.shared = self._usual_head(tree)
        self.running = running(evidence.requests)
        self.told = self._told(Account(tree))

    @property
    def talks(self) -> list[Talk]:
        """The conversations."""
        return self.told.talks

    @property
    def opened(self) -> list[Opened]:
        """What no line says."""
        return self.told.opened

    def _told(self, first: Account) -> Account:
        count = len(self.evidence.requests)
        width = min(_WIDTH, max(1, _WORK // max(1, count)))
        accounts = [first]
        for index in range(count):
            further = [one for account in accounts for one in self._further(account, index)]
            further.sort(key=lambda account: account.cost)
            accounts = [a for a in further[:width] if a.cost <= further[0].cost + _HOPELESS]
        return accounts[0]

    def _further(self, account: Account, index: int) -> Iterator[Account]:
        """The account with one more request, in all ways worth a try."""
        mother, depth = self._certain(account, index)
        home = account.talk_of[mother] if mother is not None and mother < index else None
        if home is not None and mother is not None and self._is_closed(account, index, mother, depth, home):
            account.gone_on_from.add(mother)
            yield self._with(account, index, home, self.candidates.shown(index, mother, depth))
            return
        deep = home is not None and self._is_deep(index, depth, account.talks[home])
        if not deep and depth:
            account.behind[index] = (account.tree.carrier(canonical(index), depth), depth)
        if not deep and any(index in group for group in self.side):
            yield self._side_call(account, index, depth)
            return
        ways = self._ways(account, index, depth, home if deep else None)
        tried = ways[:_TRIED]
        if not deep:
            yield from self._new(account, index, depth)
        elif not ways and mother is not None:
            yield self._with(account, index, home, self.candidates.shown(index, mother, depth))
        for place, way in enumerate(tried):
            guess = Guess(canonical(index), [(way.string, way.depth) for way in ways[place:]])
            one = account.copy() if place + 1 < len(tried) else account
            talk = one.talk_of[owner(way.string)]
            touched = one.guess(guess)
            one.opened.append(Opened(index, guess, depth))
            yield self._with(one, index, talk, way.cost, touched)

    def _new(self, account: Account, index: int, depth: int) -> Iterator[Account]:
        """It begins a conversation, by default behind the head that most have, if it may be."""
        way = self.shared
        if (
            way is not None
            and way.depth > depth
            and way.string < canonical(index)
            and way.depth < self.evidence.lengths[canonical(index)]
            and self.candidates.fits(index, way, account.tree)
        ):
            yield self._behind(account.copy(), index, depth, way, self.candidates.new(index, way.depth))
        yield self._with(account.copy(), index, None, self.candidates.new(index, depth))

    def _behind(self, account: Account, index: int, depth: int, way: Way, cost: float) -> Account:
        guess = Guess(canonical(index), [(way.string, way.depth)])
        touched = account.guess(guess)
        account.opened.append(Opened(index, guess, depth))
        return self._with(account, index, None, cost, touched)

    def _side_call(self, account: Account, index: int, depth: int) -> Account:
        way = self._template(index)
        if way is not None and way.depth > depth and self.candidates.fits(index, way, account.tree):
            return self._behind(account, index, depth, way, self.candidates.side(index, way.depth))
        return self._with(account, index, None, self.candidates.side(index, depth))

    def _template(self, index: int) -> Way | None:
        """What side calls share by default: as much as the log shows of others, else half of the shortest one."""
        group = next((group for group in self.side if index in group), frozenset())
        first = min(group, default=index)
        if first == index:
            return None
        tree, lengths = self.known, self.evidence.lengths
        shown = [
            (tree.depth[canonical(i)], tree.parent[canonical(i)])
            for i in sorted(group)
            if owner(tree.parent[canonical(i)]) in group
        ]
        if shown:
            depth, string = max(shown)
            return Way(0.0, string, depth)
        return Way(0.0, canonical(first), min(lengths[canonical(i)] for i in group) // 2)

    def _usual_head(self, tree: Tree) -> Way | None:
        """The head of most conversations, or what all prompts are known to share."""
        heads = self.candidates.heads
        if heads:
            groups = Counter((tree.carrier(canonical(index), head), head) for index, head in heads.items())
            (string, depth), _ = max(groups.items(), key=lambda item: (item[1], item[0][1]))
            return Way(0.0, string, depth)
        return None

    def _ways(self, account: Account, index: int, depth: int, home: int | None) -> list[Way]:
        if home is not None:
            found = self.candidates.of(index, [account.talks[home]], account.tree)
        else:
            found = self.candidates.of(index, account.talks, account.tree, new=True)
        return [way for way in found if way.depth > depth]

    def _with(
        self, account: Account, index: int, talk: int | None, cost: float, touched: Collection[int] = ()
    ) -> Account:
        account.join(talk)
        talk = account.talk_of[index]
        beside = (account.talk_of[other] for other in self.running[index])
        cost += _CLIENT * account.people.ask(talk, beside, first=len(account.talks[talk]) == 1)
        same = self._same_answer(account, index)
        touched = {index, *touched, *(account.guess(same) if same is not None else ())}
        account.cost += cost + _CONTRADICTED * self.candidates.contradicted(touched, index, account.tree)
        return account

    def side_calls(self) -> list[frozenset[int]]:
        """What may be groups of side calls (indices), as it was told: behind one head, or of about one length."""
        if self.candidates.usual is None:
            return []
        behind: dict[Head, list[int]] = {}
        for index, head in self.told.behind.items():
            behind.setdefault(head, []).append(index)
        groups = ([owner(head[0]), *indices] for head, indices in behind.items())
        found = [frozenset(group) for group in groups if self._of_side_calls(group)]
        alike = self._alike(frozenset().union(*found))
        return sorted([*found, alike] if alike else found, key=len, reverse=True)[:_SIDE_GROUPS]

    def _alike(self, besides: Collection[int]) -> frozenset[int]:
        """The most requests of about one length from which nothing ever went on for long, and that nobody else sent."""
        lengths = self.evidence.lengths
        short = {
            index
            for talk in self.told.talks
            if len(talk) < _SIDE_TURNS and self.told.gone_on_from.isdisjoint(talk)
            for index in talk
        }
        order = sorted((lengths[canonical(i)], i) for i in range(len(self.told.talk_of)) if i not in besides)
        best: frozenset[int] = frozenset()
        for start, (least, _) in enumerate(order):
            near = [i for tokens, i in order[start:] if tokens <= _SIDE_BAND * least]
            members = frozenset(i for i in near if i in short)
            if len(members) > max(len(best), _SIDE_LEAST - 1, 0.75 * len(near)):
                best = members
        return best

    def _of_side_calls(self, members: list[int]) -> bool:
        talks = {self.told.talk_of[index] for index in members}
        long = len(members) >= _SIDE_TURNS * len(talks)
        return len(members) >= _SIDE_LEAST and not long and self.told.gone_on_from.isdisjoint(members)

    def _certain(self, account: Account, index: int) -> tuple[int | None, int]:
        hidden = self.evidence.hidden.get(index)
        if hidden is not None:
            return hidden, self.evidence.lengths[live(hidden)]
        tree = account.tree
        string, depth = tree.parent[canonical(index)], tree.depth[canonical(index)]
        return (owner(string), depth) if string >= 0 else (None, 0)

    def _is_closed(self, account: Account, index: int, mother: int, depth: int, home: int) -> bool:
        """The log says where the prompt leaves its conversation: nothing deeper can be shared."""
        talk = account.talks[home]
        if index in self.evidence.placed or self._from_last(account, index, mother, talk):
            return True
        before = self.evidence.occupant.get(index)
        met = before is not None and account.talk_of[before] == home and self._common(index) is not None
        return met and self._is_deep(index, depth, talk)

    def _from_last(self, account: Account, index: int, mother: int, talk: Talk) -> bool:
        """A file held the whole last state of its conversation."""
        file, last = self.evidence.served_from.get(index), live(talk[-1])
        if file is None or file.tokens != self.evidence.lengths[last]:
            return False
        return account.tree.common(live(mother), last) == file.tokens

    def _common(self, index: int) -> int | None:
        request = self.evidence.requests[index]
        return request.common or (request.cached_tokens if request.source == "memory-rewind" else None)

    def _is_deep(self, index: int, depth: int, talk: Talk) -> bool:
        """More than a shared head: it reaches beyond the conversation's first prompt."""
        if depth <= self.candidates.heads.get(index, 0) + SLACK:
            return False
        return depth >= self.evidence.lengths[canonical(talk[0])] - SLACK

    def _same_answer(self, account: Account, index: int) -> Guess | None:
        """The same prompt, answered by as many tokens with the same end."""
        request, talk = self.evidence.requests[index], account.talks[account.talk_of[index]]
        length = self.evidence.lengths
        for turn in talk[-2::-1][:BACK]:
            other = self.evidence.requests[turn]
            alike = length[live(turn)] == length[live(index)] and other.finish == request.finish
            if alike and length[canonical(turn)] == length[canonical(index)] and request.generated_tokens:
                return Guess(live(index), [(live(turn), length[live(index)])])
        return None
