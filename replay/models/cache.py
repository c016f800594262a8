"""What a session's cache can go back to: one predicate for asking and for doing, and never a silent trim."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from parser.errors import Ds4scopeError

State = dict[str, mx.array]


class RewindRefused(Ds4scopeError):
    """The cache cannot become what it was at that position; the message says why."""

    def __init__(self, reason: str) -> None:
        super().__init__("E-REWIND", reason)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a cache can go back; true or false, with the `reason` where it cannot."""

    reason: str = ""

    def __bool__(self) -> bool:
        return not self.reason


class LayerMemory(Protocol):
    """One layer's part of a cache. `frontier` is the bounded state at `length`, `rows` what only grows."""

    def clear(self) -> None:
        """Become empty."""

    def frontier(self, length: int) -> State:
        """The bounded state at `length` tokens: what a rewind cannot cut."""

    def load_frontier(self, state: Mapping[str, mx.array], length: int) -> None:
        """Become what `frontier` gave at `length`."""

    def grown(self, length: int) -> State:
        """What only grows, its first `length` tokens."""

    def load_grown(self, state: Mapping[str, mx.array]) -> None:
        """Become what `grown` gave."""

    def arrays(self) -> list[mx.array]:
        """All tensors."""

    def bytes(self, length: int) -> int:
        """Bytes of the tensors at `length` tokens, at most."""


class Cache(ABC):
    """The state of one session of `length` tokens, and its saved `points` (position -> frontier)."""

    def __init__(self, layers: list[LayerMemory]) -> None:
        self.layers, self.length = layers, 0
        self.points: dict[int, list[State]] = {}

    @abstractmethod
    def unreachable(self, position: int) -> str:
        """Why the tensors at hand cannot be those of `position` (< length); empty if they can."""

    def can_rewind(self, position: int) -> Verdict:
        """Whether `rewind(position)` would work. The one place that decides it."""
        if not 0 <= position <= self.length:
            return Verdict(f"position {position} is not within the {self.length} tokens held")
        if position in (0, self.length) or position in self.points:
            return Verdict()
        return Verdict(self.unreachable(position))

    def rewind(self, position: int) -> None:
        """Become the cache of the first `position` tokens, or raise `RewindRefused` and stay as it is."""
        verdict = self.can_rewind(position)
        if not verdict:
            raise RewindRefused(verdict.reason)
        if position == 0:
            for layer in self.layers:
                layer.clear()
        elif position != self.length and self.unreachable(position):
            for layer, state in zip(self.layers, self.points[position], strict=True):
                layer.load_frontier(state, position)
        self.length = position
        self.points = {at: state for at, state in self.points.items() if at <= position}

    def save_point(self) -> None:
        """Keep the bounded state of this position, so that `rewind` can come back to it."""
        self.points[self.length] = [_settled(layer.frontier(self.length)) for layer in self.layers]

    def state(self) -> State:
        """Everything a file needs to restore this position; names are `layer.part`."""
        parts = [{**layer.frontier(self.length), **layer.grown(self.length)} for layer in self.layers]
        return {f"{n}.{name}": value for n, part in enumerate(parts) for name, value in part.items()}

    def load(self, state: Mapping[str, mx.array], length: int) -> None:
        """Become what `state` was taken from."""
        for n, layer in enumerate(self.layers):
            part = {name.split(".", 1)[1]: value for name, value in state.items() if name.startswith(f"{n}.")}
            layer.load_frontier(part, length)
            layer.load_grown(part)
        self.length = length
        self.points = {}

    def bytes(self, length: int) -> int:
        """Bytes of the tensors at a length, at most, with the copy that growing takes."""
        return sum(layer.bytes(length) for layer in self.layers)

    def arrays(self) -> list[mx.array]:
        """All tensors, to be evaluated together."""
        return [array for layer in self.layers for array in layer.arrays()]


def _settled(state: State) -> State:
    """Copies of their own: a view would keep the whole buffer it was cut from."""
    copies = {name: mx.contiguous(value) + 0 for name, value in state.items()}
    mx.eval(copies)
    return copies
