"""Input -> scenes, in the background, segment by segment; then, if wanted, as the log grows.

`Feed.run` is called in a worker thread. It tells what it has every quarter of a second, and stops between two
segments when asked to.
"""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from parser.errors import InputError
from parser.follow import Grown, first_look, follow
from parser.inputs import is_long_log
from parser.reading import Asked, Reading, Server, ServerRun, read
from parser.request import Request
from parser.skim import skim_segments
from parser.trace import TraceRequest
from tui.axis import origin
from tui.book import Book
from tui.placing import AxisChoice
from tui.scene import Scene, Setting, build
from tui.tables import Deleted, Frozen, Tables

_PERIOD: Final = 0.5  # seconds between two pictures while reading
_LONG: Final = 2 << 20  # bytes from which the beginning is shown first
_DRAWN: Final = 0.1  # seconds in which nothing else runs, so that the beginning is on the screen at once
_DELETIONS_KEPT: Final = 20_000  # the latest, for requests that are still open
_LOOK: Final = 0.5  # seconds between two looks at a growing file
_PIECE: Final = 4_000  # requests of a long log that are taken at once
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

    def asked(self) -> Asked:
        """The same as `parser.reading` takes it."""
        return Asked(
            self.inputs, self.traces, self.clients, since=self.since, until=self.until, year=self.year
        )

    def title(self) -> str:
        """The names of the files, without their folders."""
        return ", ".join(Path(name).name for name in self.inputs[:3]) + (" …" if len(self.inputs) > 3 else "")


@dataclass(frozen=True, slots=True)
class News:
    """What is known now: columns, scene, how much of the input is read (0..1, None: not known), whether all
    that was there is read. Rows of the table from `closed` on are `unfinished`: they may still change."""

    frozen: Frozen
    scene: Scene
    share: float | None
    live: bool
    closed: int
    unfinished: tuple[Request, ...] = ()


