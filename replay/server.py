"""One event loop over a virtual clock: clients, queue, slots, the machine, the disk."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from heapq import heappop, heappush
from typing import Any

from parser.collector import collector_paused
from replay.clients import END, LEAVE, NOTICE, QUEUE, SEND, STOP, UP, Clients
from replay.config import ServerConfig
from replay.decisions import Answered, Arrived, Decision, Ended, Refused, Started
from replay.dispatch import Dispatcher
from replay.foresight import Foresight
from replay.ladder import Look
from replay.machine import LOCK, PREFILL, Machine, Op, Task
from replay.outcome import Outcome
from replay.plugins import reuse_of, scheduler_of, store_of
from replay.seams import Costs, Foreseeing
from replay.service import Service
from replay.session import Job, Session
from replay.tally import outcome_of
from replay.tier import Tier
from replay.tree import Forest
from replay.workload import Asked, Stop, Workload

#: a client that left is noticed within this time by a server that polls (R6.11)
POLL_S = 0.1


def replay(
    workload: Workload,
    config: ServerConfig | Sequence[ServerConfig],
    costs: Costs,
    log: list[Decision] | None = None,
) -> Outcome:
    """What a server with this configuration makes of the workload.

    With several configurations each process after a stop takes the next one (the last one stays). `log`, if
    given, receives every decision (`replay.decisions`). Deterministic: the same bytes for the same input.
    """
    configs = [config] if isinstance(config, ServerConfig) else list(config)
    with collector_paused():
        return Server(workload, configs, costs, log).run()


class Server:
    """The server model and its clients."""

    def __init__(
        self,
        workload: Workload,
        configs: Sequence[ServerConfig],
        costs: Costs,
        log: list[Decision] | None,
    ) -> None:
        self.workload, self.configs, self.costs, self.log = workload, configs, costs, log
        self.clients = Clients(workload)
        self.forest = Forest(workload)
        self.jobs = [Job(asked, self.forest.node(asked.prompt), 0.0) for asked in workload.requests]
        self._index = {job.asked.request: place for place, job in enumerate(self.jobs)}
        self.foresight = Foresight([job.prompt for job in self.jobs])
        self._heap: list[tuple[float, int, int, Any]] = []
        self._count = 0
        self._run, self._up_s = 0, 0.0
        self.machine = Machine(configs[0], costs, log)
        store = store_of(configs[0].store)
        self.tier = Tier(configs[0], store, costs, self.foresight, log)
        self.tier.assume(workload, self.forest)
        self.dispatcher: Dispatcher
        self._boot(0.0, [])

    # -- the loop ------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Until every request has ended, and the server with it if its log says so."""
        for at_s, asked in self.clients.opening():
            self._at(at_s, SEND, asked)
        machine, heap = self.machine, self._heap
        while True:
            if heap and heap[0][0] <= machine.now:
                at_s, _, kind, what = heappop(heap)
                self._happens(at_s, kind, what)
            elif machine.locks:
                machine.resume(machine.locks.pop(0))
            elif machine.running:
                machine.advance(heap[0][0] if heap else math.inf)
            elif heap:
                machine.now = heap[0][0]
            elif (overdue := self.clients.overdue()) is not None:
                self._stop(machine.now, overdue)
            elif self.clients.last:
                self._stop(machine.now, self.clients.last.pop(0))
            else:
                return outcome_of(self.jobs, self.tier.evictions)

    def _at(self, at_s: float, kind: int, what: Any) -> None:
        self._count += 1
        heappush(self._heap, (at_s, self._count, kind, what))

    def _happens(self, at_s: float, kind: int, what: Any) -> None:
        if kind == SEND:
            self._send(at_s, what)
        elif kind == QUEUE:
            self._queue(at_s, what)
        elif kind == END:
            self._end(at_s, what)
        elif kind == LEAVE:
            self._client_leaves(at_s, what)
        elif kind == NOTICE:
            self._notice(what)
        elif kind == STOP:
            self._stop(at_s, what)
        else:
            self._dispatch(at_s)

    # -- arrival -------------------------------------------------------------------------------------------

    def _send(self, at_s: float, asked: Asked) -> None:
        """R2.1: parsed and tokenised before it is queued; a prompt that does not fit is refused."""
        if self.clients.hold(asked):
            return
        for stop in self.clients.stops_before(asked.request):
            self._stop(at_s, stop)
        for stop in self.clients.stops_during(asked.request):
            self._at(at_s + stop.delay_s, STOP, stop)
        job = self.jobs[self._index[asked.request]]
        job.sent_s = at_s
        if self.log is not None:
            self.log.append(Arrived(at_s, asked.request))
        if asked.gives_up_s is not None:
            self._at(at_s + asked.gives_up_s, LEAVE, job)
        self._at(max(at_s, self._up_s) + self.costs.admit_s(job.prompt.size), QUEUE, job)

    def _queue(self, at_s: float, job: Job) -> None:
        if job.prompt.size >= self.machine.config.ctx:
            if self.log is not None:
                self.log.append(Refused(at_s, job.asked.request, None, "context"))
            job.failed = True
            self._answer(at_s, job)
            return
        if job.done and self.machine.config.generation.polls:
            self.foresight.serve(self._index[job.asked.request])
            return  # R3.16: a queued job whose client is gone is dropped
        job.required = self.dispatcher.need(job)
        self.dispatcher.queue.append(job)
        self._dispatch(at_s)

    def _dispatch(self, at_s: float) -> None:
        """R2.2-R2.3: at each arrival and each time a slot becomes free."""
        while self.dispatcher.queue and at_s >= self._up_s:
            found = self.dispatcher.next(at_s)
            if found is None:
                return
            job, session = found.job, found.session
            self.foresight.serve(self._index[job.asked.request])
            task = Task(session.number, job.asked.request, at_s)
            task.gen = self._task(found, task)
            self._tasks[job.asked.request] = task
            self.machine.resume(task)

    def _task(self, look: Look, task: Task) -> Generator[Op, None, None]:
        """A job in its slot, and what follows its last token."""
        yield from self.service.serve(look, task)
        job = look.job
        ended = max(self.machine.now, task.start_s)
        self._at(ended + self.costs.end_s(job.effective_size, job.generated), END, (look.session, job))

    # -- the end of a request ------------------------------------------------------------------------------

    def _end(self, at_s: float, what: tuple[Session, Job]) -> None:
        """R2.4: the slot is free when the answer is written."""
        session, job = what
        if session.job is not job:
            return
        session.job, session.last_used = None, at_s
        self._tasks.pop(job.asked.request, None)
        self._answer(at_s, job)
        self._dispatch(at_s)

    def _answer(self, at_s: float, job: Job, gone: bool = False) -> None:
        """The client has its answer, or has left; whoever waited for that goes on."""
        if job.done:
            return
        job.done, job.end_s = True, at_s
        if self.log is not None:
            self.log.append(Answered(at_s, job.asked.request, gone))
        for then_s, asked in self.clients.following(job.asked.request, at_s):
            self._at(then_s, SEND, asked)

    def _client_leaves(self, at_s: float, job: Job) -> None:
        """R6.11: a server that polls notices, another one when it writes: only if the answer is streamed."""
        if job.done:
            return
        polls = self.machine.config.generation.polls
        job.gone = polls or job.asked.stream
        self._answer(at_s, job, gone=True)
        if polls:
            self._at(at_s + POLL_S, NOTICE, job)
        elif job.gone and job.finish is None and job.prefill_s is not None:
            self._cut(job)

    def _notice(self, job: Job) -> None:
        """R3.16: a queued job is removed, a running one stops where it is."""
        if job in self.dispatcher.queue:
            self.dispatcher.queue.remove(job)
            self.foresight.serve(self._index[job.asked.request])
        else:
            self._cut(job)

    def _cut(self, job: Job) -> None:
        job.cut = True
        task = self._tasks.get(job.asked.request)
        if task is not None and task.doing and task.doing != LOCK:
            self.machine.resume(task)

    # -- the process ---------------------------------------------------------------------------------------

    def _boot(self, at_s: float, waiting: list[Job]) -> None:
        """R1.6: a new process starts with empty slots and the files that are there."""
        config = self.configs[min(self._run, len(self.configs) - 1)]
        self.machine.reset(config)
        self.tier.config, self.tier.policy = config, store_of(config.store)
        self.service = Service(config, self.forest, self.machine, self.tier, reuse_of(config.reuse), self.log)
        sessions = [Session(number, self.forest.empty) for number in range(config.slot_count)]
        scheduler = scheduler_of(config.scheduler)
        for policy in (scheduler, self.service.reuse, self.tier.policy):
            if isinstance(policy, Foreseeing):
                policy.begin(self.workload)
        self.dispatcher = Dispatcher(
            scheduler, self.service, self.foresight, sessions, self.workload.origin_s, self.log
        )
        self.dispatcher.queue = waiting
        self._tasks: dict[int, Task] = {}
        if self.log is not None:
            self.log.append(Started(at_s, self._run, config.slot_count))
        self.tier.open(at_s)
        self._run += 1

    def _stop(self, at_s: float, stop: Stop) -> None:
        """SIGTERM cuts off what runs and persists every slot in order (R5.5); a kill loses it."""
        self.machine.now = max(self.machine.now, at_s)
        sessions = self.dispatcher.sessions
        lost = [session.job for session in sessions if session.job is not None]
        for job in lost:
            job.failed = True
            task = self._tasks.get(job.asked.request)
            if stop.clean:
                self._cut(job)
            elif task is not None and task.doing == PREFILL and job.prefill_s is None:
                job.prefilled += task.pos - task.began
        if stop.clean:
            for session in sessions:
                made = self.tier.store(
                    self.machine.now, session, session.node, "shutdown", None, sound=session.valid
                )
                self.machine.now += made.seconds
        if self.log is not None:
            self.log.append(Ended(self.machine.now, stop.clean))
        for job in lost:
            self._answer(at_s, job)
        self._up_s = self.machine.now + stop.down_s
        if stop.before is not None or stop.after is not None:
            self._boot(self._up_s, self.dispatcher.queue)
            self._at(self._up_s, UP, None)
        for asked in self.clients.release(stop):
            self._at(self._up_s, SEND, asked)
