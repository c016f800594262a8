"""A few kinds out of a long log: raw bytes are searched for literals, only lines that hold one are parsed.

The file is memory-mapped and searched in pieces that fit the processor's cache, on both cores. What is found
goes through the ordinary lanes, so the events are the same, but for lines that only people write: the bare
numbers of a miss, or a literal with widened blanks.
"""

from __future__ import annotations

import mmap
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
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
REGION: Final = 128 << 20
PIECE: Final = 1 << 20
REACH: Final = 64
#: Pages are let go after so many bytes.
RELEASED: Final = 16 << 20
#: A region never begins in the middle of a record of several lines, so so many bytes are looked at.
TAIL: Final = 16 << 10
NEWLINE: Final = 10
#: Seconds for which a thread may hold Python's lock while others wait.
TURN_S: Final = 0.0002
#: Shorter files are parsed as a whole.
LONG: Final = 8 << 20
#: The rule that only people write.
BY_HAND: Final = "bare"


@dataclass(frozen=True, slots=True)
class Region:
    """What was found in a part of a file. Lines that hold a literal: `found` are their bytes, joined by line
    ends, `places` their (number, byte of the file). `stretches` (number, byte of the file, bytes) are runs of
    lines that may belong to a record of several lines. Numbers count from 0 at the region's start; `ends` is
    the number of line ends in it."""

    places: list[tuple[int, int]]
    found: bytes
    stretches: list[tuple[int, int, bytes]]
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


@contextmanager
def brief_turns() -> Iterator[None]:
    """Python's lock goes round faster: each numpy call of the search takes less than the usual 5 ms turn, and
    would wait so long for the next one while the main thread loads the columns."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


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
    return _Search(data, sieve, start, stop).region()


class _Search:
    """One thread's way through a part of a file, piece by piece: each is looked at while it is in the cache."""

    def __init__(self, data: mmap.mmap, sieve: Sieve, start: int, stop: int) -> None:
        self._data, self._view = data, np.frombuffer(data, np.uint8)
        self._finder = Finder(sieve, PIECE + REACH)
        self._ends = np.empty(PIECE + REACH, np.bool_)
        self._start, self._stop = start, stop
        self._number = 0  # line ends before the piece at hand
        self._behind = start - 1  # the end of the last line or record that was kept
        self._places: list[tuple[int, int]] = []
        self._found: list[bytes] = []
        self._stretches: list[tuple[int, int, bytes]] = []

    def region(self) -> Region:
        """What there is; the pages that were read are let go."""
        for at in range(self._start, self._stop, PIECE):
            end = min(at + PIECE, self._stop)
            self._piece(at, end)
            if (end - self._start) % RELEASED == 0:
                _release(self._data, end - RELEASED, end - REACH)
        _release(self._data, self._stop - (self._stop - self._start) % RELEASED, self._stop)
        return Region(self._places, b"\n".join(self._found), self._stretches, self._number)

    def _piece(self, at: int, end: int) -> None:
        reach = self._view[at : min(end + REACH, self._stop)]
        marks = sorted((begin, needle in OPENERS) for needle, begin in self._finder.find(reach))
        is_end = np.equal(reach, NEWLINE, out=self._ends[: len(reach)])
        if marks:
            self._lines(at, marks, np.flatnonzero(is_end))
        self._number += int(np.count_nonzero(is_end[: end - at]))

    def _lines(self, at: int, marks: list[tuple[int, bool]], ends: NDArray[np.intp]) -> None:
        """The lines that hold these marks; `marks` and line `ends` count from byte `at`."""
        before = np.searchsorted(ends, [begin for begin, _ in marks]).tolist()
        openers = (opener for _, opener in marks)
        for count, several in groupby(zip(before, openers, strict=True), key=itemgetter(0)):
            first = at + int(ends[count - 1]) + 1 if count else self._begin(at)
            end = at + int(ends[count]) if count < len(ends) else self._end(max(first, at))
            if first > self._behind:  # else known from the piece before, or part of a record
                self._line(self._number + count, first, end, [opener for _, opener in several])

    def _line(self, number: int, first: int, end: int, openers: list[bool]) -> None:
        if any(openers) and self._opens(first, end):
            end = self._behind_record(end)
            self._stretches.append((number, first, self._data[first:end]))
        elif not all(openers):
            self._places.append((number, first))
            self._found.append(self._data[first:end])
        else:
            return
        self._behind = end

    def _opens(self, first: int, end: int) -> bool:
        return opens_record(uncoloured(self._data[first:end].decode("utf-8", "replace")))

    def _begin(self, place: int) -> int:
        """Where the line begins in which `place` lies."""
        return self._data.rfind(b"\n", self._start, place) + 1 or self._start

    def _end(self, place: int) -> int:
        end = self._data.find(b"\n", place, self._stop)
        return self._stop if end < 0 else end

    def _behind_record(self, end: int) -> int:
        """Behind all that may belong to a record that opens on the line ending at `end`, or bound it."""
        end = self._end(min(end + ERROR_BYTES, self._stop))
        for _ in range(AFTER_RECORD):
            end = self._end(min(end + 1, self._stop))
        return end


def _release(data: mmap.mmap, start: int, stop: int) -> None:
    """Lets go of pages that were read, so that memory stays bounded (where the system knows how)."""
    first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, stop // mmap.PAGESIZE * mmap.PAGESIZE
    if hasattr(mmap, "MADV_DONTNEED") and last > first:
        data.madvise(mmap.MADV_DONTNEED, first, last - first)
