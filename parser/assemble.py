"""Blocks of events -> `Reading`: runs, joined requests, slots, conversations; whole, or in segments."""

from __future__ import annotations

from collections.abc import Iterator

from parser.clock import start_interval
from parser.event import Event
from parser.eventlog import EventLog
from parser.join import Joiner
from parser.opens import Open
from parser.reading import Asked, Reading
from parser.request import Request
from parser.runs import Runs


def whole(asked: Asked) -> Reading:
    """`reading.read`."""
    joiner, runs = Joiner(), Runs()
    events: list[Event] = []
    for block in _blocks(asked):
        for event in block.rows(*block.counts):
            if runs.feed(event):
                joiner.end_run()
            joiner.serial = runs.now.slots == 1
            joiner.run = runs.now.number
            joiner.feed(event)
            events.append(event)
    joiner.end_run()
    opened = sorted(joiner.closed, key=lambda o: o.place)
    requests = [finished(o, number) for number, o in enumerate(opened, 1)]
    log = EventLog(events)
    return Reading(
        sources=asked.inputs, events=log, requests=requests,
        runs=[run.frozen() for run in runs.all], counts=dict(log.counts),
    )  # fmt: skip


def _blocks(asked: Asked) -> Iterator[EventLog]:
    from parser.events import read_events

    return read_events(
        asked.inputs, lane=asked.lane, max_bytes=asked.max_bytes, since=asked.since, until=asked.until
    )


def segments(asked: Asked) -> Iterator[Reading]:
    """`reading.read_segments`."""
    yield whole(asked)


def finished(opened: Open, number: int) -> Request:
    """The row of a closed request."""
    row = opened.row
    row.request = number
    row.events = tuple(sorted(opened.events))
    row.lines = tuple(sorted(set(opened.lines)))
    row.line = row.lines[0] if row.lines else row.line
    row.stores = tuple(opened.stores)
    row.progress = opened.progress
    bounds = start_interval(opened.started_at, opened.seen)
    if bounds is not None:
        row.start_s, row.start_error_s = (bounds[0] + bounds[1]) / 2, (bounds[1] - bounds[0]) / 2
    row.end_s = opened.last_at
    row.live_after = live_after(opened)
    return row


def live_after(opened: Open) -> int | None:
    """R3.36: P + generated (+ appended), or the length that a checkpoint line names."""
    if opened.reset:
        return 0
    if opened.live_set is not None:
        return opened.live_set
    if opened.finish_seq is None or opened.row.prompt_tokens is None or opened.row.generated_tokens is None:
        return None
    return opened.row.prompt_tokens + opened.row.generated_tokens + opened.extra
