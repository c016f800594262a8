"""The machine: one model, one inference lock, a virtual clock (section 6).

A request is a generator (`replay.service`) that yields what it needs next: `LOCK`, seconds to spend while it
holds the model, `PREFILL` or `DECODE` of the span in its `Task`. The machine decides whose turn it is and how
long it takes. As long as nothing else can happen, many pieces and steps are one computation.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Generator

from replay.config import ServerConfig
from replay.decisions import Decision, Decoded, Prefilled
from replay.seams import Costs

LOCK, PREFILL, DECODE = "lock", "prefill", "decode"
Op = str | float


class Task:
    """A running request: positions `pos..end` are what it prefills or decodes now.

    `start_s`: the dispatch. `step`: prefill hands control back at multiples of it that a sync meets (R5.3),
    0 for none. `met` caches the next such position for pieces of `quantum`, which end at `origin` + k pieces.
    """

    __slots__ = (
        "doing",
        "end",
        "gen",
        "met",
        "origin",
        "pos",
        "quantum",
        "request",
        "slot",
        "start_s",
        "step",
    )

    def __init__(self, slot: int, request: int, start_s: float) -> None:
        self.slot, self.request, self.start_s = slot, request, start_s
        self.gen: Generator[Op, None, None]
        self.doing = ""
        self.pos = self.end = self.step = 0
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
        self.locks: deque[Task] = deque()
        self.running: list[Task] = []  # who prefills or decodes, by slot
        self.reset(config)

    def reset(self, config: ServerConfig) -> None:
        """A new process."""
        self.config = config
        self.locks.clear()
        self.running.clear()
        self._last = -1
        self._decode_due = False

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
                self.locks.append(task)
            elif op:
                self._decode_due = self._decode_due or op == DECODE
                insort(self.running, task, key=_slot)
            return

    def advance(self, horizon: float) -> None:
        """Evaluate until someone's span ends or `horizon` is reached (the piece or step at it is finished)."""
        running = self.running
        if len(running) == 1 and running[0].doing == PREFILL:
            self._prefill(running[0], horizon)
            return
        prefilling = [task for task in running if task.doing == PREFILL]
        decoding = [task for task in running if task.doing == DECODE]
        if not prefilling:
            steps = min(task.end - task.pos for task in decoding)
            self._decode(decoding, self._steps_before(decoding, steps, horizon))
        elif self._decode_due and decoding:
            self._decode(decoding, 1)
        elif len(prefilling) > 1 or not decoding:
            self._piece(self._turn(prefilling), bool(decoding))
        else:
            self._cycles(prefilling[0], decoding, horizon)

    def _turn(self, tasks: list[Task]) -> Task:
        """R6.5: round robin, from the slot after the last one."""
        return next((task for task in tasks if task.slot > self._last), tasks[0])

    def _quantum(self, decoding: bool) -> int:
        """R6.4: the piece a sync is cut into in batched mode; 0 in single mode, where a chunk is a piece that
        ends at an absolute multiple (R6.2), but for GLM: its chunks count from the start (seen in captures)."""
        if not self.config.batched:
            return self.config.chunk if self.config.family == "glm" else 0
        return self.config.mixed_prefill_quantum if decoding else self.config.prefill_quantum

    def _met(self, task: Task, quantum: int) -> int:
        """Where control goes back: the end, or the next multiple of the step at which a progress event falls:
        a chunk end (absolute multiples of the chunk, R6.2) or a piece end (R5.3)."""
        if task.met >= 0 and task.quantum == quantum:
            return task.met
        if task.origin < 0 or task.quantum != quantum:
            task.origin, task.quantum = task.pos, quantum
        step, met = task.step, task.end
        chunk = self.config.chunk if self.config.family != "glm" else task.end + 1
        for multiple in range((task.pos // step + 1) * step, task.end, step) if step else ():
            if multiple % chunk == 0 or (quantum and (multiple - task.origin) % quantum == 0):
                met = multiple
                break
        task.met = met
        return met

    def _piece_end(self, task: Task, met: int) -> int:
        """The end of the piece that begins at the task's position."""
        size, origin = (task.quantum, task.origin) if task.quantum else (self.config.chunk, 0)
        return min(origin + ((task.pos - origin) // size + 1) * size, met)

    def _piece(self, task: Task, decoding: bool) -> None:
        """One piece, then everybody who decodes (R6.5-R6.7)."""
        quantum = self._quantum(decoding)
        met = self._met(task, quantum)
        self._evaluated(task, self._piece_end(task, met), quantum)
        self._decode_due = decoding
        if task.pos == met:
            self.resume(task)

    def _prefill(self, task: Task, horizon: float) -> None:
        """Nobody else needs the model: pieces up to the next position that matters are one sum."""
        quantum = self._quantum(False)
        met = self._met(task, quantum)
        end = met
        if self.now + self.costs.prefill_s(task.pos, met) > horizon:
            size = quantum or self.config.chunk
            first = self._piece_end(task, met)
            ends = range(first, met, size)
            due = horizon - self.now
            end = _at(ends, bisect_left(ends, due, key=lambda p: self.costs.prefill_s(task.pos, p)), met)
        self._evaluated(task, end, quantum)
        if end == met:
            self.resume(task)

    def _cycles(self, task: Task, decoding: list[Task], horizon: float) -> None:
        """R6.7: one request prefills beside decoders: each piece is followed by a step of all of them."""
        quantum = self._quantum(True) or self.config.chunk
        met = self._met(task, quantum)
        count = min((met - task.pos - 1) // quantum, min(other.end - other.pos for other in decoding))
        if count < 2 or not task.on_grid:
            self._piece(task, True)
            return
        pos, depth, batch = task.pos, max(other.pos for other in decoding), len(decoding)

        def seconds(cycles: int) -> float:
            return self.costs.prefill_s(pos, pos + cycles * quantum) + self.costs.decode_s(
                batch, depth, cycles
            )

        if self.now + seconds(count) > horizon:
            tried = range(1, count)
            count = _at(tried, bisect_left(tried, horizon - self.now, key=seconds), count)
        before = self.now
        self._evaluated(task, pos + count * quantum, quantum)
        self.now = before
        self._decode(decoding, count, until=before + seconds(count))

    def _evaluated(self, task: Task, end: int, quantum: int) -> None:
        until = self.now + self.costs.prefill_s(task.pos, end)
        if self.log is not None:
            row = Prefilled(self.now, until, task.request, task.slot, task.pos, end, quantum)
            self.log.append(row)
        self.now, task.pos, self._last = until, end, task.slot

    def _steps_before(self, decoding: list[Task], steps: int, horizon: float) -> int:
        depth, batch = max(task.pos for task in decoding), len(decoding)
        if self.now + self.costs.decode_s(batch, depth, steps) <= horizon:
            return steps
        tried, due = range(1, steps), horizon - self.now
        return _at(tried, bisect_left(tried, due, key=lambda n: self.costs.decode_s(batch, depth, n)), steps)

    def _decode(self, decoding: list[Task], steps: int, until: float | None = None) -> None:
        """R6.6: all who decode get one token a step. Those who are through go on, in slot order."""
        if until is None:
            depth = max(task.pos for task in decoding)
            until = self.now + self.costs.decode_s(len(decoding), depth, steps)
        if self.log is not None:
            for task in decoding:
                end = task.pos + steps
                row = Decoded(self.now, until, task.request, task.slot, task.pos, end, len(decoding))
                self.log.append(row)
        self.now, self._decode_due = until, False
        for task in decoding:
            task.pos += steps
        for task in decoding:
            if task.pos >= task.end:
                self.resume(task)


def _slot(task: Task) -> int:
    return task.slot


def _at(values: range, index: int, otherwise: int) -> int:
    return values[index] if index < len(values) else otherwise
