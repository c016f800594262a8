"""Which request comes next for a state: what the clairvoyant policies know and no server does."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from replay.tree import Node


class Foresight:
    """The requests in the order of the workload, and which of them still wait for a slot."""

    def __init__(self, prompts: Sequence[Node]) -> None:
        self._prompts = prompts
        self._served = bytearray(len(prompts))
        self._first = 0
        self._indexed = False

    def serve(self, index: int) -> None:
        """Request number `index` (from 0) has got its slot."""
        self._served[index] = 1
        while self._first < len(self._served) and self._served[self._first]:
            self._first += 1

    def next_use(self, key: Node | None) -> int:
        """Index of the next request whose text begins with `key`; the number of requests if there is none."""
        if not self._indexed:
            self._index()
        found = len(self._prompts)
        if key is None or not key.depth:
            return found
        piece = key.piece
        for other, node in key.parent.children.items():
            if other.segment == piece.segment and other.start == piece.start and other.end >= piece.end:
                found = min(found, self._next(node))
        return found

    def _next(self, node: Node) -> int:
        uses = node.uses or []
        for index in uses[bisect_left(uses, self._first) :]:
            if not self._served[index]:
                return index
        return len(self._prompts)

    def _index(self) -> None:
        """Every text node learns, in order, which prompts run through it."""
        self._indexed = True
        for index, prompt in enumerate(self._prompts):
            node = prompt.text
            while node.depth:
                if node.uses is None:
                    node.uses = []
                node.uses.append(index)
                node = node.parent
