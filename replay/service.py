"""One request in its slot, from the cache decision to the last token: the server's job, read top down.

Each method that needs the model is a generator for `replay.machine`. Order of steps: section 3.1; stores:
section 5; sync: R6.2. Nothing is stored when a turn ends or a slot falls idle (R5.6).
"""

from __future__ import annotations

from collections.abc import Generator

from replay.config import ServerConfig
from replay.decisions import (
    Begun,
    Canonicalised,
    Decision,
    Discarded,
    Finished,
    Missed,
    PromptDone,
    Refused,
    Reloaded,
    Restored,
    Rewound,
)
from replay.disk import DiskFile
from replay.ladder import Hit, Look
from replay.machine import DECODE, LOCK, PREFILL, Machine, Op, Task
from replay.outcome import StoreMade
from replay.seams import Reuse
from replay.session import WINDOW, Job, Session, bind
from replay.tier import Tier
from replay.tree import Forest, Node, common, rope_of

Steps = Generator[Op, None, None]


class Service:
    """What one server process does with the requests that are given to its slots."""

    def __init__(
        self, config: ServerConfig, forest: Forest, machine: Machine, tier: Tier, reuse: Reuse,
        log: list[Decision] | None,
    ) -> None:  # fmt: skip
        self.config, self.forest, self.machine, self.tier = config, forest, machine, tier
        self.reuse, self.log = reuse, log
        self.step = config.step if config.kv_disk else 0

    def find(self, look: Look) -> Hit | None:
        """The ladder, then what the reuse policy adds to it."""
        return look.hit() or look.rewind(self.reuse)

    def serve(self, look: Look, task: Task) -> Steps:
        """The whole of section 3.1, then prefill, decode and what is bound."""
        session, job = look.session, look.job
        job.live_before, job.common = look.live, look.common
        hit = self.find(look)
        if hit is None and job.required:
            self._refuse(job, task)
            return
        if hit is None:
            yield from self._miss(session, job, task, look)
        else:
            self._reuse(session, job, task, hit)
        job.start_s = started = self.machine.now if job.locked else task.start_s
        session.place(job)
        self._begin(job, task, started)
        sound = yield from self._sync(session, job, task)
        job.prefill_s = max(self.machine.now, started) - started
        if not sound or job.gone:
            self._leave(session, job)
            return
        yield from self._decode(session, job, task)

    def _refuse(self, job: Job, task: Task) -> None:
        """Step 4: the live tool state that the request needs is not there: HTTP 409, the slot untouched."""
        job.finish = None
        job.failed = True
        if self.log is not None:
            self.log.append(Refused(task.start_s, job.asked.request, task.slot, "tool-state"))

    # -- the cache decision --------------------------------------------------------------------------------

    def _reuse(self, session: Session, job: Job, task: Task, hit: Hit) -> None:
        """R3.1-R3.2; a rewind cuts the live state (R3.11)."""
        job.source, job.cached, job.effective = hit.source, hit.cached, hit.prompt
        if hit.rewound:
            if self.log is not None:
                row = Rewound(task.start_s, job.asked.request, task.slot, session.node.size, hit.cached)
                self.log.append(row)
            session.rows_from = max(session.rows_from, session.node.size - self.config.ring)
            session.node = self.forest.cut(hit.prompt, hit.cached)
            session.points = [point for point in session.points if point <= hit.cached]
        session.rows_from = 0 if hit.restart else session.rows_from
        task.pos = 0 if hit.restart else hit.cached

    def _miss(self, session: Session, job: Job, task: Task, look: Look) -> Steps:
        """Steps 9-12: the live state is lost, stored before the lookup (R3.4) unless the policy turns that."""
        job.source, job.cached, job.effective = "cold", 0, job.prompt
        if session.node.size:
            job.evicted_live = session.node.size
            if self.log is not None:
                fit = look.fits(session.node.size)
                row = Missed(
                    task.start_s, job.asked.request, task.slot, look.live, look.prompt, look.common, fit
                )
                self.log.append(row)
        session.continued_last = 0
        task.pos = 0
        if self.tier.serves(bool(job.asked.images)):
            yield from self._exchange(session, job, task)
        if not job.loaded:
            session.invalidate(self.forest.empty)

    def _exchange(self, session: Session, job: Job, task: Task) -> Steps:
        """Step 10 (R5.4) and step 11 (R4.10-R4.13), all of it behind the lock (R4.21)."""
        job.locked = True
        yield from self._lock(task, task.start_s)
        at_s, first = self.machine.now, self.tier.policy.load_first
        found = self._hit(job, at_s) if first else None
        if session.node.size >= self.config.kv_cache_min_tokens:
            yield from self._store(session, job, session.node, "evict", sound=session.valid)
        if not first:
            found = self._hit(job, self.machine.now)
        if found is not None:
            yield from self._load(session, job, task, *found)

    def _lock(self, task: Task, since_s: float) -> Steps:
        """Wait for the model as long as others that asked for it earlier (R4.21); a store inside a sync holds it
        already, one between syncs and steps does not (seen in captures)."""
        task.since_s = since_s
        yield LOCK
        self.machine.now = max(self.machine.now, since_s)

    def _hit(self, job: Job, at_s: float) -> tuple[DiskFile, bool] | None:
        """The file that is read, and whether the hit deletes it (R4.12)."""
        found = self.tier.lookup(job.prompt.text)
        return None if found is None else (found, self.tier.use(found, at_s))

    def _load(self, session: Session, job: Job, task: Task, file: DiskFile, consumed: bool) -> Steps:
        """R4.11: the stored tokens, then the rest of the prompt's text; image state is dropped (R3.15)."""
        assert file.key is not None
        assert file.node is not None
        at_s, costs = self.machine.now, self.tier.costs
        seconds = costs.load_s(file.tokens, file.size)
        if self.log is not None:
            row = Restored(
                at_s, job.asked.request, task.slot, file.name, file.tokens, file.key.bytes, file.size, seconds,
                consumed, rope_of(file.node),
            )  # fmt: skip
            self.log.append(row)
        session.invalidate(self.forest.empty)
        session.node, session.valid = file.node, True
        session.points, session.rows_from = [file.tokens], max(0, file.tokens - WINDOW)
        job.source, job.cached, job.loaded, job.file = "disk-text", file.tokens, file.tokens, file
        job.effective = self._behind(file, job.prompt)
        task.pos = file.tokens
        yield seconds

    def _behind(self, file: DiskFile, prompt: Node) -> Node:
        """R4.11: the stored tokens, then the rest of the prompt's text, tokenised."""
        assert file.key is not None and file.node is not None
        if file.key is file.node.text and common(prompt, file.node) == file.node.size:
            return prompt
        return self.forest.extend(file.node, self.forest.after_text(prompt, file.key))

    def _begin(self, job: Job, task: Task, at_s: float) -> None:
        """PF1. R3.5: its time begins after the evict store and the lookup."""
        if self.log is not None and job.effective is not None and job.source is not None:
            row = Begun(at_s, job.asked.request, task.slot, job.source, job.cached, rope_of(job.effective))
            self.log.append(row)

    # -- prefill -------------------------------------------------------------------------------------------

    def _sync(self, session: Session, job: Job, task: Task) -> Generator[Op, None, bool]:
        """R6.2: evaluate what is not reused; a cold prompt in two syncs, the first ends at the cold length
        (R5.1). False if it did not come through."""
        assert job.effective is not None
        total = job.effective.size
        cold = self._cold_length(job, total)
        if cold and cold < total:
            if not (yield from self._evaluate(session, job, task, cold)):
                return False
            yield from self._store_cold(session, job, task, cold)
            yield from self._continue(session, job, task, cold, within=True)
        if not (yield from self._evaluate(session, job, task, total)):
            return False
        session.node = job.effective
        yield from self._continue(session, job, task, total)
        session.clear_bindings()
        session.images = job.asked.images
        if self.log is not None:
            self.log.append(PromptDone(self.machine.now, job.asked.request, session.number))
        if cold == total:
            yield from self._store_cold(session, job, task, cold)
        return True

    def _evaluate(self, session: Session, job: Job, task: Task, target: int) -> Generator[Op, None, bool]:
        """One sync, or in batched mode one a piece (R6.4), with R5.2 (a) at each progress event."""
        assert job.effective is not None
        start, fault = task.pos, job.asked.fault
        stop = target
        if fault is not None and fault.phase == "prefill":
            stop = min(target, max(start, job.cached + fault.after))
        few = start > 0 and target - start < self.config.generation.resume_min
        quiet = few or not self.step or self._silent(start, target)
        task.end, task.step, task.origin = stop, 0 if quiet else self.step, -1
        while task.pos < stop and not job.cut:
            task.began = task.pos
            yield PREFILL
            job.prefilled += task.pos - task.began
            session.node, session.valid = self.forest.cut(job.effective, task.pos), True
            if not quiet and not job.cut:
                yield from self._progress(session, job, task, start, target)
        if job.cut:
            return False
        if stop < target or (fault is not None and fault.phase == "prefill" and target == job.effective.size):
            session.valid, job.failed = False, True
            return False
        return True

    def _silent(self, start: int, end: int) -> bool:
        """R6.2: a sync from nothing that fits one chunk gives no progress events (GLM's do, seen in captures)."""
        fits = start == 0 and end <= self.config.chunk
        return fits and not self.config.batched and self.config.family != "glm"

    def _progress(self, session: Session, job: Job, task: Task, start: int, target: int) -> Steps:
        """R5.2 (a): at a chunk or piece end. The first piece of an empty batched slot is silent (R6.2); the sync
        of the next piece begins with an event at the same position (R6.3), so a failed attempt is repeated; the
        end of the first of two syncs belongs to the cold store (R5.2)."""
        pos, config = task.pos, self.config
        if pos % self.step or (pos == target and target != job.effective_size):
            return
        first = config.batched and not start and pos <= min(config.prefill_quantum, config.chunk)
        if not first:
            yield from self._continue(session, job, task, pos, within=True)
        again = config.batched and pos < target and task.on_grid and config.family != "glm"
        if again:
            yield from self._continue(session, job, task, pos, within=True)

    # -- stores --------------------------------------------------------------------------------------------

    def _store(
        self, session: Session, job: Job, node: Node, reason: str, *, sound: bool = True
    ) -> Generator[Op, None, bool]:
        made = self.tier.store(self.machine.now, session, node, reason, job, sound=sound)
        if made.written:
            job.stores.append(StoreMade(node.size, reason))
        if made.seconds:
            yield float(made.seconds)
        return made.done

    def _cold_length(self, job: Job, total: int) -> int:
        """R5.1: where a cold prompt is stored; 0 for not at all."""
        config, anchor = self.config, job.asked.anchor
        least = config.kv_cache_min_tokens
        if job.cached or not least <= total <= config.kv_cache_cold_max_tokens:
            return 0
        if not self.tier.serves(bool(job.asked.images)):
            return 0
        if anchor is not None and least <= anchor <= total:
            return anchor
        trim, align = config.kv_cache_boundary_trim_tokens, config.kv_cache_boundary_align_tokens
        aligned = (total - trim) // align * align if total > least + trim else 0
        return aligned if aligned >= least else total

    def _store_cold(self, session: Session, job: Job, task: Task, tokens: int) -> Steps:
        """R5.1; it also stands for a continued store at the same length (R5.2)."""
        assert job.effective is not None
        node = self.forest.cut(job.effective, tokens)
        yield from self._lock(task, self.machine.now)
        if (yield from self._store(session, job, node, "cold")):
            session.continued_last = tokens

    def _continue(self, session: Session, job: Job, task: Task, pos: int, *, within: bool = False) -> Steps:
        """R5.2: a continued store, if the length is a multiple of the step that was not stored yet. `within` a
        sync GLM and V4.1 have no valid checkpoint (R5.3)."""
        config = self.config
        step = self.step
        if not step or pos % step or pos < config.kv_cache_min_tokens or pos <= session.continued_last:
            return
        if within and pos <= job.cached:
            return
        if not self.tier.serves(bool(job.asked.images)):
            return
        sound = not (within and config.family == "glm")
        if not within:
            yield from self._lock(task, self.machine.now)
        if (yield from self._store(session, job, session.node, "continued", sound=sound)):
            session.continued_last = pos

    # -- decode and end ------------------------------------------------------------------------------------

    def _decode(self, session: Session, job: Job, task: Task) -> Steps:
        """R6.6, R6.12: the reply, token by token, with R5.2 (c)."""
        assert job.effective is not None
        asked, prompt = job.asked, job.effective
        whole = self.forest.extend(prompt, asked.reply)
        end = min(whole.size, max(prompt.size, self.config.ctx))
        fault = asked.fault
        if fault is not None and fault.phase == "decode":
            end = min(end, prompt.size + fault.after)
        task.pos = prompt.size
        while task.pos < end and not job.cut:
            task.end = self._decode_stop(task.pos, prompt.size, end, asked.tool_block)
            yield DECODE
            if task.pos < end and not job.cut:
                session.node = self.forest.cut(whole, task.pos)
                yield from self._continue(session, job, task, task.pos)
        extra = 1 if job.failed and task.pos < whole.size else 0
        session.node = self.forest.cut(whole, task.pos + extra)
        job.generated = min(asked.generated, task.pos - prompt.size)
        if fault is not None and fault.phase == "decode":
            session.valid, job.failed = False, True
        yield from self._finish(session, job, task, prompt, end < whole.size)

    def _decode_stop(self, pos: int, prompt: int, end: int, block: tuple[int, ...]) -> int:
        """R5.2 (c), R5.3: the next multiple of the step that does not fall into a tool call, or the end."""
        step = self.step
        if not step:
            return end
        multiple = (pos // step + 1) * step
        while multiple < end and block and block[0] <= multiple - prompt < block[1]:
            multiple += step
        return min(multiple, end)

    def _finish(self, session: Session, job: Job, task: Task, prompt: Node, short: bool) -> Steps:
        """R3.30-R3.36."""
        asked = job.asked
        job.finish = "error" if job.cut or job.failed else "length" if short else asked.finish
        if job.finish != "error":
            session.points.append(prompt.size)
        key = None
        if asked.shown is not None:
            base = self.forest.cut(job.prompt, max(0, job.prompt.size - asked.drop))
            key = self.forest.extend(base, asked.shown)
        if asked.calls and job.finish == "tool_calls":
            yield from self._canonicalise(session, job, task, key)
        if job.finish != "error":
            session.points.append(session.node.size)
        if asked.stop_sequence and job.finish == "stop":
            session.invalidate(self.forest.empty)
        qwen = self.config.generation.qwen_tools_key and self.config.family == "qwen-next"
        bind(session, job, key, qwen)
        if self.log is not None:
            bound = [name for name in ("responses", "anthropic", "thinking") if getattr(session, name)]
            shown = session.thinking.key if session.thinking is not None else None
            row = Finished(
                self.machine.now, asked.request, task.slot, job.finish, job.generated, session.node.size,
                rope_of(session.node), tuple(bound), shown.bytes if shown is not None else 0,
            )  # fmt: skip
            self.log.append(row)

    def _reload(self, job: Job, task: Task, file: DiskFile) -> None:
        """R3.35, R4.12: a hit like any other, which may delete the file."""
        at_s, request = self.machine.now, job.asked.request
        consumed = self.tier.use(file, at_s)
        if self.log is not None and file.node is not None:
            state = rope_of(file.node)
            self.log.append(Reloaded(at_s, request, task.slot, file.name, file.tokens, consumed, state))

    def _canonicalise(self, session: Session, job: Job, task: Task, key: Node | None) -> Steps:
        """R3.35: a turn with calls whose raw text is not known is brought into its canonical form."""
        asked = job.asked
        raw = asked.raw_tools and self.config.exact_tool_replay
        if raw or asked.api not in ("chat", "anthropic") or key is None or key.size > self.config.ctx:
            return
        if session.images or session.node is key or session.node.text is key.text:
            return
        shared = common(session.node, key)
        if shared < job.prompt.size:
            return
        source, cached = "live", shared
        if shared < session.node.size:
            file = self.tier.lookup(key.text)
            source, cached = ("disk", file.tokens) if file is not None else ("full", 0)
            if file is not None:
                self._reload(job, task, file)
                yield float(self.tier.costs.load_s(file.tokens, file.size))
                key = self._behind(file, key)
        if source != "live":  # the session was reset: what it remembered is of the state before
            session.rows_from, session.points = max(0, cached - WINDOW), []
        task.pos, task.end, task.step, task.origin = cached, key.size, 0, -1
        if cached < key.size:
            yield PREFILL
        node = session.node = self.forest.cut(key, task.pos)  # less than the key if it was cut off
        if self.log is not None:
            row = Canonicalised(
                self.machine.now, asked.request, task.slot, source, cached, node.size, rope_of(node)
            )
            self.log.append(row)

    def _leave(self, session: Session, job: Job) -> None:
        """R3.16, R4.14: the prefill failed, or its client went. A loaded file is deleted and the session reset
        if the sync did not come through; else the frontier stays, and nothing is bound to it."""
        job.finish = None
        session.clear_bindings()
        lost = job.failed or job.cut
        if lost and job.file is not None:
            session.invalidate(self.forest.empty)
            if self.tier.discard(job.file) and self.log is not None:
                self.log.append(Discarded(self.machine.now, job.asked.request, job.file.name))
