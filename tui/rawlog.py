"""The raw lines of the input: only what is visible is read (`pread`), line ends are counted in the
background.

Plain UTF-8 files are read in place. Packed files, pipes and UTF-16 are unpacked once into an unnamed
temporary file. Nothing here interprets a line; what is shown passes the sanitiser.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Final, TypeAlias

from parser.sanitise import sanitise
from parser.sources import Source, find_sources, iter_blocks

_STRIDE: Final = 512  # lines between two remembered offsets
_CHUNK: Final = 1 << 20
_FAR: Final = 64 << 20  # bytes that are counted in a tenth of a second
_LONGEST: Final = 4096  # bytes of a line that are shown
_BOM: Final = b"\xef\xbb\xbf"
_GONE: Final = "(the file was emptied since: these lines are gone)"
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


#: (file, line): files count from 0, the lines of each from 1
Place: TypeAlias = "tuple[int, int]"


class RawFile:
    """One source: `lines(first, count)` for any line whose place is known or can be found by reading on."""

    def __init__(self, source: Source) -> None:
        self.name, self.source = source.name, source
        self.gone = False  # it was emptied and written anew: what stands there now is another text
        self._spool: IO[bytes] | None = None
        self.fd = self._open(source)
        self._offsets = array("q", [len(_BOM) if os.pread(self.fd, 3, 0) == _BOM else 0])
        self._counted = self._offsets[0]  # bytes whose line ends are counted
        self.count = 0  # complete lines seen so far
        self._lock = threading.Lock()  # a thread may count on beside the one that shows

    def _open(self, source: Source) -> int:
        if source.path is not None and source.packing == "plain" and source.encoding == "utf-8":
            return os.open(source.path, os.O_RDONLY)
        self._spool = tempfile.TemporaryFile(prefix="ds4scope-")  # noqa: SIM115 (lives as long as this)
        for block in iter_blocks(source, count_lines=False):
            self._spool.write(block.data)
        self._spool.flush()
        return os.dup(self._spool.fileno())

    @property
    def size(self) -> int:
        """Bytes at the moment."""
        return os.fstat(self.fd).st_size

    def count_on(self, chunks: int = 1) -> bool:
        """Count line ends in the next `chunks` MiB; False once the end is reached."""
        for _ in range(chunks):
            with self._lock:
                data = os.pread(self.fd, _CHUNK, self._counted)
                if not data:
                    return False
                self._remember(data)
        return True

    def is_far(self, line: int) -> bool:
        """So much is to be counted up to `line` that a key would wait for it."""
        return not self.gone and self.count < line and self.size - self._counted > _FAR

    def count_to(self, line: int, stopped: Callable[[], bool]) -> None:
        """Count up to `line`, unless stopped."""
        while self.count < line and not stopped() and self.count_on(4):
            pass

    def last(self) -> int:
        """Number of the last line; counts to the end first."""
        while self.count_on(8):
            pass
        cut = self._counted > self._offsets[0] and os.pread(self.fd, 1, self._counted - 1) != b"\n"
        return self.count + cut

    def lines(self, first: int, count: int) -> list[str]:
        """Lines `first` (1-based) and the `count - 1` after it, sanitised and cut at 4 KiB; fewer at the
        end."""
        if self.gone:
            return [_GONE]
        while self.count < first + count and self.count_on():
            pass
        mark = min((first - 1) // _STRIDE, len(self._offsets) - 1)
        found = self._from(self._offsets[mark], first - 1 - mark * _STRIDE, count)
        return [_shown(line) for line in found]

    def offset_of(self, line: int) -> int:
        """Offset of the first byte of a line that is already counted."""
        mark = min((line - 1) // _STRIDE, len(self._offsets) - 1)
        at = self._offsets[mark]
        for data in self._from(at, 0, line - 1 - mark * _STRIDE):
            at += len(data) + 1
        return at

    def find(self, text: str, first: int, stopped: Callable[[], bool]) -> int | None:
        """The first line at or after `first` that holds `text` (case ignored); None at the end or when
        stopped."""
        if self.gone:
            return None
        needle = text.encode().lower()  # as lines are: only A-Z have a small form in bytes
        self.lines(first, 1)  # counts up to there
        line = first
        for chunk in self._chunks(self.offset_of(first)):
            if stopped():
                return None
            place = chunk.lower().find(needle)
            if place >= 0:
                return line + chunk.count(b"\n", 0, place)
            line += chunk.count(b"\n")
        return None

    def find_back(self, text: str, before: int, stopped: Callable[[], bool]) -> int | None:
        """The last line before line `before` that holds `text`; None at the beginning or when stopped."""
        if self.gone:
            return None
        needle = text.encode().lower()
        self.lines(max(before, 1), 1)
        for mark in range(min((before - 1) // _STRIDE, len(self._offsets) - 1), -1, -1):
            first = mark * _STRIDE + 1
            lines = self._from(self._offsets[mark], 0, min(_STRIDE, before - first))
            if stopped():
                return None
            found = [number for number, line in enumerate(lines) if needle in line.lower()]
            if found:
                return first + found[-1]
        return None

    def close(self) -> None:
        """Give the file back."""
        os.close(self.fd)
        if self._spool is not None:
            self._spool.close()

    def _remember(self, data: bytes) -> None:
        """Remember where every 512th line begins."""
        ends = data.count(b"\n")
        place = -1
        wanted = _STRIDE - self.count % _STRIDE
        seen = 0
        while seen + wanted <= ends:
            for _ in range(wanted):
                place = data.find(b"\n", place + 1)
            self._offsets.append(self._counted + place + 1)
            seen, wanted = seen + wanted, _STRIDE
        self.count += ends
        self._counted += len(data)

    def _from(self, offset: int, skip: int, count: int) -> list[bytes]:
        """`count` lines after `skip` lines from `offset`; a last line without its end counts too."""
        held = b""
        found: list[bytes] = []
        for chunk in self._chunks(offset):
            parts = (held + chunk).split(b"\n")
            held = parts.pop()
            found += parts
            if len(found) >= skip + count:
                return found[skip : skip + count]
        return [*found, *([held] if held else [])][skip : skip + count]

    def _chunks(self, offset: int) -> Iterator[bytes]:
        """The file from `offset` in pieces that end with a line, as far as lines are not longer than a
        piece."""
        while data := os.pread(self.fd, _CHUNK, offset):
            cut = data.rfind(b"\n") + 1
            data = data[:cut] if cut and len(data) == _CHUNK else data
            yield data
            offset += len(data)


class RawLog:
    """All sources one after the other; a line is (source, number) with numbers that start anew in each."""

    def __init__(self, inputs: Sequence[str]) -> None:
        self.files = [RawFile(source) for source in find_sources(inputs)]

    def reach(self, count: int) -> None:
        """Have `count` files: each that is missing is the last one begun anew, rotated or emptied."""
        while len(self.files) < count:
            last = self.files[-1]
            anew = RawFile(last.source)
            last.gone = os.path.samestat(os.fstat(anew.fd), os.fstat(last.fd))
            last.name += ", before"
            self.files.append(anew)

    def find(self, text: str, behind: Place, stopped: Callable[[], bool]) -> Place | None:
        """The next line behind `behind` that holds `text`: on through the files, and around their end."""
        number, line = behind
        tries = [(number, line + 1), *((n, 1) for n in self._around(number, 1))]
        for file, first in tries:
            found = self.files[file].find(text, first, stopped)
            if found is not None or stopped():
                return None if found is None else (file, found)
        return None

    def find_back(self, text: str, before: Place, stopped: Callable[[], bool]) -> Place | None:
        """The last line before `before` that holds `text`: back through the files, and around their beginning."""
        number, line = before
        for step, file in enumerate([number, *self._around(number, -1)]):
            found = self.files[file].find_back(
                text, line if step == 0 else self.files[file].last() + 1, stopped
            )
            if found is not None or stopped():
                return None if found is None else (file, found)
        return None

    def _around(self, number: int, step: int) -> list[int]:
        """The files after `number` in the direction of `step`, itself last."""
        count = len(self.files)
        return [(number + step * by) % count for by in range(1, count + 1)]

    def close(self) -> None:
        """Give the files back."""
        for file in self.files:
            file.close()


def _shown(line: bytes) -> str:
    text = sanitise(_COLOUR.sub("", line[:_LONGEST].decode("utf-8", "replace").rstrip("\r")))
    return text + " …" if len(line) > _LONGEST else text
