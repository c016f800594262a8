"""Blocks of events -> `Reading`: runs, joined requests, slots, conversations; whole, or in segments."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from parser.beside import Traces, Usage, pasted_records, read_usage, with_trace
from parser.bulk import Bulk, is_bulky
from parser.clock import Clock, Stamp, first_year, start_interval
from parser.collector import collector_paused
from parser.conversations import Conversations
from parser.event import Event
from parser.eventlog import EventLog
from parser.guess import SlotGuess
from parser.hearsay import Hearsay
from parser.inputs import Inputs
from parser.join import Joiner
from parser.opens import Open
from parser.reading import Asked, Reading, Server, Stamps, Through
from parser.request import Request
from parser.runs import Run, Runs
from parser.server import Shapes, server_of
from parser.trace import TraceRequest

_RUN_KINDS: Final = ("startup", "shutdown")
_COUNTS: Final = (
    "prompt_tokens", "canonical_prompt_tokens", "cached_tokens", "prefilled_tokens", "generated_tokens",
    "live_before", "common", "evicted_live_tokens", "disk_hit_tokens", "live_after",
)  # fmt: skip


class Assembler:
    """Takes blocks of events; lets rows go once their slot is decided, in order of `prompt start`."""

    def __init__(self, traces: Traces, usage: Usage, year: int | None = None) -> None:
        self.runs = Runs()
        self.traces, self.usage = traces, usage
        self.joiner = Joiner(Clock(year or traces.year))
        self.trace: dict[int, TraceRequest] = {}
        self._guess: SlotGuess | None = None
        self._unplaced: list[tuple[int, int, Open]] = []  # heap by first line
        self._placed: list[tuple[int, int, Open]] = []  # heap by prompt start
        self._number = 0
        self.talks = Conversations()
        self.shapes = Shapes()
        self.rule: str | None = None  # the scheduler that slot inference found
        self.overlap = 0
        self.heard: list[Hearsay] = []
        self._last_in_slot: dict[int, Request] = {}
        self._record_of: dict[int, int] = {}  # id of a trace record -> request number

    def feed(self, block: EventLog) -> list[Request]:
        """One block; returns the rows that it lets go."""
        with collector_paused():
            bulk = self._columns(block)
            self.joiner.begin_block(bulk)
            self.shapes.count_batches(block)
            rows: list[Request] = []
            for event in bulk.events() if bulk is not None else block.rows(*block.counts):
                if event.kind in _RUN_KINDS or not self.runs.all:
                    rows += self._of_run(event)
                else:
                    self.runs.touch(event)
                self.shapes.feed(event)
                self.joiner.feed(event)
            self.joiner.end_block()
            return rows + self._release(final=False)

    def _columns(self, block: EventLog) -> Bulk | None:
        joiner = self.joiner
        if not is_bulky(block, joiner.clock.last):
            return None
        return Bulk(block, joiner.opens.all.values(), serial=joiner.serial)

    def hear(self, heard: list[Hearsay]) -> list[Hearsay]:
        """What a report says in other words, before its lines: options, pieces of trace records."""
        self.heard += heard
        self.traces.add(pasted_records(heard))
        return heard

    def finish(self) -> list[Request]:
        """The input ends."""
        return self._end_run() + self.talks.flush()

    def _of_run(self, event: Event) -> list[Request]:
        """A start or stop line: perhaps another process, perhaps another number of slots."""
        left = self._end_run() if self.runs.feed(event) else []
        slots = self.runs.now.slots
        self.joiner.serial, self.joiner.near = slots == 1, slots is None
        self.joiner.run = self.runs.now.number
        return left

    def _end_run(self) -> list[Request]:
        self.joiner.end_run()
        rows = self._release(final=True)
        if self.runs.all:
            self.talks.shut_down(self.runs.all[self.joiner.run].persisted, self._last_in_slot)
        self._last_in_slot = {}
        self._guess = None
        return rows

    def _release(self, *, final: bool) -> list[Request]:
        if not self.runs.all:
            return []
        ended = self.runs.all[self.joiner.run]
        self.joiner.bury(ended.last_seq, self.joiner.clock.now)
        for opened in self.joiner.closed:
            opened.trace = self.traces.take(opened)
            if opened.trace is not None:
                with_trace(opened, opened.trace)
            heapq.heappush(self._unplaced, (opened.first, id(opened), opened))
        self.joiner.closed.clear()
        frontier = float("inf") if final else self.joiner.frontier()
        guess = self._guess = self._guess or SlotGuess(ended, silent=self._silent(ended))
        while self._unplaced and self._unplaced[0][0] < frontier:
            guess.add(heapq.heappop(self._unplaced)[2])
        self.rule, self.overlap = guess.rule or self.rule, max(self.overlap, guess.overlap)
        for opened in guess.settled(final=final):
            heapq.heappush(self._placed, (opened.place, id(opened), opened))
        waiting = [o.first for o in guess.waiting.values()] + [first for first, _, _ in self._unplaced[:1]]
        return self._emit(min([frontier, *waiting]))

    def _emit(self, below: float) -> list[Request]:
        named: list[Request] = []
        while self._placed and self._placed[0][0] < below:
            self._number += 1
            named += self._numbered(heapq.heappop(self._placed)[2])
        return named

    def _numbered(self, opened: Open) -> list[Request]:
        before = opened.previous.row if opened.previous is not None else None
        row = finished(opened, self._number)
        opened.previous = None
        if row.slot is not None:
            self._last_in_slot[row.slot] = row
        return self.talks.add(row, before if before and before.request else None, self._by_text(opened))

    def _by_text(self, opened: Open) -> int | None:
        """The request whose whole prompt is the beginning of this one, by the trace."""
        record = opened.trace
        if record is None:
            return None
        self.trace[self._number] = record
        self._record_of[id(record)] = self._number
        if record.parent is None or not record.extends:
            return None
        return self._record_of.get(id(self.traces.records[record.parent]))

    def server(self) -> Server:
        """What is known of the server by now."""
        return server_of(
            self.shapes, self.runs.all, rule=self.rule, overlap=self.overlap,
            hearsay=self.heard, trace=self.traces.records[:1],
        )  # fmt: skip

    def _silent(self, run: Run) -> bool:
        """Builds before 2026-05-14 print no miss line."""
        newer = {"hit_half_life_s", "batched_session"} & run.config.keys()
        return not newer and not run.misses


def whole(asked: Asked) -> Reading:
    """`reading.read`."""
    inputs, assembler = Inputs(asked), assembler_of(asked)
    blocks: list[EventLog] = []
    requests: list[Request] = []
    heard: list[Hearsay] = []
    for block in inputs.blocks():
        heard += assembler.hear(inputs.heard())
        requests += assembler.feed(block)
        blocks.append(block)
    requests += assembler.finish()
    return reading_of(inputs, assembler, EventLog.joined(blocks), requests, heard)


def segments(asked: Asked, through: Through | None = None) -> Iterator[Reading]:
    """`reading.read_segments`."""
    inputs, assembler = Inputs(asked), assembler_of(asked)
    blocks = inputs.blocks()
    for block in through(blocks, inputs.sources) if through is not None else blocks:
        heard = assembler.hear(inputs.heard())
        yield reading_of(inputs, assembler, block, assembler.feed(block), heard)
    yield reading_of(inputs, assembler, EventLog([]), assembler.finish(), [])


def assembler_of(asked: Asked) -> Assembler:
    """An assembler with the traces and client records that were named. Raises InputError for what cannot be read."""
    from parser.trace import read_traces

    traces = Traces(read_traces(asked.traces, max_bytes=asked.max_bytes))
    usage = Usage(read_usage(asked.clients, max_bytes=asked.max_bytes))
    return Assembler(traces, usage, asked.year)


def reading_of(
    inputs: Inputs,
    assembler: Assembler,
    log: EventLog,
    requests: list[Request],
    heard: Sequence[Hearsay] = (),
) -> Reading:
    """The reading of these events and rows, with all that the assembler knows by now."""
    trace, assembler.trace = assembler.trace, {}
    return Reading(
        sources=inputs.names, kind=inputs.kind, events=log, requests=requests,
        runs=[run.frozen() for run in assembler.runs.all], hearsay=list(heard), counts=dict(log.counts),
        server=assembler.server(),
        trace=trace, clients=assembler.usage.match(requests), stamps=stamps_of(inputs, assembler),
    )  # fmt: skip


def stamps_of(inputs: Inputs, assembler: Assembler) -> Stamps:
    """First and last stamp so far, and the year: declared, a trace header's, or of the file's last change."""
    clock = assembler.joiner.clock
    year, told = inputs.asked.year, "declared"
    if year is None and assembler.traces.year is not None:
        date = assembler.traces.records[0].when
        year, told = first_year(clock.first, int(date[:4]), int(date[5:7]), int(date[8:10])), "trace"
    if year is None and inputs.mtime is not None:
        year, told = year_by_mtime(clock.first, clock.last, inputs.mtime), "mtime"
    return Stamps(clock.first, clock.last, year, told if year is not None else None, clock.now)


def year_by_mtime(first: str | None, last: str | None, mtime: float) -> int | None:
    """The year of a file that was last written to on the day of its last stamp (a copied file tells nothing)."""
    stamp, changed = Stamp.parse(last), datetime.fromtimestamp(mtime)
    if stamp is None or not stamp.month:
        return None
    same = any(
        (day.month, day.day) == (stamp.month, stamp.day)
        for day in (changed + timedelta(days=off) for off in (-1, 0, 1))
    )
    return first_year(first, changed.year, changed.month, changed.day) if same else None


def finished(opened: Open, number: int) -> Request:
    """The row of a closed request."""
    row = opened.row
    for name in _COUNTS:
        count = getattr(row, name)
        if count is not None and count < 0:
            setattr(row, name, None)  # a damaged line: no count is known
    row.request = number
    row.events = tuple(sorted(opened.events))
    row.lines = tuple(sorted(set(opened.lines)))
    row.line = row.lines[0] if row.lines else row.line
    row.stores = tuple(opened.stores)
    row.progress = opened.progress
    if opened.previous is not None:
        row.previous_in_slot = opened.previous.row.request or None
    chunks = [line for line in (opened.latest, opened.earliest) if line is not None]
    bounds = start_interval(opened.started_at, [*opened.seen, *chunks])
    if bounds is not None:
        row.start_s, row.start_error_s = (bounds[0] + bounds[1]) / 2, (bounds[1] - bounds[0]) / 2
    row.end_s = opened.last_at
    return row
