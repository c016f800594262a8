"""A resident session: a model's cache and the tokens that are in it."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from replay.models.cache import Verdict
from replay.models.model import Model, Tokens
from replay.models.tile import tiles


class Session:
    """Tokens evaluated so far, their cache, and the last hidden row (None where no token was evaluated
    since)."""

    def __init__(self, model: Model) -> None:
        self.model, self.cache = model, model.new_cache()
        self.last: mx.array | None = None
        self._tokens: Tokens = np.zeros(1024, dtype=np.uint64)

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return self.cache.length

    @property
    def tokens(self) -> Tokens:
        """Their identities, read-only."""
        view = self._tokens[: self.length]
        view.flags.writeable = False
        return view

    def common(self, tokens: Tokens) -> int:
        """How many leading tokens agree."""
        count = min(self.length, len(tokens))
        differ = np.flatnonzero(self._tokens[:count] != tokens[:count])
        return int(differ[0]) if differ.size else count

    def extend(self, tokens: Tokens) -> None:
        """Evaluate tokens after the present end: a prefill chunk, or one token to decode."""
        self._extend(tokens)
        mx.eval(self.last)

    def _extend(self, tokens: Tokens) -> None:
        if not len(tokens):
            return
        first = self.length
        self._append(tokens)
        for tile in tiles(first, first + len(tokens), self.model.tile):
            self.last = self.model.step(self.cache, tile, tokens[tile.first - first : tile.last - first])
            mx.async_eval(self.last, self.cache.arrays())  # type: ignore[no-untyped-call]

    def fill(self, tokens: Tokens) -> None:
        """The token list of a cache that is about to be loaded."""
        self._append(tokens)

    def _append(self, tokens: Tokens) -> None:
        end = self.length + len(tokens)
        if end > len(self._tokens):
            bigger = np.zeros(max(end, 2 * len(self._tokens)), dtype=np.uint64)
            bigger[: self.length] = self.tokens
            self._tokens = bigger
        self._tokens[self.length : end] = tokens

    def logits(self) -> NDArray[np.float32] | None:
        """Of the next token [vocabulary]; None right after a rewind: a token must be evaluated first."""
        return None if self.last is None else np.asarray(self.model.logits(self.last))

    def can_rewind(self, position: int) -> Verdict:
        """The cache's own predicate."""
        return self.cache.can_rewind(position)

    def rewind(self, position: int) -> None:
        """Cut to `position` tokens, or raise `RewindRefused`."""
        if position != self.length:
            self.cache.rewind(position)
            self.last = None

    def save_point(self) -> None:
        """Remember this position, so that a rewind can come back to it."""
        self.cache.save_point()

    def reset(self) -> None:
        """Empty."""
        self.cache, self.last = self.model.new_cache(), None

    def fork(self) -> Session:
        """An independent copy with tensors of its own."""
        twin = Session(self.model)
        twin._append(self.tokens)
        twin.cache, twin.last = copy.deepcopy(self.cache), self.last
        return twin


def decode(sessions: Sequence[Session], tokens: Sequence[int]) -> None:
    """One step of a decode batch: a token for each session, evaluated together.

    They share the evaluation, not the matrices: stacked into one product, a slot's rounding would depend on
    who else decodes, and a reply would no longer equal its own prefill.
    """
    for session, token in zip(sessions, tokens, strict=True):
        session._extend(np.array([token], dtype=np.uint64))
    mx.eval([session.last for session in sessions])
