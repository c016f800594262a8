"""Literals in raw bytes, after Wu and Manber, in numpy: without Python's lock and in memory that is reused.

All literals are at least `stride + GRAM - 1` bytes long, so each occurrence holds one of every `stride`th four
bytes of the data whole. Those are looked up in a table; of the few that are found the end of the literal is
looked at too, and what is left is compared in full. Nothing slips through, and most bytes are never looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

GRAM: Final = 4


class Sieve:
    """The tables for a set of literals (at least GRAM bytes each).

    A place in the data may hold the byte `shifts[u]` of `needles[owners[u]]` if its four bytes are `grams[u]`
    and those `ahead[u]` bytes further on are `ends[u]`, the last four of the literal.
    """

    def __init__(self, needles: Iterable[bytes]) -> None:
        self.needles = tuple(dict.fromkeys(needles))
        self.stride = min(map(len, self.needles)) - GRAM + 1
        uses = [(owner, shift) for owner in range(len(self.needles)) for shift in range(self.stride)]
        lengths = np.array([len(needle) for needle in self.needles])
        self.owners, self.shifts = (np.array(column) for column in zip(*uses, strict=True))
        self.grams = np.array([_word(self.needles[owner], shift) for owner, shift in uses], np.uint32)
        self.ends = np.array([_word(needle, len(needle) - GRAM) for needle in self.needles], np.uint32)[
            self.owners
        ]
        self.ahead = lengths[self.owners] - GRAM - self.shifts
        self.table = np.zeros(1 << 16, np.bool_)
        self.table[_mixed(self.grams.copy())] = True


def _word(needle: bytes, at: int) -> int:
    return int.from_bytes(needle[at : at + GRAM], "little")


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
        if len(data) < GRAM:
            return
        sieve, raw = self._sieve, data.data
        places, uses = self._likely(data, self._candidates(data))
        begins = (places - sieve.shifts[uses]).tolist()
        for begin, owner in zip(begins, sieve.owners[uses].tolist(), strict=True):
            needle = sieve.needles[owner]
            if begin >= 0 and raw[begin : begin + len(needle)] == needle:
                yield needle, begin

    def _likely(
        self, data: NDArray[np.uint8], places: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(place, use) of those places whose four bytes, and those at the literal's end, are as in a use."""
        sieve, last = self._sieve, len(data) - GRAM
        words = np.ndarray((last + 1,), "<u4", data, strides=(1,))
        at, uses = np.nonzero(words[places][:, None] == sieve.grams)
        places = places[at]
        same = words[np.minimum(places + sieve.ahead[uses], last)] == sieve.ends[uses]
        return places[same], uses[same]

    def _candidates(self, data: NDArray[np.uint8]) -> NDArray[np.intp]:
        """Places whose four bytes may stand in a literal."""
        stride, count = self._sieve.stride, (len(data) - GRAM) // self._sieve.stride + 1
        words, index, hits = self._words[:count], self._index[:count], self._hits[:count]
        np.copyto(words, np.ndarray((count,), "<u4", data, strides=(stride,)))
        np.copyto(index, _mixed(words))
        np.take(self._sieve.table, index, out=hits, mode="clip")
        return np.flatnonzero(hits) * stride
