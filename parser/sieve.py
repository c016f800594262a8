"""Literals in raw bytes, after Wu and Manber, in numpy: without Python's lock and in memory that is reused.

All literals are at least `stride + GRAM - 1` bytes long, so each occurrence holds one of every `stride`th four
bytes of the data whole. Those are looked up: two bytes in a table, the rest in a sorted list, and what is left
is compared in full. Nothing slips through, and most bytes are never looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

GRAM: Final = 4


class Sieve:
    """The tables for a set of literals (at least GRAM bytes each)."""

    def __init__(self, needles: Iterable[bytes]) -> None:
        self.needles = tuple(dict.fromkeys(needles))
        self.stride = min(map(len, self.needles)) - GRAM + 1
        uses: dict[int, list[tuple[int, bytes]]] = {}
        for needle in self.needles:
            for shift in range(self.stride):
                word = int.from_bytes(needle[shift : shift + GRAM], "little")
                uses.setdefault(word, []).append((shift, needle))
        self.uses = uses
        self.table = np.zeros(1 << 16, np.bool_)
        self.table[_mixed(np.array(list(uses), np.uint32))] = True


def _mixed(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """16 bits that depend on all four bytes; in place."""
    np.multiply(words, np.uint32(0x9E3779B1), out=words)
    np.right_shift(words, np.uint32(16), out=words)
    return words


class Finder:
    """A sieve at work in one thread, on pieces of at most `size` bytes; its arrays are used again and again."""

    def __init__(self, sieve: Sieve, size: int) -> None:
        count = size // sieve.stride + 1
        self._sieve = sieve
        self._words = np.empty(count, np.uint32)
        self._index = np.empty(count, np.intp)
        self._hits = np.empty(count, np.bool_)

    def find(self, data: NDArray[np.uint8]) -> Iterator[tuple[bytes, int]]:
        """(literal, where it begins in `data`) for each occurrence of a literal, in no order."""
        raw = data.data
        for place in self._candidates(data):
            for shift, needle in self._sieve.uses.get(
                int.from_bytes(raw[place : place + GRAM], "little"), ()
            ):
                begin = place - shift
                if begin >= 0 and raw[begin : begin + len(needle)] == needle:
                    yield needle, begin

    def _candidates(self, data: NDArray[np.uint8]) -> list[int]:
        """Places whose four bytes may stand in a literal."""
        stride, count = self._sieve.stride, max(0, (len(data) - GRAM) // self._sieve.stride + 1)
        words, index, hits = self._words[:count], self._index[:count], self._hits[:count]
        np.copyto(words, np.ndarray((count,), "<u4", data, strides=(stride,)))
        np.copyto(index, _mixed(words))
        np.take(self._sieve.table, index, out=hits, mode="clip")
        places: list[int] = (np.flatnonzero(hits) * stride).tolist()
        return places
