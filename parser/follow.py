"""A growing log, read on: the same segments as `read_segments`, then what is appended, as it comes.

The file may be rotated (another file takes its name: the old one is read to its end first) or truncated in
place (it is read from its start again); line numbers then begin anew under the next source number, request
numbers, slots and conversations run on.
"""

from __future__ import annotations

import copy
import io
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final, cast

from parser.assemble import Assembler, assembler_of, reading_of
from parser.beside import Traces, Usage, read_usage
from parser.eventlog import EventLog
from parser.events import read_events
from parser.inputs import Inputs
from parser.reading import Asked, Reading
from parser.request import Request
from parser.sources import Source
from parser.trace import TraceRequest
from parser.trace_tail import TraceTails
from parser.unpack import Pipe

_PIECE: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Grown:
    """One step: `reading` as `read_segments` gives it, and `unfinished`: rows of what is still open, as far
    as they can be told now. They come again, with the same or better figures, in a later reading."""

    reading: Reading
    unfinished: tuple[Request, ...] = ()
    unfinished_trace: Mapping[int, TraceRequest] = field(default_factory=dict)
    live: bool = False  # everything that was there at the beginning is read
    whole: bool = True  # `unfinished` is up to date (False: a step with them follows)


def can_follow(source: Source) -> bool:
    """Only a plain UTF-8 file grows in a way that can be read on."""
    return source.path is not None and source.packing == "plain" and source.encoding == "utf-8"


def first_look(asked: Asked) -> Reading | None:
    """What the first 256 KiB of a long log say by themselves, at once; None for a report."""
    inputs = Inputs(asked)
    if inputs.kind != "log":
        return None
    first = inputs.sources[0]
    head = first.head[: first.head.rfind(b"\n") + 1]
    inputs.sources[:] = [replace(first, path=None, pipe=Pipe(io.BytesIO(), head, ended=True))]
    assembler = assembler_of(asked)
    log, rows = EventLog([]), []
    for log in inputs.blocks():
        rows += assembler.feed(log)
    return reading_of(inputs, assembler, log, rows + assembler.finish())


def follow(asked: Asked, wait: Callable[[], bool]) -> Iterator[Grown]:
    """Read `asked`; at its end ask `wait`, which sleeps as it likes and says whether to look again.

    When `wait` says no (or the last source cannot grow) the input counts as ended and the rest is given out.
    """
    inputs, traces = Inputs(asked), TraceTails(asked.traces, max_bytes=asked.max_bytes)
    usage = Usage(read_usage(asked.clients, max_bytes=asked.max_bytes))
    assembler = Assembler(Traces(traces.more()), usage, asked.year)
    last = inputs.sources[-1]
    tail = _Tail(last) if can_follow(last) and inputs.kind == "log" else None
    if tail is not None:
        inputs.sources[-1] = tail.until_now()
    seq = 0
    for block in inputs.blocks():
        seq += sum(block.counts.values())
        heard = assembler.hear(inputs.heard())
        yield Grown(reading_of(inputs, assembler, block, assembler.feed(block), heard))
    if tail is not None:
        yield from _grow(inputs, assembler, tail, seq, wait, traces)
    assembler.traces.grow(traces.more(final=True))
    yield Grown(reading_of(inputs, assembler, EventLog([]), assembler.finish()), live=True)


def _grow(
    inputs: Inputs, assembler: Assembler, tail: _Tail, seq: int, wait: Callable[[], bool], traces: TraceTails
) -> Iterator[Grown]:
    """What is appended, with a preview of what is open; one preview costs at most a tenth of the time."""
    cost, shown, stale = 0.0, -1e9, True
    try:
        while wait():
            for block in tail.more(seq):
                seq += sum(block.counts.values())
                assembler.traces.grow(traces.more())  # a record is written before its request ends
                yield Grown(
                    reading_of(inputs, assembler, block, assembler.feed(block)), live=True, whole=False
                )
                stale = True
            now = time.monotonic()
            if stale and now - shown > 10 * cost:
                yield _preview(inputs, assembler)
                cost, shown, stale = time.monotonic() - now, time.monotonic(), False
    finally:
        tail.close()


