"""The unit of computation. Every array shape in a tile follows from its absolute place, never from a chunk.

Why: matrix libraries pick kernels, and with them the order of additions, by shape. A prompt cut into other
chunks, resumed from a cache, or decoded token by token must give bit-equal rows, so all of them run the same
tiles: rows `start .. start + size` of the sequence, aligned to `size`, of which only `first .. last` are new.
Rows before `first` come from the cache, rows from `last` on are padding that no mask lets through.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import mlx.core as mx


@dataclass(frozen=True, slots=True)
class Tile:
    """Positions `start .. start + size`; `first .. last` are computed now (start <= first < last)."""

    start: int
    size: int
    first: int
    last: int

    @property
    def end(self) -> int:
        """The position after the tile."""
        return self.start + self.size

    @property
    def new(self) -> slice:
        """The new rows, counted within the tile."""
        return slice(self.first - self.start, self.last - self.start)

    def keep_new(self, computed: mx.array, cached: mx.array) -> mx.array:
        """`computed` where a row is new or later, `cached` before that. [size, width]"""
        if self.first == self.start:
            return computed
        return mx.where(_from(self.first - self.start, self.size), computed, cached)

    def rows_visible(self, ratio: int) -> mx.array:
        """For each position, how many rows of `ratio` tokens are complete with it. [size, 1]"""
        return _complete(self.start, self.size, ratio)


@lru_cache(maxsize=1024)
def _from(first: int, size: int) -> mx.array:
    return (mx.arange(size) >= first)[:, None]


@lru_cache(maxsize=64)
def _complete(start: int, size: int, ratio: int) -> mx.array:
    return ((mx.arange(start + 1, start + size + 1)) // ratio)[:, None]


def tiles(first: int, last: int, size: int) -> Iterator[Tile]:
    """The tiles that positions `first .. last` touch, in order."""
    for start in range(first - first % size, last, size):
        yield Tile(start, size, max(first, start), min(last, start + size))


def padded(count: int, step: int) -> int:
    """`count` rounded up to a multiple of `step`, at least one step: shapes that grow rarely."""
    return max(1, -(-count // step)) * step
