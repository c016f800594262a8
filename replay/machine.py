"""The machine: one model, one inference lock, a virtual clock (section 6).

A request is a generator (`replay.service`) that yields what it needs next: `LOCK`, seconds to spend while it
holds the model, `PREFILL` or `DECODE` of the span in its `Task`. The machine decides whose turn it is and how
long it takes. As long as nothing else can happen, many pieces and steps are one computation.

Only in the fitted times, not in the order of things: speculative decoding (R6.8, R7.2), pieces that end a little
earlier before an image (R6.9), and what a stream sends meanwhile (R6.10).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Generator

from replay.config import ServerConfig
from replay.decisions import Decision, Decoded, Prefilled
from replay.seams import Costs

LOCK, PREFILL, DECODE = "lock", "prefill", "decode"
Op = str | float


class Task:
    """A running request: positions `pos..end` are what it prefills or decodes now.

    `start_s`: the dispatch; `since_s`: when it asked for the lock. `step`: prefill hands control back at
    multiples of it that a sync meets (R5.3), 0 for none. `began` is where control was given away last. `met`
    caches the next such position for pieces of `quantum`, which end at `origin` + k pieces.
    """

    __slots__ = (
        "began", "doing", "end", "gen", "met", "origin", "pos", "quantum", "request", "since_s", "slot", "start_s", "step",
    )  # fmt: skip

    def __init__(self, slot: int, request: int, start_s: float) -> None:
        self.slot, self.request = slot, request
        self.start_s = self.since_s = start_s
        self.gen: Generator[Op, None, None]
        self.doing = ""
        self.pos = self.end = self.step = self.began = 0
        self.met = self.origin = self.quantum = -1

    @property
    def on_grid(self) -> bool:
        """The position ends a piece (not only a chunk inside one)."""
        return self.quantum > 0 and (self.pos - self.origin) % self.quantum == 0


class Machine:
    """Shares the model between the slots. `now` is the virtual clock in seconds."""

    def __init__(self, config: ServerConfig, costs: Costs, log: list[Decision] | None) -> None:
        self.config, self.costs, self.log = config, costs, log
        self.now = 0.0
        self.locks: list[Task] = []  # who waits for the lock, by how long
        self.running: list[Task] = []  # who prefills or decodes, by slot
        self.reset(config)

    def reset(self, config: ServerConfig) -> None:
        """A new process."""
        self.config = config
        self.locks.clear()
        self.running.clear()
        self._last = -1
        self._decode_due = False
        #: R6.2: chunks end at absolute multiples; GLM's count from the start of a sync (seen in captures)
        self._chunk = 0 if config.family == "glm" else config.chunk
        #: R6.4: the piece of a sync in batched mode; in single mode a chunk is a piece
        single = config.chunk if config.family == "glm" else 0
        self._alone = config.prefill_quantum if config.batched else single
        self._mixed = config.mixed_prefill_quantum if config.batched else single

    def resume(self, task: Task) -> None:
        """Let a request run until it needs the model; what it spends holds everybody up (R4.21)."""
        if task in self.running:
            self.running.remove(task)
        while True:
            op = next(task.gen, "")
            if isinstance(op, float):
                self.now += op
                continue
            task.doing, task.met = op, -1
            if op == LOCK:
                insort(self.locks, task, key=_since)
            elif op:
                self._decode_due = self._decode_due or op == DECODE
                insort(self.running, task, key=_slot)
            return

    def advance(self, horizon: float) -> None:
        """Evaluate until someone's span ends or `horizon` is reached (the piece or step at it is finished)."""
        running = self.running
        if len(running) == 1:
            alone = running[0]
            if alone.doing == PREFILL:
                self._prefill(alone, horizon)
            else:
                self._decode(running, alone.end - alone.pos, horizon)
            return
        prefilling = [task for task in running if task.doing == PREFILL]
        decoding = [task for task in running if task.doing == DECODE]
        if not prefilling:
            self._decode(decoding, min(task.end - task.pos for task in decoding), horizon)
        elif self._decode_due and decoding:
            self._decode(decoding, 1, horizon)
        else:
            self._rounds(self._in_turn(prefilling), decoding, horizon)

    def _in_turn(self, tasks: list[Task]) -> list[Task]:
        """R6.5: round robin, from the slot after the last one."""
        first = next((place for place, task in enumerate(tasks) if task.slot > self._last), 0)
        return tasks[first:] + tasks[:first]

    def _met(self, task: Task, quantum: int) -> int:
        """Where control goes back: the end, or the next multiple of the step at which a progress event falls:
        a chunk end or a piece end (R5.3)."""
        if task.met >= 0 and task.quantum == quantum:
            return task.met
        if task.origin < 0 or task.quantum != quantum:
            task.origin, task.quantum = task.pos, quantum
        step, met, chunk = task.step, task.end, self._chunk
        for multiple in range((task.pos // step + 1) * step, task.end, step) if step else ():
            if (chunk and multiple % chunk == 0) or (quantum and (multiple - task.origin) % quantum == 0):
                met = multiple
                break
        task.met = met
        return met

    def _piece_end(self, task: Task, met: int) -> int:
        """The end of the piece that begins at the task's position."""
        size, origin = (task.quantum, task.origin) if task.quantum else (self._chunk, 0)
        return min(origin + ((task.pos - origin) // size + 1) * size, met)

    def _piece(self, task: Task, decoding: bool) -> None:
        """One piece, then everybody who decodes (R6.5-R6.7)."""
        met = self._met(task, self._mixed if decoding else self._alone)
        end = self._piece_end(task, met)
        self._evaluated(task, end, self.now + self.costs.prefill_s(task.pos, end))
        self._decode_due = decoding
        if task.pos == met:
            self.resume(task)

    def _prefill(self, task: Task, horizon: float) -> None:
        """Nobody else needs the model: pieces up to the next position that matters are one sum."""
        pos, seconds = task.pos, self.costs.prefill_s
        end = met = self._met(task, self._alone)
        due = horizon - self.now
        spent = seconds(pos, met)
        if spent > due:
            ends = range(self._piece_end(task, met), met, task.quantum or self._chunk)
            end = _at(ends, bisect_left(ends, due, key=lambda end: seconds(pos, end)), met)
            spent = seconds(pos, end)
        self._evaluated(task, end, self.now + spent)
        if end == met:
            self.resume(task)

    def _rounds(self, prefilling: list[Task], decoding: list[Task], horizon: float) -> None:
        """R6.5-R6.7: those who prefill take turns, and each piece is followed by a step of all who decode. Whole
        rounds before the next event or span end are one sum; else one piece."""
        quantum, costs = (self._mixed if decoding else self._alone), self.costs
        turns, batch = len(prefilling), len(decoding)
        count = min((self._met(task, quantum) - task.pos - 1) // quantum for task in prefilling)
        depth = max((task.pos for task in decoding), default=0)
        if decoding:
            count = min(count, min(task.end - task.pos for task in decoding) // turns)
        starts = [task.pos for task in prefilling]

        def seconds(rounds: int) -> float:
            pieces = sum([costs.prefill_s(pos, pos + rounds * quantum) for pos in starts])
            return pieces + costs.decode_s(batch, depth, rounds * turns) if batch else pieces

        if count > 1 and self.now + seconds(count) > horizon:
            count = bisect_right(range(1, count), horizon - self.now, key=seconds)
        if count < 2 or not all(task.on_grid for task in prefilling):
            self._piece(prefilling[0], bool(decoding))
            return
        since, until = self.now, self.now + seconds(count)
        for task in prefilling:
            self._evaluated(task, task.pos + count * quantum, until, since)
        if decoding:
            self._decoded(decoding, count * turns, until, since)

    def _decode(self, decoding: list[Task], steps: int, horizon: float) -> None:
        """R6.6: all who decode get one token a step."""
        batch, seconds = len(decoding), self.costs.decode_s
        depth = decoding[0].pos if batch == 1 else max(task.pos for task in decoding)
        due = horizon - self.now
        spent = seconds(batch, depth, steps)
        if spent > due and steps > 1:
            tried = range(1, steps)
            steps = _at(tried, bisect_left(tried, due, key=lambda n: seconds(batch, depth, n)), steps)
            spent = seconds(batch, depth, steps)
        self._decoded(decoding, steps, self.now + spent, self.now)

    def _evaluated(self, task: Task, end: int, until: float, since: float | None = None) -> None:
        if self.log is not None:
            began = self.now if since is None else since
            row = Prefilled(began, until, task.request, task.slot, task.pos, end, task.quantum)
            self.log.append(row)
        self.now, task.pos, self._last = until, end, task.slot

    def _decoded(self, decoding: list[Task], steps: int, until: float, since: float) -> None:
        """Those who are through go on, in slot order."""
        if self.log is not None:
            for task in decoding:
                end = task.pos + steps
                row = Decoded(since, until, task.request, task.slot, task.pos, end, len(decoding))
                self.log.append(row)
        self.now, self._decode_due = until, False
        through = []
        for task in decoding:
            task.pos += steps
            if task.pos >= task.end:
                through.append(task)
        for task in through:
            self.resume(task)


def _since(task: Task) -> float:
    return task.since_s


def _slot(task: Task) -> int:
    return task.slot


def _at(values: range, index: int, otherwise: int) -> int:
    return values[index] if index < len(values) else otherwise
