"""Skim: the requests of a long log from columns, by their numbers alone.

`reading.read_segments` follows every line of every request; over millions of lines that takes its time. A
skim matches the three lines that each request has (`prompt start`, `prompt done`, `finish`) in columns, gives
the few other lines to the request whose numbers they bear (`parser.skim_links`), and chains requests by
P + gen = the next C or `live=` (`parser.skim_chain`). What it does not do: it weighs no slot assignments where
lengths do not settle them, looks at no decoding lines (how far an answer without `finish` came is not known),
keeps starts as stamped (to a second), reads no traces; two requests with equal spans at one time may be taken
for each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from parser.assemble import year_by_mtime
from parser.collector import collector_paused
from parser.conversations import Conversations
from parser.event import BULK_KINDS, Event
from parser.eventlog import EventLog
from parser.inputs import Inputs
from parser.reading import Asked, Reading, Stamps
from parser.request import Request
from parser.runs import Runs
from parser.server import Shapes, server_of
from parser.skim_chain import Chain
from parser.skim_links import Links
from parser.skim_match import Begun, matched, request_of
from parser.skim_time import Days

#: kinds that a skim takes as objects: all but those that every request has
RARE: Final = (
    "live_miss", "live_rewind", "live_continuation", "multimodal_hit", "kv_stored", "kv_hit", "kv_evicted",
    "kv_skipped", "kv_failed", "kv_discarded", "tool_repair", "checkpoint", "stream_error", "slot_evicting",
    "vision_cache", "startup", "shutdown",
)  # fmt: skip
#: a request without `finish` waits for it, and those behind it with it, until so many events have passed
_OPEN: Final = 30_000
#: blocks that are read before they are asked for (each takes some tens of MB)
_BLOCKS_AHEAD: Final = 2


@dataclass(frozen=True, slots=True)
class Skimmed:
    """A stretch of a log: its requests, and its rare events as objects."""

    reading: Reading
    rare: list[Event]
    last: bool


def skim_segments(asked: Asked, requests: int) -> Iterator[Skimmed]:
    """Plain logs in stretches of about so many requests. Names, stamps and server are those of the input so far."""
    inputs = Inputs(asked)
    skimmer = Skimmer(asked.year)
    for log, last in _stretches(_ahead(inputs.blocks()), requests):
        reading, rare = skimmer.read(log, inputs.names, final=last)
        stamps = reading.stamps
        if stamps.year is None and inputs.mtime is not None:
            year = year_by_mtime(stamps.first, stamps.last, inputs.mtime)
            stamps = replace(stamps, year=year, year_from="mtime" if year is not None else None)
        yield Skimmed(replace(reading, stamps=stamps), rare, last)


def _ahead(blocks: Iterator[EventLog]) -> Iterator[EventLog]:
    """The same blocks, read by a thread of its own while the ones before are at work."""
    with ThreadPoolExecutor(1) as pool:
        running = deque(pool.submit(next, blocks, None) for _ in range(_BLOCKS_AHEAD))
        while (block := running.popleft().result()) is not None:
            running.append(pool.submit(next, blocks, None))
            yield block


def _stretches(blocks: Iterable[EventLog], requests: int) -> Iterator[tuple[EventLog, bool]]:
    """Blocks joined until they hold so many starts; the last stretch is marked."""
    held: list[EventLog] = []
    for block in blocks:
        if sum(log.counts.get("prompt_start", 0) for log in held) >= requests:
            yield EventLog.joined(held), False
            held = []
        held.append(block)
    yield EventLog.joined(held), True


@dataclass
class Skimmer:
    """Takes stretches of a log in order; request numbers, slots, conversations and runs run on over them."""

    year: int | None = None
    runs: Runs = field(default_factory=Runs)
    shapes: Shapes = field(default_factory=Shapes)
    chain: Chain = field(default_factory=Chain)
    talks: Conversations = field(default_factory=Conversations)
    days: Days = field(default_factory=Days)
    number: int = 0
    _seen: int = 0  # events
    _waiting: list[Begun] = field(default_factory=list)  # requests that may finish in the next stretch
    _unlinked: list[Event] = field(default_factory=list)  # lines of requests that have not started
    _unnamed: list[Event] = field(default_factory=list)  # lines of requests whose conversation waits
    _run: int = 0
    _in_slot: dict[int, Request] = field(default_factory=dict)

    def read(self, log: EventLog, sources: Sequence[str], *, final: bool) -> tuple[Reading, list[Event]]:
        """One stretch as a reading, and its rare events. What is still open comes with the next."""
        with collector_paused():
            return self._read(log, sources, final=final)

    def _read(self, log: EventLog, sources: Sequence[str], *, final: bool) -> tuple[Reading, list[Event]]:
        fresh = list(log.rows(*RARE))
        for event in fresh:
            self.shapes.feed(event)
            self.runs.feed(event)
        self._seen += sum(log.counts.values())
        begun = self._settled(matched(log, self.days, self._waiting), final=final)
        links = Links(begun)
        rare = [*self._unlinked, *fresh]
        self._unlinked = links.give(rare, final=final)
        requests = list(self._rows(begun, links))
        if final:
            requests += self.talks.flush()
        rare = [*self._unnamed, *_without(rare, self._unlinked)]
        self._unnamed = [] if final else self._of_unnamed(rare)
        return self._reading(log, requests, sources), _without(rare, self._unnamed)

    def _settled(self, begun: list[Begun], *, final: bool) -> list[Begun]:
        """Up to the first that may finish in the next stretch, so that requests leave in order of their start."""
        first = len(begun)
        if not final:
            open_ = (n for n, b in enumerate(begun) if b.finish is None and b.seq > self._seen - _OPEN)
            first = next(open_, first)
        self._waiting = begun[first:]
        return begun[:first]

    def _rows(self, begun: Sequence[Begun], links: Links) -> Iterator[Request]:
        firsts = [run.first_seq for run in self.runs.all]
        for index, one in enumerate(begun):
            run = max(0, bisect_right(firsts, one.seq) - 1)
            if run != self._run:
                self._end_run(run)
            self.number += 1
            row = request_of(one, self.number, run)
            links.fill(row, index)
            before = self.chain.add(row, one.finish.seq if one.finish else None, self._slots(run))
            if row.slot is not None:
                self._in_slot[row.slot] = row
            yield from self.talks.add(row, before, None)

    def _end_run(self, following: int) -> None:
        """What its slots held may have gone to the disk."""
        if self._run < len(self.runs.all):
            self.talks.shut_down(self.runs.all[self._run].persisted, self._in_slot)
        self._in_slot, self._run = {}, following

    def _slots(self, run: int) -> int | None:
        return self.runs.all[run].slots if run < len(self.runs.all) else None

    def _of_unnamed(self, rare: Sequence[Event]) -> list[Event]:
        mine = {seq for row in self.talks.waiting() for seq in row.events}
        return [event for event in rare if event.seq in mine]

    def _reading(self, log: EventLog, requests: list[Request], sources: Sequence[str]) -> Reading:
        self.shapes.count_batches(log)
        self.days.see(log)
        server = server_of(self.shapes, self.runs.all, rule=None, overlap=0, hearsay=[], trace=[])
        first, last = self.days.first, self.days.last
        return Reading(
            tuple(sources), "log", log, requests, [run.frozen() for run in self.runs.all], server, [],
            dict(log.counts), Stamps(first, last, self.year, "declared" if self.year else None, self.days.seconds),
        )  # fmt: skip


def _without(events: Sequence[Event], others: Sequence[Event]) -> list[Event]:
    gone = {event.seq for event in others}
    return [event for event in events if event.seq not in gone] if gone else list(events)


assert not set(RARE) & set(BULK_KINDS)
