"""Input -> scenes, in the background: a small input whole, a long one segment by segment.

`Feed.run` is called in a worker thread. It tells what it has every quarter of a second, and stops between two
segments when asked to.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from parser.errors import InputError
from parser.reading import Reading, read, read_segments
from tui.axis import origin
from tui.book import Book
from tui.scene import AxisChoice, Scene, Setting, build
from tui.tables import Deleted, Frozen, Tables

#: Below this an input is read at once (which a report needs), above it in segments.
WHOLE_BYTES: Final = 16 << 20
_PERIOD: Final = 0.25  # seconds between two pictures while reading
_TAIL: Final = 1 << 16
_STAMP: Final = re.compile(rb"(?m)^(\d{4} \d\d:\d\d:\d\d) ")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for; the names are those of `parser.reading.read`."""

    inputs: tuple[str, ...]
    traces: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    year: int | None = None

    def title(self) -> str:
        """The names of the files, without their folders."""
        return ", ".join(Path(name).name for name in self.inputs[:3]) + (" …" if len(self.inputs) > 3 else "")


@dataclass(frozen=True, slots=True)
class News:
    """What is known now: columns, scene, how much of the input is read (0..1, None: not known), whether done."""

    frozen: Frozen
    scene: Scene
    share: float | None
    done: bool
    reading: Reading
    lines: int = 0


@dataclass(slots=True)
class Feed:
    """One input on its way to the screen. `book` holds its requests, `reading` what was last read of it."""

    wanted: Wanted
    axis: AxisChoice = "auto"
    tables: Tables = field(default_factory=Tables)
    book: Book = field(default_factory=Book)
    reading: Reading = field(default_factory=Reading)

    def run(self, tell: Callable[[News], None], stopped: Callable[[], bool]) -> None:
        """Read everything, telling `News` on the way. Raises what `parser` raises for bad input."""
        size = _bytes_of(self.wanted.inputs)
        if size is not None and size <= WHOLE_BYTES:
            self._take(_whole(self.wanted))
            tell(self.news(1.0, done=True))
            return
        self._segments(tell, stopped, size)

    def news(self, share: float | None, *, done: bool, span: tuple[float, float] | None = None) -> News:
        """What there is, as a scene."""
        frozen = self.tables.freeze()
        scene = build(frozen, setting_of(self.reading), axis=self.axis, span=None if done else span)
        return News(frozen, scene, share, done, self.reading)

    def whole_reading(self, stopped: Callable[[], bool]) -> Reading | None:
        """The whole input as one reading, for triage and replay; None when stopped meanwhile."""
        if len(self.reading.requests) != len(self.tables):
            whole = _whole(self.wanted)
            self.reading = whole if not stopped() else self.reading
        return None if stopped() else self.reading

    def _segments(self, tell: Callable[[News], None], stopped: Callable[[], bool], size: int | None) -> None:
        span = whole_span(self.wanted.inputs)
        told, share = 0.0, None
        for reading in self._readings():
            self._take(reading)
            share = _share(reading, size, share)
            if stopped():
                break
            if time.monotonic() - told > _PERIOD and len(self.tables):
                tell(self.news(share, done=False, span=span))
                told = time.monotonic()
        tell(self.news(1.0 if not stopped() else share, done=True))

    def _readings(self) -> Iterable[Reading]:
        w = self.wanted
        return read_segments(
            w.inputs, traces=w.traces, clients=w.clients, since=w.since, until=w.until, year=w.year
        )

    def _take(self, reading: Reading) -> None:
        self.reading = reading
        self.tables.add(reading.requests, deletions(reading))
        self.book.add(reading.requests)


def _whole(w: Wanted) -> Reading:
    return read(w.inputs, traces=w.traces, clients=w.clients, since=w.since, until=w.until, year=w.year)


def deletions(reading: Reading) -> dict[int, Deleted]:
    """Figures of the deleted checkpoints by `Event.seq`."""
    if reading.events is None:
        return {}
    return {
        event.seq: Deleted(event.get("tokens"), event.get("size_mib"))
        for event in reading.events.rows("kv_evicted")
    }


def setting_of(reading: Reading) -> Setting:
    """The server's side of the scene."""
    config = reading.server.config
    for run in reading.runs:
        config = {**config, **run.config} if not reading.server.config else config
    clock, dated = origin(reading.stamps.first or _first_stamp(reading))
    budget = config.get("kv_disk_space_mb")
    return Setting(
        slots=reading.server.slots or max((run.slots or 0 for run in reading.runs), default=0) or None,
        ctx=config.get("ctx"),
        budget_mib=float(budget) if budget else None,
        disk=config.get("kv_disk"),
        profile=reading.server.profile,
        origin=clock,
        dated=dated,
    )


def _first_stamp(reading: Reading) -> str | None:
    if reading.events is None:
        return None
    return next((event.stamp for event in reading.events.rows() if event.stamp), None)


def whole_span(inputs: Sequence[str]) -> tuple[float, float] | None:
    """First to last stamp of plain files, so that the axis is whole before the log is read (seconds)."""
    try:
        with Path(inputs[0]).open("rb") as first, Path(inputs[-1]).open("rb") as last:
            head = _STAMP.search(first.read(_TAIL))
            last.seek(max(0, os.fstat(last.fileno()).st_size - _TAIL))
            tail = _STAMP.findall(last.read())
    except OSError:
        return None
    if head is None or not tail:
        return None
    begin, end = origin(head[1].decode())[0], origin(tail[-1].decode())[0]
    if begin is None or end is None:
        return None
    seconds = (end - begin).total_seconds()
    return 0.0, seconds if seconds >= 0 else seconds + 365 * 86400


def _bytes_of(inputs: Sequence[str]) -> int | None:
    """Bytes of all inputs as stored; packed ones count fivefold. None where they cannot be told."""
    total = 0
    for name in inputs:
        path = Path(name)
        if path.is_dir():
            return None
        try:
            size = path.stat().st_size
        except OSError as error:
            hint = "check the name; - reads standard input"
            raise InputError("E-INPUT-MISSING", "no such file", path=name, hint=hint) from error
        total += size * 5 if name.endswith((".gz", ".zst")) else size
    return total


def _share(reading: Reading, size: int | None, before: float | None) -> float | None:
    """How much of the bytes lies behind the last event (of a single, plain file)."""
    if not size or reading.events is None or len(reading.sources) > 1:
        return before
    last = max((event.offset + event.length for event in reading.events.rows()), default=None)
    return before if last is None else min(1.0, last / size)
