"""How many clients the conversations of a log need: one client waits for each answer before it asks again, so
conversations that are in the server at once are those of several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from parser.request import Request


@dataclass(slots=True)
class People:
    """Conversations (numbers) by client, as far as a log was read. Those of a single turn are nobody's yet."""

    #: by conversation, and by client: bit `n` stands for conversation `n`
    met: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    #: client of a conversation
    whose: dict[int, int] = field(default_factory=dict)

    def copy(self) -> People:
        """The same, to be read on in another way."""
        return People(self.met.copy(), self.own.copy(), self.whose.copy())

    def ask(self, talk: int, beside: Iterable[int], *, first: bool) -> int:
        """A turn of `talk` comes while those of others run; how many clients more are needed for it."""
        self.met += [0] * (talk + 1 - len(self.met))
        beside = set(beside)
        twice = talk in beside
        for other in beside - {talk}:
            self.met[talk] |= 1 << other
            self.met[other] |= 1 << talk
        if first:
            return 0
        client = self.whose.get(talk)
        if client is not None:
            if not self.met[talk] & self.own[client]:
                return int(twice)
            self.own[client] ^= 1 << talk
        return self._given(talk) + twice

    def _given(self, talk: int) -> int:
        """Give it to the first client that had none of those that it met."""
        client = next((n for n, own in enumerate(self.own) if not self.met[talk] & own), len(self.own))
        more = client == len(self.own)
        if more:
            self.own.append(0)
        self.own[client] |= 1 << talk
        self.whose[talk] = client
        return int(more)


def running(requests: Sequence[Request], waited: Mapping[int, int]) -> list[tuple[int, ...]]:
    """By index: the earlier requests that were being served when the request came, by the order of lines and by who
    `waited` for which one (index -> index)."""
    found: list[tuple[int, ...]] = []
    now: list[int] = []
    ended = [max(r.events, default=r.line) for r in requests]
    for index, request in enumerate(requests):
        began = min(request.events, default=request.line)
        now = [other for other in now if ended[other] > began]
        found.append((*now, waited[index]) if index in waited else tuple(now))
        now.append(index)
    return found
