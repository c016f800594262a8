"""A few kinds out of a long log: raw bytes are searched for literals, only lines that hold one are parsed.

The file is memory-mapped and searched in pieces that fit the processor's cache, on both cores. What is found
goes through the ordinary lanes, so the events are the same, but for lines that only people write: the bare
numbers of a miss, or a literal with widened blanks.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

import numpy as np

from parser.grammar import Grammar
from parser.sieve import Finder, Sieve
from parser.sources import Source
from parser.textlines import AFTER_RECORD, ERROR_BYTES, OPENERS, opens_record
from parser.wrappers import uncoloured

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Bytes whose findings are parsed together, bytes that are searched at a time, longest literal.
REGION: Final = 64 << 20
PIECE: Final = 512 << 10
REACH: Final = 64
#: A region never begins in the middle of a record of several lines, so so many bytes are looked at.
TAIL: Final = 16 << 10
NEWLINE: Final = 10
#: Shorter files are parsed as a whole.
LONG: Final = 8 << 20
#: The rule that only people write.
BY_HAND: Final = "bare"


@dataclass(frozen=True, slots=True)
class Region:
    """What was found in a part of a file. `lines` (number, start, end) hold a literal; `stretches` (number,
    start, end) are runs of lines that may belong to a record of several lines. Numbers count from 0 at the
    region's start, places are bytes of the file; `ends` is the number of line ends."""

    lines: list[tuple[int, int, int]]
    stretches: list[tuple[int, int, int]]
    ends: int


def sieve(grammar: Grammar, kinds: Iterable[str], source: Source) -> Sieve | None:
    """The search for the lines of `kinds` and for openers of long records; None where it does not pay: short or
    packed input, JSON (which hides literals in escapes and numbers), kinds without a literal."""
    plain = source.path is not None and source.packing == "plain" and source.encoding == "utf-8"
    if not plain or (source.size or 0) < LONG or source.head.lstrip().startswith(b"{"):
        return None
    wanted = set(kinds)
    templates = [t for t in grammar.templates if t.rule.kind in wanted and t.rule.name != BY_HAND]
    found = Sieve([*(template.needle.encode() for template in templates), *OPENERS])
    known = wanted <= {template.rule.kind for template in templates}
    return found if known and found.stride > 2 else None


@contextmanager
def mapped(source: Source) -> Iterator[mmap.mmap]:
    """The file of a source, mapped into memory."""
    assert source.path is not None
    with source.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


def regions(data: mmap.mmap, sieve: Sieve) -> Iterator[Region]:
    """The parts of a file in order, two searched at a time from this call on; pages that were read are let go."""
    pool, parts = ThreadPoolExecutor(2), _parts(data)
    running = deque(pool.submit(_search, data, *part, sieve) for part in islice(parts, 3))
    return _in_order(pool, running, (pool.submit(_search, data, *part, sieve) for part in parts))


def _in_order(
    pool: ThreadPoolExecutor, running: deque[Future[Region]], more: Iterator[Future[Region]]
) -> Iterator[Region]:
    with pool:
        while running:
            yield running.popleft().result()
            running.extend(islice(more, 1))


def _parts(data: mmap.mmap) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(data):
        stop = _line_start(data, start, start + REGION) if start + REGION < len(data) else len(data)
        yield start, stop
        start = stop


def _line_start(data: mmap.mmap, start: int, near: int) -> int:
    """A line start near by, behind `start`, that lies in no record of several lines."""
    stop = data.find(b"\n", near) + 1 or len(data)
    tail = data[max(start, stop - TAIL) : stop]
    opened = min((at for opener in OPENERS if (at := tail.find(opener)) >= 0), default=-1)
    before = stop - len(tail) + tail.rfind(b"\n", 0, max(opened, 0)) + 1
    return before if opened >= 0 and before > start else stop


def _search(data: mmap.mmap, start: int, stop: int, sieve: Sieve) -> Region:
    view = np.frombuffer(data, np.uint8)
    finder = Finder(sieve, PIECE + REACH)
    marks = [
        (at + begin, needle in OPENERS)
        for at in range(start, stop, PIECE)
        for needle, begin in finder.find(view[at : min(at + PIECE + REACH, stop)])
        if begin < PIECE
    ]
    region = _Walk(data, view, start, stop).region(sorted(marks))
    _release(data, start, stop)
    return region


class _Walk:
    """From places in a region to its lines, with their numbers."""

    def __init__(self, data: mmap.mmap, view: NDArray[np.uint8], start: int, stop: int) -> None:
        self._data, self._view, self._start, self._stop = data, view, start, stop
        self._at, self._number = start, 0

    def region(self, marks: Iterable[tuple[int, bool]]) -> Region:
        """`marks` are (place of a literal, whether it can open a long record), in order."""
        lines: list[tuple[int, int, int]] = []
        stretches: list[tuple[int, int, int]] = []
        behind = self._start - 1
        for end, several in groupby(marks, key=lambda mark: self._end(mark[0])):
            first = self._data.rfind(b"\n", self._start, end) + 1 or self._start
            if first <= behind:
                continue  # part of a record
            openers = [opener for _, opener in several]
            if any(openers) and self._opens(first, end):
                number, behind = self._number_of(first), self._behind_record(end)
                stretches.append((number, first, behind))
            elif not all(openers):
                lines.append((self._number_of(first), first, end))
        return Region(lines, stretches, self._number_of(self._stop))

    def _opens(self, first: int, end: int) -> bool:
        return opens_record(uncoloured(self._data[first:end].decode("utf-8", "replace")))

    def _number_of(self, place: int) -> int:
        self._number += _count(self._view[self._at : place])
        self._at = place
        return self._number

    def _end(self, place: int) -> int:
        end = self._data.find(b"\n", place, self._stop)
        return self._stop if end < 0 else end

    def _behind_record(self, end: int) -> int:
        """Behind all that may belong to a record that opens on the line ending at `end`, or bound it."""
        end = self._end(min(end + ERROR_BYTES, self._stop))
        for _ in range(AFTER_RECORD):
            end = self._end(min(end + 1, self._stop))
        return end


def _count(view: NDArray[np.uint8]) -> int:
    """Line ends, in pieces so that no long array of comparisons is made."""
    return sum(int(np.count_nonzero(view[at : at + PIECE] == NEWLINE)) for at in range(0, len(view), PIECE))


def _release(data: mmap.mmap, start: int, stop: int) -> None:
    """Lets go of pages that were read, so that memory stays bounded (where the system knows how)."""
    first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, stop // mmap.PAGESIZE * mmap.PAGESIZE
    if hasattr(mmap, "MADV_DONTNEED") and last > first:
        data.madvise(mmap.MADV_DONTNEED, first, last - first)