class Feed:
    """One input on its way to the screen: `book` holds its requests, `server` what is known of the
    server. `axis` and `following` may be set from another thread at any time."""

    def __init__(self, wanted: Wanted, *, axis: AxisChoice = "auto", following: bool = False) -> None:
        self.wanted, self.axis, self.following = wanted, axis, following
        self.tables, self.book = Tables(), Book()
        self._trace: dict[int, TraceRequest] = {}
        self._open_trace: Mapping[int, TraceRequest] = {}
        self.server = Server()
        self.skims = (
            False  # its requests are taken by their numbers alone; it does not go on as the log grows
        )
        self.first_stamp: str | None = None
        self._runs: list[ServerRun] = []
        self._looked = False
        self._deleted: dict[int, Deleted] = {}
        self._begins: list[tuple[int, int]] = []  # (first event, source)
        self._whole: Reading | None = None

    def run(self, tell: Callable[[News], None], stopped: Callable[[], bool]) -> None:
        """Read everything, telling on the way; if `following`, go on with what is appended until stopped.
        Raises what `parser` raises for bad input."""
        size, span = _bytes_of(self.wanted.inputs), whole_span(self.wanted.inputs)
        if (size or 0) > _LONG:
            self._glance(tell, span)
            time.sleep(_DRAWN)
        next_at, share = time.monotonic() + _PERIOD, None
        for step in self._steps(stopped):
            self._take(step.reading)
            self._open_trace = step.unfinished_trace
            share = 1.0 if step.live else _share(step.reading, size, share)
            if stopped():
                return
            now = time.monotonic()
            if (step.live and step.whole) or (now > next_at and len(self.tables)):
                tell(self._news(share, step, None if step.live else span))
                next_at = time.monotonic() + max(_PERIOD, 8 * (time.monotonic() - now))

    def _steps(self, stopped: Callable[[], bool]) -> Iterator[Grown]:
        """The input piece by piece. A long log that nobody follows is skimmed (`parser.skim`)."""
        asked = self.wanted.asked()
        self.skims = not self.following and is_long_log(asked)
        if not self.skims:
            yield from follow(asked, lambda: self._wait(stopped))
            return
        for piece in skim_segments(asked, _PIECE):
            yield Grown(piece.reading, live=piece.last)

    def trace(self, number: int) -> TraceRequest | None:
        """The trace record of a request, if a trace was given and has one."""
        return self._trace.get(number) or self._open_trace.get(number)

    def _glance(self, tell: Callable[[News], None], span: tuple[float, float] | None) -> None:
        """The beginning of a long log, so that there is something to see while the rest is read."""
        reading = first_look(self.wanted.asked())
        if reading is None or not reading.requests:
            return
        tables = Tables()
        tables.add(reading.requests)
        frozen = tables.freeze()
        setting = setting_of(reading.server, reading.runs, reading.stamps.first or _first_stamp(reading))
        scene = build(frozen, setting, axis=self.axis, span=span)
        tell(News(frozen, scene, 0.0, False, 0, tuple(reading.requests)))

    def whole_reading(self, stopped: Callable[[], bool]) -> Reading | None:
        """The whole input as one reading, for triage and replay; None when stopped meanwhile."""
        if self._whole is None or self.following:
            w = self.wanted
            self._whole = read(
                w.inputs, traces=w.traces, clients=w.clients, since=w.since, until=w.until, year=w.year
            )
        return None if stopped() else self._whole

    def _wait(self, stopped: Callable[[], bool]) -> bool:
        """Between two looks at the file; False: nobody follows any more."""
        for _ in range(5 if self._looked else 0):
            time.sleep(_LOOK / 5)
            if stopped():
                return False
        self._looked = True
        return self.following and not stopped()

    def _news(self, share: float | None, step: Grown, span: tuple[float, float] | None) -> News:
        frozen = self.tables.freeze(step.unfinished, self._deleted, self._files(step.unfinished))
        scene = build(frozen, self._setting(), axis=self.axis, span=span)
        return News(frozen, scene, share, step.live, len(self.tables), step.unfinished)

    def _take(self, reading: Reading) -> None:
        self._see_files(reading)
        self._deleted.update(deletions(reading))
        self.tables.add(reading.requests, self._deleted, self._files(reading.requests))
        while len(self._deleted) > _DELETIONS_KEPT:
            del self._deleted[next(iter(self._deleted))]
        self.book.add(reading.requests)
        self._trace.update(reading.trace)
        self.server, self._runs = reading.server, reading.runs
        self.first_stamp = self.first_stamp or reading.stamps.first or _first_stamp(reading)

    def _see_files(self, reading: Reading) -> None:
        """Remember with which event each source begins."""
        first = reading.events.begin if reading.events is not None else None
        if first is not None and (not self._begins or self._begins[-1][1] != first[1]):
            self._begins.append(first)

    @property
    def sources(self) -> int:
        """How many sources there are so far: a file that was rotated or emptied counts anew."""
        return max((source for _, source in self._begins), default=0) + 1

    def _files(self, requests: Sequence[Request]) -> list[int]:
        """The source in which each request's `line` stands. Where it goes on in the next file, that is its lowest
        line, so one of that file."""
        places = [bisect_right(self._begins, (max(r.events, default=0), 1 << 30)) - 1 for r in requests]
        return [self._begins[max(place, 0)][1] if self._begins else 0 for place in places]

    def _setting(self) -> Setting:
        return setting_of(self.server, self._runs, self.first_stamp)


def deletions(reading: Reading) -> dict[int, Deleted]:
    """Figures of the deleted checkpoints by `Event.seq`."""
    if reading.events is None:
        return {}
    return {
        event.seq: Deleted(event.get("tokens"), event.get("size_mib"))
        for event in reading.events.rows("kv_evicted")
    }


def setting_of(server: Server, runs: Sequence[ServerRun], first_stamp: str | None) -> Setting:
    """The server's side of the scene."""
    config = dict(server.config)
    clock, dated = origin(first_stamp)
    budget = config.get("kv_disk_space_mb")
    return Setting(
        slots=max([server.slots or 0, *(run.slots or 0 for run in runs)]) or None,
        ctx=config.get("ctx"),
        budget_mib=float(budget) if budget else None,
        disk=config.get("kv_disk"),
        profile=server.profile,
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
    end = reading.events.end
    return before if end is None else min(1.0, end[1] / size)
