"""The disk tier of one server: when a checkpoint is written, skipped, found, deleted (sections 4 and 5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from replay.config import ServerConfig
from replay.decisions import Decision, EvictedFile, Skipped, Stored
from replay.disk import Disk, DiskFile
from replay.foresight import Foresight
from replay.seams import Costs, Store
from replay.session import Job, Session
from replay.tree import Forest, Node, rope_of
from replay.workload import Workload


class Made(NamedTuple):
    """What came of a store. `done`: it succeeded, be it silently (R4.20); `seconds` it held the lock."""

    done: bool
    written: bool = False
    seconds: float = 0.0


class Room:
    """The directory while room is made (the `Shelf` of `replay.seams`)."""

    def __init__(
        self, tier: Tier, now: int, key: Node | None, spared: DiskFile | None, job: Job | None
    ) -> None:
        self.tier, self.now, self.spared, self._job = tier, now, spared, job
        use = key is not None and tier.config.generation.superseded
        self._superseded = tier.disk.superseded_by(key, tier.config.ctx) if use and key is not None else []

    @property
    def files(self) -> Iterable[DiskFile]:
        """All files but a just-stored one that is spared, in the order in which they were made."""
        return [file for file in self.tier.disk.files.values() if file is not self.spared]

    @property
    def wanted(self) -> DiskFile | None:
        """The file that the request at hand would load."""
        return None if self._job is None else self.tier.lookup(self._job.prompt.text)

    def score(self, file: DiskFile) -> float:
        """R4.32."""
        return file.score(self.now, file in self._superseded)

    def lowest(self) -> DiskFile | None:
        """R4.31."""
        alive = [file for file in self._superseded if not file.gone]
        return self.tier.disk.lowest(self.now, alive, self.spared)

    def next_use(self, file: DiskFile) -> int:
        """See `replay.seams.Shelf`."""
        return self.tier.foresight.next_use(file.key)


class Tier:
    """R1.5: one store a server. `evictions` counts deleted files, also those that no request caused."""

    def __init__(
        self,
        config: ServerConfig,
        policy: Store,
        costs: Costs,
        foresight: Foresight,
        log: list[Decision] | None,
    ) -> None:
        self.config, self.policy, self.costs, self.foresight, self.log = config, policy, costs, foresight, log
        self.disk = Disk()
        self.evictions = 0
        self.origin_s = 0.0

    def assume(self, workload: Workload, forest: Forest) -> None:
        """Files that lay there before the first request, the oldest first."""
        self.origin_s = workload.origin_s
        for file in sorted(workload.files, key=lambda file: -file.age_s):
            key = None if file.key is None else forest.node(file.key)
            node = key if file.state is None else forest.node(file.state)
            text, made = key and key.text, -round(file.age_s)
            self.disk.add(text, node, file.tokens, file.size_bytes, file.reason, 0, made, file.id, file.hits)

    def second(self, at_s: float) -> int:
        """Scores and file times count whole wall-clock seconds (R9.6)."""
        return int(self.origin_s + at_s)

    def open(self, at_s: float) -> None:
        """R4.30: at the opening the directory is brought within its budget."""
        if self.config.kv_disk:
            self._make_room(
                self.config.budget_bytes, Room(self, self.second(at_s), None, None, None), None, at_s
            )

    def lookup(self, text: Node) -> DiskFile | None:
        """R4.10."""
        if not self.config.kv_disk:
            return None
        return self.disk.lookup(text, self.config.kv_cache_min_tokens, self.config.ctx)

    def serves(self, images: bool) -> bool:
        """R3.13: requests and sessions with images stay away from the disk, unless the policy says otherwise."""
        return self.config.kv_disk and (not images or self.policy.images)

    def store(
        self, at_s: float, session: Session, node: Node, reason: str, job: Job | None, *, sound: bool = True
    ) -> Made:
        """R4.20, in its order. `node` is the state to be stored; not `sound`: it has no valid checkpoint (DS5)."""
        config = self.config
        if not self.serves(bool(session.images)) or node.size < config.kv_cache_min_tokens:
            return Made(False)
        key, kind = session.key() if node is session.node else (node.text, "token-text")
        known = self.disk.identical(key)
        if known is not None and known.ctx <= config.ctx:
            return self._silently(at_s, session, node, reason, job, known, kind)
        if known is not None:
            self.disk.remove(known)  # incompatible, same name: replaced
        size = config.file_bytes(node.size) + key.bytes + node.map_bytes
        if not sound:
            return self._skip(at_s, session, node, reason, job, size, "checkpoint")
        if -(-size * 101 // 100) > config.budget_bytes:
            return self._skip(at_s, session, node, reason, job, size, "budget")
        return self._write(at_s, session, node, reason, job, key, kind, size)

    def _silently(
        self,
        at_s: float,
        session: Session,
        node: Node,
        reason: str,
        job: Job | None,
        known: DiskFile,
        kind: str,
    ) -> Made:
        """The identical file exists; only a tool map has it rewritten, and then used now (R4.20)."""
        if node.map_bytes:
            self.disk.touch(known, self.second(at_s), 0)
        seconds = self.costs.store_s(node.size, 0, False)  # found before anything is staged
        self._note_stored(at_s, session, node, reason, job, known, kind, seconds, silent=True)
        return Made(True, False, seconds)

    def _skip(
        self, at_s: float, session: Session, node: Node, reason: str, job: Job | None, size: int, why: str
    ) -> Made:
        if self.log is not None:
            request = None if job is None else job.asked.request
            self.log.append(Skipped(at_s, request, session.number, node.size, reason, size, why))
        return Made(False, False, self.costs.store_s(node.size, 0 if why == "checkpoint" else size, False))

    def _write(
        self,
        at_s: float,
        session: Session,
        node: Node,
        reason: str,
        job: Job | None,
        key: Node,
        kind: str,
        size: int,
    ) -> Made:
        now, before = self.second(at_s), self.config.generation.evicts_before
        budget = self.config.budget_bytes
        if before and self.disk.used + size > budget:
            room = Room(self, now, key, None, job)
            if not self._make_room(budget - size, room, job, at_s):
                return Made(False)
        file = self.disk.add(key, node, node.size, size, reason, self.config.ctx, now)
        if not before and self.disk.used > budget:
            self._make_room(budget, Room(self, now, key, file, job), job, at_s)
        seconds = self.costs.store_s(node.size, size, True)
        self._note_stored(at_s, session, node, reason, job, file, kind, seconds, silent=False)
        return Made(True, True, seconds)

    def _make_room(self, target: int, room: Room, job: Job | None, at_s: float) -> bool:
        """R4.31: delete the lowest score until the sum of sizes is within `target`; nothing is protected (R4.34)
        but what the store policy protects."""
        while self.disk.used > target:
            victim = self.policy.victim(room)  # type: ignore[arg-type]
            if victim is None:
                return False
            file = self.disk.files[victim.order]
            self.disk.remove(file)
            self.evictions += 1
            if job is not None:
                job.evicted_files += 1
            if self.log is not None:
                request = None if job is None else job.asked.request
                self.log.append(EvictedFile(at_s, request, file.name, file.tokens, file.hits, file.size))
        return True

    def _note_stored(
        self, at_s: float, session: Session, node: Node, reason: str, job: Job | None, file: DiskFile,
        kind: str, seconds: float, *, silent: bool,
    ) -> None:  # fmt: skip
        if self.log is None:
            return
        request = None if job is None else job.asked.request
        trimmed = job.effective.size - node.size if job and job.effective and reason == "cold" else 0
        row = Stored(
            at_s, request, session.number, node.size, trimmed, reason, kind, file.name, file.size, seconds,
            silent, rope_of(node),
        )  # fmt: skip
        self.log.append(row)

    def use(self, file: DiskFile, at_s: float) -> bool:
        """R4.12: a hit is counted in the file; until 08-04 a file longer than cold-max was deleted by it."""
        self.disk.touch(file, self.second(at_s), 1)
        cold_max = self.config.kv_cache_cold_max_tokens
        if self.config.generation.consumes and file.tokens > cold_max > 0:
            self.disk.remove(file)
            return True
        return False

    def discard(self, file: DiskFile) -> bool:
        """R4.14: the prefill after a hit failed; False if the file is gone already."""
        if file.gone:
            return False
        self.disk.remove(file)
        return True
