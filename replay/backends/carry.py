"""Carries a decision log out with tensors, and believes none of it: each claim is held against what the
caches hold.

The replay's own model (`replay.server`) works with ropes and counts. Here every slot has tensors and a token
list of its own, every checkpoint is a file, and a decision that does not fit them is named, then made up for
by computing what was claimed, so that the rest can be judged too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

from replay.backends.plan import Plan
from replay.backends.prove import Prover
from replay.backends.resident import Engine
from replay.backends.result import Moved, Spent, Unsound
from replay.backends.shelf import Shelf
from replay.backends.tokens import TokenMap
from replay.config import ServerConfig
from replay.decisions import (
    Begun,
    Canonicalised,
    Decision,
    Decoded,
    Discarded,
    Ended,
    EvictedFile,
    Finished,
    Missed,
    Prefilled,
    PromptDone,
    Reloaded,
    Restored,
    Rewound,
    Started,
    Stored,
)
from replay.models.cache import RewindRefused
from replay.models.model import Tokens
from replay.models.snapshot import SnapshotError
from replay.rope import Rope, join
from replay.workload import Workload


@dataclass(slots=True)
class Slot:
    """A resident session, and the request it last worked for: `target` is what that evaluates, `owner` its
    number, `replying` whether its prompt is done. `broken`: it failed or was cut off (R1.4), the server takes
    it for invalid."""

    resident: Any
    owner: int | None = None
    prompt: Rope = ()
    target: Tokens = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    claimed: int = 0
    evaluated: bool = False
    replying: bool = False
    rebuilding: bool = False
    broken: bool = False


class Carrier:
    """One replay. `points`: the reuse policy under test has sessions remember where prompts and replies
    ended."""

    def __init__(
        self, workload: Workload, configs: Sequence[ServerConfig], engine: Engine, tokens: TokenMap,
        shelf: Shelf, plan: Plan, prover: Prover, progress: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.workload, self.configs, self.engine, self.tokens = workload, configs, engine, tokens
        self.shelf, self.plan, self.prover, self.progress = shelf, plan, prover, progress
        self.size = tokens.scale.size
        self.config = configs[0]
        self.slots: list[Slot] = []
        self.moved: dict[int, Moved] = {}
        self.unsound: list[Unsound] = []
        self.spent = Spent()
        self.disk_peak = 0
        self._do = self._handlers()
        for file in workload.files:
            shelf.keep(file.id, file.size_bytes, None)

    def _handlers(self) -> dict[type, Callable[[Any], None]]:
        return {
            Started: self._started,
            Missed: self._missed,
            Rewound: self._rewound,
            Stored: self._stored,
            EvictedFile: self._evicted,
            Discarded: self._discarded,
            Restored: self._restored,
            Begun: self._begun,
            Prefilled: self._prefilled,
            PromptDone: self._prompt_done,
            Reloaded: self._reloaded,
            Canonicalised: self._canonicalised,
            Finished: self._finished,
            Ended: self._ended,
        }

    def run(self, log: Sequence[Decision]) -> None:
        """All decisions, in their order; the steps of one decode batch stand together."""
        at = 0
        while at < len(log):
            row = log[at]
            if isinstance(row, Decoded):
                batch = self._batch(log, at)
                self._decoded(batch)
                at += len(batch)
                continue
            act = self._do.get(type(row))
            if act is not None:
                act(row)
                self._within_budget(row)
            at += 1

    def _batch(self, log: Sequence[Decision], at: int) -> list[Decoded]:
        first = log[at]
        assert isinstance(first, Decoded)
        rows = [row for row in log[at : at + first.batch] if isinstance(row, Decoded)]
        return [row for row in rows if row.at_s == first.at_s]

    def _name(self, request: int | None, decision: object, why: str) -> None:
        self.unsound.append(Unsound(request, type(decision).__name__, why))

    def _of(self, request: int) -> Moved:
        return self.moved.setdefault(request, Moved())

    # -- processes and files -------------------------------------------------------------------------------

    def _started(self, row: Started) -> None:
        self.config = self.configs[min(row.run, len(self.configs) - 1)]
        self.slots = [Slot(self.engine.new()) for _ in range(row.slots)]

    def _ended(self, _: Ended) -> None:
        self.slots = []

    def _within_budget(self, row: Decision) -> None:
        """R4.30. A build that evicts after a store is over it for a moment."""
        if isinstance(row, Begun | Finished) and self.shelf.size > self.config.budget_bytes:
            over = self.shelf.size - self.config.budget_bytes
            self._name(row.request, row, f"the files on disk are {over} bytes over the budget")

    def _evicted(self, row: EvictedFile) -> None:
        if not self.shelf.drop(row.file):
            self._name(row.request, row, f"there is no file {row.file} to delete")
        if row.request is not None:
            self._of(row.request).evicted_files += 1

    def _discarded(self, row: Discarded) -> None:
        if not self.shelf.drop(row.file):
            self._name(row.request, row, f"there is no file {row.file} to delete")
        for slot in self.slots:
            if slot.owner == row.request:
                slot.resident.reset()

    def _stored(self, row: Stored) -> None:
        """DS1: the session as it stands, written to a file."""
        slot = self.slots[row.slot]
        if row.silent:
            if row.file not in self.shelf.files:
                self._name(row.request, row, f"file {row.file} is said to be there, and is not")
            return
        state = self.tokens.of(row.state, slot.owner)
        self._catch_up(slot, state)
        if not _equal(slot.resident, state):
            self._name(row.request, row, f"a state of {row.tokens} tokens is not what slot {row.slot} holds")
            return
        path, began = self.shelf.new_path(), perf_counter()
        self.spent.save_bytes += self.engine.save(slot.resident, path)
        self.spent.save_s += perf_counter() - began
        self.shelf.keep(row.file, row.size, path)
        self.disk_peak = max(self.disk_peak, self.shelf.bytes_on_disk)
        self.prover.stored(row.file, slot.resident)
        if row.request is not None:
            self._of(row.request).stores.append((self.size(row.tokens), row.reason))

    def _catch_up(self, slot: Slot, state: Tokens) -> None:
        """A request that was cut off in a decode step leaves that step's token in the server's list
        (R1.4)."""
        have = slot.resident.length
        if slot.broken and 0 < have < len(state) <= have + 1 and slot.resident.common(state) == have:
            slot.resident.extend(state[have:])

    def _restored(self, row: Restored) -> None:
        """DS9: the file's tensors replace the slot's."""
        slot = self.slots[row.slot]
        self._replace(slot, row)
        self._remember(slot)
        self._of(row.request).loaded += slot.resident.length

    def _reloaded(self, row: Reloaded) -> None:
        """R3.35: the same, after a reply that is to become canonical."""
        self._replace(self.slots[row.slot], row)

    def _replace(self, slot: Slot, row: Restored | Reloaded) -> None:
        kept, state = self.shelf.files.get(row.file), self.tokens.of(row.state, row.request)
        slot.resident.reset()
        if kept is None:
            self._name(row.request, row, f"there is no file {row.file} to load")
        elif kept.path is None:
            kept.path = self._assume(state)
        if kept is not None and kept.path is not None:
            self._load(slot, kept.path, row)
        if not _equal(slot.resident, state):
            if kept is not None:
                self._name(row.request, row, f"file {row.file} does not hold the {row.tokens} tokens claimed")
            self._compute(slot, state)
        if row.consumed:
            self.shelf.drop(row.file)

    def _assume(self, state: Tokens) -> Any:
        """A file that the workload assumes to lie there: made by a prefill, outside the figures."""
        session, path = self.engine.new(), self.shelf.new_path()
        session.extend(state)
        self.engine.save(session, path)
        return path

    def _load(self, slot: Slot, path: Any, row: Restored | Reloaded) -> None:
        began = perf_counter()
        try:
            slot.resident = self.engine.load(path)
        except SnapshotError as error:
            self._name(row.request, row, error.message)
            return
        self.spent.load_s += perf_counter() - began
        self.spent.load_bytes += path.stat().st_size

    def _compute(self, slot: Slot, tokens: Tokens) -> None:
        """Make up for a claim that does not hold."""
        slot.resident.reset()
        if len(tokens):
            slot.resident.extend(tokens)

    # -- the cache decision --------------------------------------------------------------------------------

    def _missed(self, row: Missed) -> None:
        """LC3: the common prefix is found again, token by token."""
        slot, size = self.slots[row.slot], self.size
        prompt = self.tokens.of(self.workload.by_number[row.request].prompt, row.request)
        common = slot.resident.common(prompt)
        pictured = bool(self.workload.by_number[row.request].images)  # one image may stand in two texts
        agreed = common == size(row.common) or (pictured and common > size(row.common))
        if row.fit and not slot.broken and not agreed:
            agree = common * self.tokens.scale.factor
            self._name(row.request, row, f"common={row.common}, the caches agree for {agree}")
        self.prover.missed(row, slot.resident, prompt, common)

    def _rewound(self, row: Rewound) -> None:
        """LC1: only if the shape of the cache allows it."""
        slot, reason = self.slots[row.slot], self.prover.out_of_reach(row.live, row.kept)
        try:
            slot.resident.rewind(self.size(row.kept))
        except RewindRefused as refusal:
            reason = refusal.message
        if reason:
            policy = "" if self.config.reuse == "ladder" else f" (reuse policy {self.config.reuse})"
            self._name(row.request, row, f"from {row.live} to {row.kept} tokens{policy}: {reason}")
            slot.resident.reset()

    def _begun(self, row: Begun) -> None:
        slot = self.slots[row.slot]
        if row.cached and row.source != "disk-text" and slot.owner is not None:
            self.tokens.inherit(row.request, slot.owner, row.source.endswith("tool-output"))
        slot.owner, slot.target = row.request, self.tokens.of(row.prompt, row.request)
        slot.prompt, slot.claimed = row.prompt, self.size(row.cached)
        slot.evaluated = slot.replying = slot.rebuilding = False
        slot.broken = self.workload.by_number[row.request].fault is not None

    def _settle(self, slot: Slot, start: int, row: Any) -> None:
        """Evaluation begins at `start`: the tokens before it must be in the cache, and be the target's."""
        resident = slot.resident
        if start == 0:
            resident.reset()
            if not slot.replying:
                self._of(row.request).restarted = slot.claimed > 0
        elif resident.length != start or resident.common(slot.target) < start:
            agree = min(resident.common(slot.target), start)
            held = f"the cache holds {resident.length}, {agree} of them the prompt's"
            why = f"{start} reused tokens are claimed, {held}"
            self._name(row.request, row, why)
            self._compute(slot, slot.target[:start])
            return
        if not slot.replying:
            self._of(row.request).reused = start

    # -- evaluation ----------------------------------------------------------------------------------------

    def _prefilled(self, row: Prefilled) -> None:
        """Positions `start..end`, in the server's own pieces (R6.1, R6.2, R6.4)."""
        slot, size = self.slots[row.slot], self.size
        start, end = size(row.start), size(row.end)
        if slot.replying and not slot.rebuilding:
            self._to_canonical(slot, row.request)
            slot.rebuilding = True
        if not slot.evaluated or slot.resident.length != start:
            self._settle(slot, start, row)
        slot.evaluated = True
        began = perf_counter()
        for piece_start, piece_end in pieces(start, end, size(row.quantum), size(self.config.chunk)):
            slot.resident.extend(slot.target[piece_start:piece_end])
            self.progress(piece_end - piece_start)
        self.spent.prefill_s += perf_counter() - began
        self.spent.prefill_tokens += end - start
        if not slot.replying:
            self._of(row.request).prefilled += end - start

    def _prompt_done(self, row: PromptDone) -> None:
        """PF3. A prompt that is wholly cached was not looked at yet."""
        slot = self.slots[row.slot]
        if not slot.evaluated:
            self._settle(slot, len(slot.target), row)
        self.prover.prompt_done(row.request, slot.resident, slot.target)
        self._remember(slot)
        whole = join(slot.prompt, self.workload.by_number[row.request].reply)
        slot.target, slot.replying = self.tokens.of(whole, row.request), True

    def _decoded(self, batch: list[Decoded]) -> None:
        """R6.6: a token for each sequence of the batch a step."""
        ends = [self.size(row.end) for row in batch]
        for row in batch:
            slot = self.slots[row.slot]
            if slot.resident.length != self.size(row.start):
                self._settle(slot, self.size(row.start), row)
        slots = [self.slots[row.slot] for row in batch]
        began = perf_counter()
        while True:
            due = [slot for slot, end in zip(slots, ends, strict=True) if slot.resident.length < end]
            if not due:
                break
            self.engine.decode([s.resident for s in due], [s.target[s.resident.length] for s in due])
            self.spent.decode_steps += 1
            self.progress(len(due))
        self.spent.decode_s += perf_counter() - began
        for row in batch:
            self._of(row.request).decoded += self.size(row.end) - self.size(row.start)

    # -- after the last token ------------------------------------------------------------------------------

    def _to_canonical(self, slot: Slot, request: int) -> None:
        """R3.35: what is evaluated next makes the live state the canonical one."""
        row = self.plan.canonical.get(request)
        if row is not None:
            slot.target, slot.evaluated = self.tokens.of(row.state, request), False

    def _canonicalised(self, row: Canonicalised) -> None:
        slot = self.slots[row.slot]
        if not _equal(slot.resident, self.tokens.of(row.state, row.request)):
            self._to_canonical(slot, row.request)
            self._settle(slot, self.size(row.target), row)

    def _finished(self, row: Finished) -> None:
        """FN: what stays in the slot."""
        slot = self.slots[row.slot]
        self.prover.finished(row.request, slot.resident)
        if row.live == 0:  # a client's stop sequence (R3.36)
            slot.resident.reset()
            return
        slot.broken = row.finish == "error"
        state = self.tokens.of(row.state, row.request)
        self._catch_up(slot, state)
        if not _equal(slot.resident, state):
            why = f"{row.live} live tokens are not what slot {row.slot} holds"
            self._name(row.request, row, why)
            self._compute(slot, state)
        self._remember(slot)

    def _remember(self, slot: Slot) -> None:
        """The state that was restored, or at the end of a prompt or reply, where the reuse policy keeps such."""
        if self.config.reuse.startswith("rewind-points"):
            slot.resident.save_point()


def pieces(start: int, end: int, quantum: int, chunk: int) -> list[tuple[int, int]]:
    """R6.4: pieces of `quantum` from `start`; without (0), chunks ending on multiples of `chunk` (R6.2)."""
    if start == end:  # tokens that a scaled replay rounds away
        return []
    size, first = (quantum, start) if quantum else (chunk, start - start % chunk)
    return list(pairwise([start, *range(first + size, end, size), end]))


def _equal(resident: Any, state: Tokens) -> bool:
    return bool(resident.length == len(state) == resident.common(state))
