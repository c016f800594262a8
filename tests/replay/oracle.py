"""A naive server: whole token lists, text as strings, one piece and one step at a time.

Written from the numbered rules alone, as plainly as possible and without anything of `replay.tree`, `disk`,
`machine` or `service`; the tests hold the real model to it. A token is (id, text); a state is a list of them.
"""

from __future__ import annotations

import heapq
import itertools
from types import SimpleNamespace as Bag

from replay.workload import Image


class Oracle:
    def __init__(self, workload, config, costs):
        self.w, self.c, self.costs = workload, config, costs
        self.g = config.generation
        letters = itertools.count(0x100)
        texts, self.tokens = {}, {}
        ids = itertools.count(1)
        for segment in workload.segments.values():
            size = workload.text_bytes(segment)
            name = segment.text or segment.id
            text = texts.setdefault(name, "".join(chr(next(letters)) for _ in range(size)))
            n = segment.tokens
            self.tokens[segment.id] = [
                (next(ids), text[i * size // n : (i + 1) * size // n]) for i in range(n)
            ]
        self.files, self.made, self.evictions, self.names = [], 0, 0, {}
        self.now, self.heap, self.seq, self.queue = 0.0, [], 0, []
        self.slots = [self.empty_slot(i) for i in range(config.slot_count)]
        self.running, self.locks, self.last, self.decode_due = {}, [], -1, False
        self.jobs, self.up, self.held, self.stopped = {}, 0.0, [], []
        self.trail = []  # (what, ...) in the order in which it was done

    def empty_slot(self, number):
        return Bag(n=number, live=[], valid=False, resp=None, anth=None, think=None, cont=0, images=(), spans=(),
                   points=[], rows=0, used=0.0, job=None)  # fmt: skip

    def expand(self, rope):
        out = []
        for name, start, end in rope:
            out += self.tokens[name][start:end]
        return out

    # -- clients -------------------------------------------------------------------------------------------

    def at(self, t, what, *args):
        self.seq += 1
        heapq.heappush(self.heap, (t, self.seq, what, args))

    def run(self):
        stops = list(self.w.stops)
        for asked in self.w.requests:
            self.jobs[asked.request] = Bag(
                a=asked, prompt=self.expand(asked.prompt), slot=None, source=None, eff=None, cached=0, pre=0, gen=0,
                live=0, common=0, evicted=0, loaded=0, file=None, stores=[], evf=0, t0=None, end=None, done=False,
                gone=False, cut=False, failed=False, finish=None, synced=False, sent=None, need=None, scores=(),
            )  # fmt: skip
            if asked.after is None:
                self.at(asked.arrival_s or 0.0, self.send, asked)
        while True:
            if self.heap and self.heap[0][0] <= self.now:
                t, _, what, args = heapq.heappop(self.heap)
                what(t, *args)
            elif self.locks:
                self.resume(self.locks.pop(0))
            elif self.running:
                self.one_op()
            elif self.heap:
                self.now = self.heap[0][0]
            elif self.held:
                self.stop(self.now, self.held[0][0])
            elif any(stop.before is None for stop in stops):
                self.stop(self.now, stops.pop())
            else:
                return self

    def send(self, t, asked):
        for stop in self.w.stops:
            if stop.after and stop not in self.stopped and asked.request >= stop.before:
                self.held.append((stop, asked))
                return
        for stop in self.w.stops:
            if stop.before == asked.request and not stop.after:
                self.stop(t, stop)
        for stop in self.w.stops:
            if stop.after == asked.request:
                self.at(t + stop.delay_s, self.stop, stop)
        job = self.jobs[asked.request]
        job.sent = t
        if asked.gives_up_s is not None:
            self.at(t + asked.gives_up_s, self.leave, job)
        self.at(max(t, self.up) + self.costs.admit_s(len(job.prompt)), self.enqueue, job)

    def enqueue(self, t, job):
        a = job.a
        if len(job.prompt) >= self.c.ctx:
            job.failed = True
            return self.answer(t, job)
        if job.done and self.g.polls:
            return None
        ids = set(a.results)
        live = [self.ids_of(s) for s in self.slots]
        job.need = ids if a.needs_live and ids and any(ids & have for have in live) else None
        self.queue.append(job)
        return self.dispatch(t)

    def ids_of(self, slot):
        return set().union(*(b.ids for b in (slot.resp, slot.anth) if b))

    def answer(self, t, job):
        if job.done:
            return
        job.done, job.end = True, t
        for asked in self.w.requests:
            if asked.after == job.a.request:
                self.at(t + asked.think_s, self.send, asked)

    def leave(self, t, job):
        if job.done:
            return
        job.gone = self.g.polls or job.a.stream
        self.answer(t, job)
        if self.g.polls:
            self.at(t + 0.1, self.notice, job)
        elif job.gone and job.finish is None and job.synced:
            self.cut(job)

    def notice(self, t, job):
        if job in self.queue:
            self.queue.remove(job)
        else:
            self.cut(job)

    def cut(self, job):
        job.cut = True
        if job.slot is not None and job.slot in self.running and self.running[job.slot].job is job:
            self.resume(self.running[job.slot])

    def stop(self, t, stop):
        if stop.after and stop in self.stopped:
            return
        self.stopped.append(stop)
        self.now = max(self.now, t)
        busy = [s.job for s in self.slots if s.job]
        for job in busy:
            job.failed = True
            task = self.running.get(job.slot)
            if stop.clean:
                self.cut(job)
            elif task is not None and task.doing == "prefill" and not job.synced:
                job.pre += task.pos - task.before
        if stop.clean:
            for slot in self.slots:
                self.now += self.store(slot, slot.live, "shutdown", None, slot.valid)[1]
        for job in busy:
            self.answer(t, job)
        self.up = self.now + stop.down_s
        if stop.before is not None:
            self.slots = [self.empty_slot(i) for i in range(self.c.slot_count)]
            self.running, self.locks, self.last, self.decode_due = {}, [], -1, False
            self.at(self.up, self.dispatch)
            for gate, asked in [pair for pair in self.held if pair[0] == stop]:
                self.held.remove((gate, asked))
                self.at(self.up, self.send, asked)

    # -- dispatch ------------------------------------------------------------------------------------------

    def dispatch(self, t):
        progress = t >= self.up
        while progress:
            progress = False
            for job in list(self.queue):
                slot = self.choose(job, t)
                if slot is not None:
                    self.queue.remove(job)
                    job.slot, slot.job = slot.n, job
                    task = Bag(n=slot.n, job=job, t=t, doing=None, pos=0, end=0, base=0, q=None)
                    task.gen = self.work(slot, job, task)
                    self.resume(task)
                    progress = True
                    break

    def choose(self, job, t):
        if job.need:
            for slot in self.slots:
                if job.need <= self.ids_of(slot):
                    return None if slot.job else slot
        best, score = None, None
        scores = []
        for slot in self.slots:
            if slot.job:
                scores.append(None)
                continue
            mine = self.score(slot, job, t)
            scores.append(mine)
            if best is None or mine > score:
                best, score = slot, mine
        if best is not None:
            job.scores = tuple(scores)
        return best

    def score(self, slot, job, t):
        policy = self.c.scheduler
        common = self.common(slot, job)
        empty = not slot.valid or not slot.live
        reuse = 0
        if policy in ("reuse-aware", "lru"):
            found = self.ladder(slot, job)
            reuse = found.cached if found else 0
        idle = int(self.w.origin_s + t) - int(self.w.origin_s + slot.used)
        if policy == "common-prefix":
            return common
        if policy == "visible-key":
            binding = slot.resp if job.a.api == "responses" else slot.think
            if self.key_fits(slot, job, binding):
                return len(slot.live)
            return -1 if slot.live and not self.fits(slot, job, len(slot.live)) else common
        if policy == "reuse-aware":
            if reuse or empty:
                return reuse
            return -1 - 1048576 + min(idle, 1048576) if idle >= 3600 else -2 - 1048576 - len(slot.live)
        if policy == "empty-first":
            return common if empty or common == len(slot.live) else common - 2**30
        if policy == "min-prefix":
            return -1 if slot.live and common < 64 else common
        assert policy == "lru"
        return reuse if reuse else 0 if empty else idle - 2 * (2**31 - 1)

    # -- what a slot can reuse -----------------------------------------------------------------------------

    def common(self, slot, job):
        if not slot.valid:
            return 0
        n = 0
        for a, b in zip(slot.live, job.prompt, strict=False):
            if a[0] != b[0]:
                break
            n += 1
        return n

    def text(self, tokens):
        return "".join(t for _, t in tokens)

    def fits(self, slot, job, frontier):
        if not self.g.images:
            return True
        old, new = slot.images, job.a.images
        return slot.valid and new[: len(old)] == old and all(i.at >= frontier for i in new[len(old) :])

    def key_fits(self, slot, job, b):
        if not b or b.pos != len(slot.live) or b.key is None:
            return False
        text, key = self.text(job.prompt), self.text(b.key)
        return text.startswith(key) and len(key) < len(text) and self.fits(slot, job, len(b.key))

    def splice(self, tokens, text_size, job):
        """`tokens`, and the canonical tokens that end behind `text_size` bytes of text; of the first the rest."""
        at, rest = 0, []
        for number, text in job.prompt:
            begin, at = at, at + len(text)
            if at > text_size:
                rest.append((number, text[max(0, text_size - begin) :]))
        return tokens + rest

    def ladder(self, slot, job):
        a, live, pos = job.a, slot.live, len(slot.live)
        if not pos or (self.g.probe and not slot.valid):
            return None
        common = self.common(slot, job)
        whole = self.text(job.prompt)

        def hit(source, cached, eff, rewound=False):
            return Bag(source=source, cached=cached, eff=eff, rewound=rewound, restart=False)

        def by_key(b):
            return self.splice(live, len(self.text(b.key)), job)

        tail = job.prompt[len(job.prompt) - a.tool_tail :]
        if a.api == "responses" and slot.resp and slot.resp.pos == pos:
            if self.key_fits(slot, job, slot.resp):
                return hit("responses-visible", pos, by_key(slot.resp))
            if a.results and len(a.results) == len(slot.resp.ids) and set(a.results) == slot.resp.ids:
                return hit("responses-tool-output", pos, live + tail)
        asked_for = slot.anth.ids if slot.anth and slot.anth.pos == pos else set()
        if (
            a.api == "anthropic"
            and a.results
            and len(a.results) == len(asked_for)
            and set(a.results) == asked_for
        ):
            return hit("anthropic-tool-output", pos, live + tail)
        size = len(job.prompt)
        if self.c.family == "glm" and self.g.exact_retry and 1 < size < pos and common == size:
            if self.fits(slot, job, pos):
                return hit("memory-rewind", size - 1, job.prompt, True)
        elif common == pos and size >= pos and self.fits(slot, job, pos):
            return hit("memory-token", pos, job.prompt)
        if a.api in ("chat", "anthropic") and self.key_fits(slot, job, slot.think):
            return hit("thinking-visible", pos, by_key(slot.think))
        text = self.text(live)
        if whole.startswith(text):
            eff = self.splice(live, len(text), job)
            if self.fits(slot, job, size - (len(eff) - pos)):
                found = hit("memory-text", pos, eff)
                found.restart = not slot.valid
                return found
        return self.rewind(slot, job, common)

    def rewind(self, slot, job, common):
        if self.g.images:
            for image in slot.spans:
                whole = image.at + image.tokens <= common
                if image not in job.a.images or not whole:
                    common = min(common, image.at)
            for image in job.a.images:
                if image not in slot.spans:
                    common = min(common, image.at)
        kept = min(common, len(job.prompt) - 1)
        policy = self.c.reuse
        if policy == "ladder" or not slot.valid:
            return None
        held = max(slot.rows, len(slot.live) - self.c.ring)  # the ring holds rows from here on
        if policy == "rewind-in-ring" and self.c.family == "deepseek-v4" and max(0, kept - 128) < held:
            return None
        if policy == "rewind-in-ring" and self.c.family == "qwen-next" and kept < len(slot.live):
            return None
        if policy == "rewind-points":
            kept = next((p for p in slot.points[::-1][:8] if p <= kept), 0)
        if kept <= 0 or any(i.at < kept < i.at + i.tokens for i in slot.spans):
            return None
        return Bag(source="memory-rewind", cached=kept, eff=job.prompt, rewound=True, restart=False)

    # -- one request ---------------------------------------------------------------------------------------

    def work(self, slot, job, task):
        yield from self.serve(slot, job, task)
        t = max(self.now, task.t) + self.costs.end_s(len(job.eff or ()), job.gen)
        self.at(t, self.finished, slot, job)

    def place(self, slot, job):
        """Images of the effective prompt: reused ones stay, those of the rest are moved with it."""
        old = a = job.a.images
        moved = len(job.eff) - len(job.prompt)
        if job.source not in ("memory-rewind", "disk-text"):
            old = slot.spans
        new = [Image(i.at + moved, i.tokens, i.fingerprint) for i in a]
        slot.spans = [i for i in old if i.at < job.cached] + [i for i in new if i.at >= job.cached]

    def finished(self, t, slot, job):
        if slot.job is job:
            slot.job, slot.used = None, t
            self.answer(t, job)
            self.dispatch(t)

    def serve(self, slot, job, task):
        a = job.a
        job.live, job.common = len(slot.live), self.common(slot, job)
        found = self.ladder(slot, job)
        locked = False
        if found is None and job.need:
            job.failed = True
            return
        if found:
            job.source, job.cached, job.eff = found.source, found.cached, found.eff
            if found.restart:
                slot.rows = 0
            if found.rewound:
                slot.rows = max(slot.rows, len(slot.live) - self.c.ring)
                slot.live = found.eff[: found.cached]
                slot.points = [p for p in slot.points if p <= found.cached]
            task.pos = 0 if found.restart else found.cached
        else:
            job.source, job.cached, job.eff, task.pos = "cold", 0, job.prompt, 0
            job.evicted = len(slot.live)
            slot.cont = 0
            if self.disk_for(a.images):
                locked = True
                yield from self.exchange(slot, job, task)
            if not job.loaded:
                self.invalidate(slot)
        job.t0 = self.now if locked else task.t
        self.place(slot, job)
        ok = yield from self.sync(slot, job, task)
        job.synced = True
        if not ok or job.gone:
            slot.resp = slot.anth = slot.think = None
            if (job.failed or job.cut) and job.file:
                if job.file in self.files:
                    self.files.remove(job.file)
                self.invalidate(slot)
            return
        yield from self.decode(slot, job, task)

    def invalidate(self, slot):
        slot.live, slot.valid, slot.images, slot.points, slot.rows = [], False, (), [], 0
        slot.spans = []
        slot.resp = slot.anth = slot.think = None

    def disk_for(self, images):
        return self.c.kv_disk and (not images or self.c.store == "images-on-disk")

    def exchange(self, slot, job, task):
        load_first = self.c.store == "load-before-store"
        yield from self.lock(task, task.t)
        file = self.hit(job.prompt) if load_first else None
        if len(slot.live) >= self.c.kv_cache_min_tokens:
            _, seconds = self.store(slot, slot.live, "evict", job, slot.valid)
            if seconds:
                yield seconds
        if not load_first:
            file = self.hit(job.prompt)
        if file is None:
            return
        self.trail.append(("load", job.a.request, file.name))
        self.invalidate(slot)
        slot.live, slot.valid, slot.points = list(file.tokens), True, [len(file.tokens)]
        slot.rows = max(0, len(file.tokens) - 128)  # a file holds the window only
        job.source, job.cached, job.loaded, job.file = "disk-text", len(file.tokens), len(file.tokens), file
        job.eff = self.splice(slot.live, len(file.key), job)
        task.pos = len(file.tokens)
        yield self.costs.load_s(len(file.tokens), file.size)

    def lock(self, task, since):
        task.since = since
        yield "lock"
        self.now = max(self.now, since)

    def hit(self, tokens):
        file = self.lookup(tokens)
        if file is not None:
            file.hits += 1
            file.used = int(self.w.origin_s + self.now)
            if self.g.consumes and len(file.tokens) > self.c.kv_cache_cold_max_tokens > 0:
                self.files.remove(file)
        return file

    def lookup(self, tokens):
        text = self.text(tokens)
        fits = [
            f for f in self.files if len(f.tokens) >= self.c.kv_cache_min_tokens and text.startswith(f.key)
        ]
        return max(fits, key=lambda f: len(f.key), default=None)

    def sync(self, slot, job, task):
        total, _c = len(job.eff), self.c
        cold = self.cold_length(job, total)
        if cold and cold < total:
            if not (yield from self.evaluate(slot, job, task, cold)):
                return False
            yield from self.lock(task, self.now)
            if (yield from self.put(slot, job, cold, "cold")):
                slot.cont = cold
            yield from self.continued(slot, job, task, cold, True)
        if not (yield from self.evaluate(slot, job, task, total)):
            return False
        slot.live = job.eff
        yield from self.continued(slot, job, task, total, False)
        slot.resp = slot.anth = slot.think = None
        slot.images = job.a.images
        if cold == total:
            yield from self.lock(task, self.now)
            if (yield from self.put(slot, job, cold, "cold")):
                slot.cont = cold
        return True

    def cold_length(self, job, total):
        c, anchor = self.c, job.a.anchor
        least = c.kv_cache_min_tokens
        if (
            job.cached
            or total < least
            or total > c.kv_cache_cold_max_tokens
            or not self.disk_for(job.a.images)
        ):
            return 0
        if anchor is not None and anchor >= least:
            return anchor
        if total > least + c.kv_cache_boundary_trim_tokens:
            align = c.kv_cache_boundary_align_tokens
            aligned = (total - c.kv_cache_boundary_trim_tokens) // align * align
            if aligned >= least:
                return aligned
        return total

    def evaluate(self, slot, job, task, target):
        """A sync to `target`, position by position where a progress event may fall."""
        c, glm, fault = self.c, self.c.family == "glm", job.a.fault
        start, stop = task.pos, target
        if fault and fault.phase == "prefill":
            stop = min(target, max(start, job.cached + fault.after))
        step = -(-c.kv_cache_continued_interval_tokens // c.kv_cache_boundary_align_tokens)
        step *= c.kv_cache_boundary_align_tokens
        quiet = start > 0 and target - start < self.g.resume_min
        quiet = quiet or (not c.batched and not glm and start == 0 and target <= c.chunk)
        task.base, task.q, task.end, task.quiet = start, None, stop, quiet
        while task.pos < stop and not job.cut:
            task.before = task.pos
            yield "prefill"  # one piece, or less: up to a chunk end inside it
            job.pre += task.pos - task.before
            slot.live, slot.valid = job.eff[: task.pos], True
            if job.cut:
                break
            p = task.pos
            chunk_end = not glm and p % c.chunk == 0
            piece_end = (task.q is None and chunk_end) or (task.q and (p - task.base) % task.q == 0)
            if quiet or not step or p % step or not (chunk_end or piece_end or p == stop):
                continue
            if p == target and target != len(job.eff):
                continue
            first_silent = c.batched and start == 0 and p <= min(c.prefill_quantum, c.chunk)
            if not first_silent:
                yield from self.continued(slot, job, task, p, True)
            if c.batched and p < target and piece_end and not glm:
                yield from self.continued(slot, job, task, p, True)
        if job.cut:
            return False
        if stop < target or (fault and fault.phase == "prefill" and target == len(job.eff)):
            slot.valid, job.failed = False, True
            return False
        return True

    def continued(self, slot, job, task, p, within):
        c = self.c
        align = c.kv_cache_boundary_align_tokens
        step = -(-c.kv_cache_continued_interval_tokens // align) * align
        if not c.kv_disk or not step or p % step or p < c.kv_cache_min_tokens or p <= slot.cont:
            return
        if (within and p <= job.cached) or not self.disk_for(job.a.images):
            return
        if not within:
            yield from self.lock(task, self.now)
        if (yield from self.put(slot, job, p, "continued", not (within and c.family == "glm"))):
            slot.cont = p

    def decode(self, slot, job, task):
        a, c, fault = job.a, self.c, job.a.fault
        p0 = len(job.eff)
        whole = job.eff + self.expand(a.reply)
        end = min(len(whole), max(p0, c.ctx))
        if fault and fault.phase == "decode":
            end = min(end, p0 + fault.after)
        align = c.kv_cache_boundary_align_tokens
        step = -(-c.kv_cache_continued_interval_tokens // align) * align
        task.pos = p0
        while task.pos < end and not job.cut:
            task.end = task.pos + 1
            while task.end < end:
                inside = a.tool_block and a.tool_block[0] <= task.end - p0 < a.tool_block[1]
                if c.kv_disk and step and task.end % step == 0 and not inside:
                    break
                task.end += 1
            yield "decode"
            if task.pos < end and not job.cut:
                slot.live = whole[: task.pos]
                yield from self.continued(slot, job, task, task.pos, False)
        p = task.pos
        extra = 1 if job.failed and p < len(whole) else 0
        slot.live = whole[: p + extra]
        job.gen = min(a.generated, p - p0)
        if fault and fault.phase == "decode":
            slot.valid, job.failed = False, True
        job.finish = "error" if job.cut or job.failed else "length" if end < len(whole) else a.finish
        if job.finish != "error":
            slot.points.append(p0)
        key = None
        if a.shown is not None:
            key = job.prompt[: len(job.prompt) - a.drop] + self.expand(a.shown)
        if a.calls and job.finish == "tool_calls":
            yield from self.canonicalise(slot, job, task, key)
        if job.finish != "error":
            slot.points.append(len(slot.live))
        if a.stop_sequence and job.finish == "stop":
            self.invalidate(slot)
        self.bind(slot, job, key)

    def canonicalise(self, slot, job, task, key):
        a = job.a
        if (a.raw_tools and self.c.exact_tool_replay) or a.api not in ("chat", "anthropic") or key is None:
            return
        if len(key) > self.c.ctx or slot.images or self.text(slot.live) == self.text(key):
            return
        common = self.common(Bag(valid=True, live=slot.live), Bag(prompt=key))
        if common < len(job.prompt):
            return
        cached = common
        if common < len(slot.live):
            file = self.hit(key)
            cached = 0
            if file:
                cached = len(file.tokens)
                yield self.costs.load_s(cached, file.size)
                key = self.splice(file.tokens, len(file.key), Bag(prompt=key))
            slot.rows, slot.points = max(0, cached - 128), []
        task.pos, task.base, task.q, task.end, task.quiet = cached, cached, None, len(key), True
        while task.pos < len(key):
            task.before = before = task.pos
            yield "prefill"
            if task.pos == before:
                break  # cut
        slot.live = key[: task.pos]

    def bind(self, slot, job, key):
        a, pos = job.a, len(slot.live)
        slot.resp = slot.anth = slot.think = None
        if job.finish in ("error", "length") or not pos:
            return
        ids = set(a.calls)
        if len(a.images) > 16:
            key = None
        if a.api == "responses" and (key is not None or ids):
            slot.resp = Bag(pos=pos, key=key, ids=ids)
        if a.api == "anthropic" and ids:
            slot.anth = Bag(pos=pos, key=None, ids=ids)
        qwen = self.g.qwen_tools_key and self.c.family == "qwen-next" and a.api == "chat"
        reasoned = a.thinking and not a.keeps_reasoning and not a.open_reasoning
        if key is not None and reasoned and a.api != "completion" and not a.calls and (not a.tools or qwen):
            slot.think = Bag(pos=pos, key=key)

    # -- disk ----------------------------------------------------------------------------------------------

    def put(self, slot, job, tokens, reason, sound=True):
        done, seconds = self.store(
            slot, job.eff[:tokens] if reason == "cold" else slot.live, reason, job, sound
        )
        if seconds:
            yield seconds
        return done

    def store(self, slot, state, reason, job, sound):
        c, size = self.c, 0
        if not self.disk_for(slot.images) or len(state) < c.kv_cache_min_tokens:
            return False, 0.0
        key = self.text(state)
        if state is slot.live:
            for b in (slot.think, slot.resp):
                if b and b.pos == len(state) and b.key is not None:
                    key = self.text(b.key)
        now = int(self.w.origin_s + self.now)
        maps = self.map_bytes(state)
        for file in self.files:
            if file.key == key:
                if maps:
                    file.used = now
                self.trail.append(("silent", file.name))
                return True, self.costs.store_s(len(state), 0, False)
        size = c.file_bytes(len(state)) + len(key) + maps
        if not sound:
            return False, self.costs.store_s(len(state), 0, False)
        if -(-size * 101 // 100) > c.budget_bytes:
            self.trail.append(("skip", reason, len(state)))
            return False, self.costs.store_s(len(state), size, False)
        if self.g.evicts_before and not self.make_room(c.budget_bytes - size, key, job, now, None):
            return False, 0.0
        self.made += 1
        name = self.names.setdefault(key, self.made)
        file = Bag(name=name, key=key, tokens=list(state), size=size, reason=reason, hits=0, used=now)
        self.files.append(file)
        if not self.g.evicts_before:
            self.make_room(c.budget_bytes, key, job, now, file)
        self.trail.append(("store", reason, len(state), file.name))
        if job is not None:
            job.stores.append((len(state), reason))
        return True, self.costs.store_s(len(state), size, True)

    def map_bytes(self, state):
        last = {self.tokens[s.id][-1][0]: s.tool_map for s in self.w.segments.values()}
        return sum(last.get(number, 0) for number, _ in state)

    def make_room(self, target, key, job, now, spared):
        wanted = self.lookup(job.prompt) if self.c.store == "protect-incoming" and job else None
        while sum(f.size for f in self.files) > target:
            files = [f for f in self.files if f is not spared and f is not wanted]
            if not files:
                return False
            worst = min(files, key=lambda f: (self.file_score(f, key, now), f.used, f.name))
            self.files.remove(worst)
            self.evictions += 1
            self.trail.append(("evict", worst.name))
            if job is not None:
                job.evf += 1
        return True

    def file_score(self, f, key, now):
        age = now - f.used
        hits = f.hits * 2.0 ** (-age / 21600)
        if hits < 0.01:
            hits = 0.0
        score = (hits + 1.0) * len(f.tokens) / f.size
        if f.reason in ("cold", "evict", "shutdown"):
            score *= 2.0
        elif f.reason == "continued" and self.g.superseded and f.key != key and key.startswith(f.key):
            score *= 0.05 + 0.45 * hits / (hits + 1.0)
        return score

    # -- the machine ---------------------------------------------------------------------------------------

    def resume(self, task):
        self.running.pop(task.n, None)
        while True:
            op = next(task.gen, None)
            if isinstance(op, float):
                self.now += op
                continue
            task.doing = op
            if op == "lock":
                self.locks.append(task)
                self.locks.sort(key=lambda t: t.since)
            elif op:
                self.running[task.n] = task
                self.decode_due = self.decode_due or op == "decode"
            return

    def one_op(self):
        tasks = [self.running[n] for n in sorted(self.running)]
        decoding = [t for t in tasks if t.doing == "decode"]
        prefilling = [t for t in tasks if t.doing == "prefill"]
        if decoding and (self.decode_due or not prefilling):
            self.now += self.costs.decode_s(len(decoding), max(t.pos for t in decoding), 1)
            self.decode_due = False
            for task in decoding:
                task.pos += 1
            for task in [task for task in decoding if task.pos >= task.end]:
                self.resume(task)
            return
        task = next((t for t in prefilling if t.n > self.last), prefilling[0])
        quantum = self.quantum(bool(decoding))
        if task.q != quantum:
            task.base, task.q = task.pos, quantum
        end = task.base + ((task.pos - task.base) // quantum + 1) * quantum if quantum else task.end
        if not quantum or (self.c.family != "glm" and self.c.chunk < end - task.pos):
            end = min(end, (task.pos // self.c.chunk + 1) * self.c.chunk)
        stop = self.stop_inside(task, min(end, task.end))
        self.now += self.costs.prefill_s(task.pos, stop)
        task.pos, self.last = stop, task.n
        self.decode_due = bool(decoding)
        self.resume(task)

    def quantum(self, decoding):
        if self.c.batched:
            return self.c.mixed_prefill_quantum if decoding else self.c.prefill_quantum
        return self.c.chunk if self.c.family == "glm" else None

    def stop_inside(self, task, end):
        """A chunk end inside a piece at which a continued store may fall."""
        align = self.c.kv_cache_boundary_align_tokens
        step = -(-self.c.kv_cache_continued_interval_tokens // align) * align
        for p in range(task.pos + 1, end):
            if (
                step
                and not task.quiet
                and self.c.kv_disk
                and self.c.family != "glm"
                and p % step == 0
                and p % self.c.chunk == 0
            ):
                return p
        return end
