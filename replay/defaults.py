"""Defaults where a log leaves a prefix relation open (`docs/workload.md`, "What is open").

The log is told request by request, in several accounts side by side: each says of every prompt what it extends, and
costs what is unusual in that (`replay.candidates`). Ways of a prompt, the likeliest first:

1. A prompt of exactly the length of an earlier one of its conversation is that prompt sent again.
2. It extends the last state of a conversation that is shorter than it: the reply was sent back as sampled and a message
   was added, of about the usual length.
3. The last reply was changed from its first token on; the last user message was replaced, or turns were cut.
4. It begins a conversation, by default behind the head that most conversations have.

What a later request shares with its slot tells of earlier ones, so an account that contradicts a line costs much; so
does one that needs more clients than another. The cheapest account at the end is the default. A prompt sent again that
was answered by as many tokens was answered by the same ones. Side calls (`replay.asides`) are taken for such if that
makes the cheaper account.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from replay.account import Account, Opened
from replay.asides import asides, side_calls
from replay.candidates import BACK, SLACK, Candidates, Talk, Way, usual
from replay.evidence import Evidence
from replay.heads import LEAST_HEAD
from replay.people import running
from replay.prefixes import Guess, Tree
from replay.strings import canonical, live, owner

#: accounts kept side by side: so many of a short log, and of a long one as many as stay quick
_WIDTH, _WORK = 64, 4000
#: the cost of a statement of the log that an account contradicts, and of one more client
_CONTRADICTED, _CLIENT = 12.0, 4.0
#: by how much more than the best account another one may cost
_HOPELESS = 10.0
#: ways tried for one request
_TRIED = 4


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
        usual: float | None = None,
    ) -> None:
        self.evidence = evidence
        self.asides = dict(asides(evidence, tree, side))
        self.candidates = Candidates(evidence, tree, refuted, usual)
        self.shared = self._usual_head(tree)
        self.running = running(evidence.requests, evidence.waited)
        self.told = self._told(Account(tree))

    @property
    def talks(self) -> list[Talk]:
        """The conversations."""
        return self.told.talks

    @property
    def opened(self) -> list[Opened]:
        """What no line says."""
        return self.told.opened

    def usual_growth(self) -> float | None:
        """Tokens that a turn usually adds, by what was told: where the log shows too few turns that go on."""
        lengths = self.evidence.lengths
        ways = (guess.ways[0] for guess in self.told.guesses)
        return usual(
            lengths[guess.about] - depth
            for guess, (string, depth) in zip(self.told.guesses, ways, strict=True)
            if string % 3 and depth == lengths[string] < lengths[guess.about]
        )

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
        if not deep and index in self.asides:
            yield self._side_call(account, index, depth)
            return
        ways = self._ways(account, index, depth, home if deep else None)
        tried = ways[:_TRIED]
        if not deep:
            yield from self._new(account, index, depth)
        elif mother is not None:  # it leaves its conversation where the log shows it
            stays, inner = (
                account.copy() if ways else account,
                home is not None and mother != account.talks[home][-1],
            )
            yield self._with(stays, index, home, self.candidates.shown(index, mother, depth, inner=inner))
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
        way, spread = self.asides[index]
        cost = self.candidates.side(spread)
        if way is not None and way.depth > depth and self.candidates.fits(index, way, account.tree):
            return self._behind(account, index, depth, way, cost)
        return self._with(account, index, None, cost)

    def _usual_head(self, tree: Tree) -> Way | None:
        """The head of most prompts, of two the longer; the first words that all share only if there is no other."""
        heads = self.candidates.heads
        groups = Counter((tree.carrier(canonical(index), head), head) for index, head in heads.items())
        if not groups:
            return None
        (string, depth), _ = max(
            groups.items(), key=lambda item: (item[0][1] >= LEAST_HEAD, item[1], item[0][1])
        )
        return Way(0.0, string, depth)

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
        """What may be groups of side calls (indices); none where the log does not show that conversations go on."""
        return [] if self.candidates.usual is None else side_calls(self.evidence, self.told)

    def _certain(self, account: Account, index: int) -> tuple[int | None, int]:
        hidden = self.evidence.hidden.get(index)
        if hidden is not None:
            return hidden, self.evidence.lengths[self.evidence.sent_back(hidden)]
        tree = account.tree
        string, depth = tree.parent[canonical(index)], tree.depth[canonical(index)]
        return (owner(string), depth) if string >= 0 else (None, 0)

    def _is_closed(self, account: Account, index: int, mother: int, depth: int, home: int) -> bool:
        """The log says where the prompt leaves its conversation: nothing deeper can be shared. What it shares with a state
        that the conversation itself left there says nothing of that."""
        talk = account.talks[home]
        if index in self.evidence.placed or self._from_last(account, index, mother, talk):
            return True
        before, common = self.evidence.occupant.get(index), self._common(index)
        if before is None or common is None or account.talk_of[before] != home:
            return False
        last = talk[-1]
        kept = before == last or account.tree.common(live(before), self.evidence.sent_back(last)) > common
        return kept and self._is_deep(index, depth, talk)

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
