"""A progress bar on standard error while a long input is read, where a person looks at it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from parser.eventlog import EventLog
    from parser.sources import Source

LONG: Final = 32 << 20


def with_progress(logs: Iterable[EventLog], sources: Sequence[Source]) -> Iterator[EventLog]:
    """The same logs; the bar counts bytes of `sources` (of packed ones it only shows that it moves)."""
    total = sum(source.size or 0 for source in sources)
    if not sys.stderr.isatty() or total < LONG:
        yield from logs
        return
    yield from _shown(logs, sources, total)


def _shown(logs: Iterable[EventLog], sources: Sequence[Source], total: int) -> Iterator[EventLog]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    known = all(source.packing == "plain" for source in sources)
    before = dict(zip((source.index for source in sources), _sums(sources), strict=True))
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total if known else None)
        for log in logs:
            if log.end is not None:
                source, place = log.end
                bar.update(task, completed=before.get(source, 0) + place)
            yield log


def _sums(sources: Sequence[Source]) -> Iterator[int]:
    done = 0
    for source in sources:
        yield done
        done += source.size or 0
