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
                uses.setdefault(_word(needle, shift), []).append((shift, needle))
        self.grams = np.array(sorted(uses), np.uint32)
        self.uses = [uses[gram] for gram in sorted(uses)]
        self.pairs = np.zeros(1 << 16, np.bool_)
        self.pairs[self.grams & 0xFFFF] = True


class Finder:
    """A sieve at work in one thread, on pieces of at most `size` bytes."""

    def __init__(self, sieve: Sieve, size: int) -> None:
        self._sieve = sieve
        self._index = np.empty(size // sieve.stride + 1, np.intp)
        self._hits = np.empty(size // sieve.stride + 1, np.bool_)

    def find(self, data: NDArray[np.uint8]) -> Iterator[tuple[bytes, int]]:
        """(literal, where it begins in `data`) for each occurrence of a literal, in no order."""
        if len(data) < GRAM:
            return
        raw = data.data
        for place, gram in self._candidates(data):
            for shift, needle in self._sieve.uses[gram]:
                begin = place - shift
                if begin >= 0 and bytes(raw[begin : begin + len(needle)]) == needle:
                    yield needle, begin

    def _candidates(self, data: NDArray[np.uint8]) -> Iterator[tuple[int, int]]:
        """(place whose four bytes stand in a literal, which of `grams` they are)."""
        sieve = self._sieve
        count = (len(data) - GRAM) // sieve.stride + 1
        index, hits = self._index[:count], self._hits[:count]
        np.copyto(index, np.ndarray((count,), "<u2", data, strides=(sieve.stride,)))
        np.take(sieve.pairs, index, out=hits, mode="clip")
        places = np.flatnonzero(hits).astype(np.int64) * sieve.stride
        words = np.ndarray((len(data) - GRAM + 1,), "<u4", data, strides=(1,))[places]
        grams = np.minimum(np.searchsorted(sieve.grams, words), len(sieve.grams) - 1)
        known = sieve.grams[grams] == words
        return zip(places[known].tolist(), grams[known].tolist(), strict=True)


def _word(needle: bytes, at: int) -> int:
    return int.from_bytes(needle[at : at + GRAM], "little")