def _preview(inputs: Inputs, assembler: Assembler) -> Grown:
    """What the input would give if it ended here, beyond what was given out."""
    preview = copy.deepcopy(assembler)
    rows = tuple(preview.finish())
    return Grown(reading_of(inputs, assembler, EventLog([]), []), rows, preview.trace, live=True)


class _Tail:
    """The end of one file: `more` gives the whole lines that were appended since the last look."""

    def __init__(self, source: Source) -> None:
        assert source.path is not None
        self._source, self._path = source, source.path
        self._file: IO[bytes] = self._path.open("rb")
        self._offset, self._line, self._begun = 0, 1, 0  # `_begun`: how often the lines began anew

    def until_now(self) -> Source:
        """The source up to its last line end as of now; lines are counted as it is read."""
        size = os.fstat(self._file.fileno()).st_size
        self._offset = _last_line_end(self._file, size)
        stream = cast(IO[bytes], _Counted(self, self._offset))
        return replace(self._source, path=None, pipe=Pipe(stream, b"", ended=False))

    def counted(self, data: bytes) -> None:
        """These bytes were read."""
        self._line += data.count(b"\n")

    def more(self, seq: int) -> Iterator[EventLog]:
        """Events of the whole lines appended meanwhile; the file may have been rotated or truncated."""
        yield from self._appended(seq)
        if self._rotated():
            yield from self._appended(seq)
            self._file.close()
            self._file = self._path.open("rb")
            self._anew()
            yield from self._appended(seq)

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def _appended(self, seq: int) -> Iterator[EventLog]:
        if os.fstat(self._file.fileno()).st_size < self._offset:
            self._anew()
        while data := os.pread(self._file.fileno(), _PIECE, self._offset):
            whole = data[: data.rfind(b"\n") + 1]
            if not whole:
                return
            for log in self._events(whole, seq):
                seq += sum(log.counts.values())
                yield log
            self._offset += len(whole)
            self._line += whole.count(b"\n")

    def _anew(self) -> None:
        self._offset, self._line, self._begun = 0, 1, self._begun + 1

    def _events(self, data: bytes, seq: int) -> Iterator[EventLog]:
        if not data.strip():
            return
        source = replace(self._source, path=None, pipe=Pipe(io.BytesIO(), data, ended=True))
        for log in read_events(cast(Any, [source])):
            yield EventLog([self._moved(event, seq) for event in log.rows(*log.counts)])

    def _moved(self, event: Any, seq: int) -> Any:
        return replace(
            event,
            seq=event.seq + seq,
            line=event.line + self._line - 1,
            offset=event.offset + self._offset,
            source=self._source.index + self._begun,
        )

    def _rotated(self) -> bool:
        """Another file has this name now. While there is none, the old one is still ours."""
        try:
            now = Path(self._path).stat()
        except OSError:
            return False
        mine = os.fstat(self._file.fileno())
        return (now.st_ino, now.st_dev) != (mine.st_ino, mine.st_dev)


class _Counted(io.RawIOBase):
    """The first `limit` bytes of a tail's file; tells the tail what was read."""

    def __init__(self, tail: _Tail, limit: int) -> None:
        self._tail, self._limit, self._at = tail, limit, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = os.pread(self._tail._file.fileno(), min(len(buffer), self._limit - self._at), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        self._tail.counted(data)
        return len(data)


def _last_line_end(file: IO[bytes], size: int) -> int:
    """Offset behind the last line end before `size`; 0 where there is none."""
    at = size
    while at > 0:
        begin = max(0, at - _PIECE)
        found = os.pread(file.fileno(), at - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        at = begin
    return 0
