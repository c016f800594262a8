"""Inputs -> blocks of events: logs by lane and block, reports as a whole, in reading order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from parser.event import KINDS
from parser.eventlog import EventLog
from parser.hearsay import Hearsay
from parser.reading import Asked
from parser.report import is_report, read_report
from parser.sources import Source, find_sources
from parser.window import Window

#: logs of more bytes than this are skimmed (`parser.skim`) where nothing asks for more
LONG: Final = 24 << 20


class Inputs:
    """The sources of one reading; `blocks` reads them once."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.sources = find_sources(asked.inputs)
        self._reports = {source.index for source in self.sources if is_report(source)}
        self._heard: list[Hearsay] = []
        self._groups = 0

    @property
    def names(self) -> tuple[str, ...]:
        """As errors and reports show them."""
        return tuple(source.name for source in self.sources)

    @property
    def kind(self) -> str:
        """ "report" where every source is one, else "log"."""
        return "report" if len(self._reports) == len(self.sources) else "log"

    @property
    def mtime(self) -> float | None:
        """When the last source was written to, Unix seconds."""
        return max((s.mtime for s in self.sources if s.mtime is not None), default=None)

    def heard(self) -> list[Hearsay]:
        """What reports said in other words since the last call."""
        heard, self._heard = self._heard, []
        return heard

    def blocks(self) -> Iterator[EventLog]:
        """Event logs in reading order; `seq` runs on."""
        for reports, group in groupby(self.sources, key=lambda source: source.index in self._reports):
            sources = list(group)
            yield from self._of_reports(sources) if reports else self._of_logs(sources)

    def _of_logs(self, sources: list[Any]) -> Iterator[EventLog]:
        from parser.events import read_events

        asked = self.asked
        yield from read_events(
            sources, lane=asked.lane, max_bytes=asked.max_bytes, since=asked.since, until=asked.until,
            kinds=asked.kinds, seq=self._base(),
        )  # fmt: skip

    def _of_reports(self, sources: list[Source]) -> Iterator[EventLog]:
        from parser.events import parse_lines

        windows = []
        for source in sources:
            lines, heard = read_report(source, max_bytes=self.asked.max_bytes)
            self._heard += heard
            windows.append(Window(self.asked.since, self.asked.until))
            log, base = windows[-1].cut(parse_lines(lines, lane=self.asked.lane)), self._base()
            if base or self.asked.kinds:
                wanted = self.asked.kinds or KINDS
                log = EventLog([replace(e, seq=e.seq + base) for e in log.rows(*wanted)])
            yield log
        if not self.asked.kinds and not any(window.given for window in windows):
            windows[0].refuse_nothing()

    def _base(self) -> int:
        """The first `seq` of the next group of sources, behind any of the last."""
        self._groups += 1
        return (self._groups - 1) << 40


def is_long_log(asked: Asked) -> bool:
    """Log files of more than `LONG` bytes in all, asked for whole and with nothing beside them to join."""
    if asked.traces or asked.clients or asked.since or asked.until or not all(map(_on_disk, asked.inputs)):
        return False
    sources = find_sources(asked.inputs)
    return sum(source.size or 0 for source in sources) > LONG and not any(map(is_report, sources))


def _on_disk(path: str) -> bool:
    """A file or folder; what comes through a pipe can be looked at only once."""
    return Path(path).is_file() or Path(path).is_dir()
