"""The queue and the dispatcher: which waiting request gets which idle slot (section 2).

R2.7: nobody is turned away, and nothing but age orders the queue.
"""

from __future__ import annotations

from replay.decisions import Decision, Dispatched
from replay.foresight import Foresight
from replay.ladder import Look
from replay.seams import Scheduler
from replay.service import Service
from replay.session import Job, Session


class IdleSlot(Look):
    """An idle slot and a waiting request (the `Offer` of `replay.seams`)."""

    __slots__ = ("_dispatch", "_now")

    def __init__(self, session: Session, job: Job, dispatch: Dispatcher, now: float) -> None:
        self.session, self.job, self.asked = session, job, job.asked
        self.config, self.forest = dispatch.service.config, dispatch.service.forest
        self._dispatch, self._now, self._common = dispatch, now, -1

    @property
    def slot(self) -> int:
        """Number of the slot."""
        return self.session.number

    @property
    def empty(self) -> bool:
        """No valid checkpoint."""
        return not self.session.valid or not self.session.node.size

    @property
    def reuse(self) -> int:
        """R2.20, R3.20: the tokens that the ladder would reuse."""
        hit = self._dispatch.service.find(self)
        return 0 if hit is None else hit.cached

    @property
    def images_fit(self) -> bool:
        """R3.10."""
        return self.fits(self.session.node.size)

    @property
    def idle_s(self) -> int:
        """R2.21: whole seconds of the wall clock."""
        second = self._dispatch.second
        return second(self._now) - second(self.session.last_used)

    @property
    def next_use(self) -> int:
        """The next request that extends the live text or what is bound to it."""
        session, foresight = self.session, self._dispatch.foresight
        keys = {session.node.text, session.key()[0]}
        return min(foresight.next_use(key) for key in keys)


class Dispatcher:
    """R2.2: one first-in-first-out list of requests, and the slots of one process."""

    def __init__(
        self, scheduler: Scheduler, service: Service, foresight: Foresight, sessions: list[Session],
        origin_s: float, log: list[Decision] | None,
    ) -> None:  # fmt: skip
        self.scheduler, self.service, self.foresight = scheduler, service, foresight
        self.sessions, self.origin_s, self.log = sessions, origin_s, log
        self.queue: list[Job] = []

    def second(self, at_s: float) -> int:
        """R2.21: last_used is in whole seconds."""
        return int(self.origin_s + at_s)

    def need(self, job: Job) -> frozenset[str]:
        """R2.5, at parse time: the ids of results whose calls the request does not replay, if any was live."""
        if not job.asked.needs_live or not job.asked.results:
            return frozenset()
        ids = frozenset(job.asked.results)
        return ids if any(ids & _bound(session) for session in self.sessions) else frozenset()

    def next(self, now: float) -> Look | None:
        """R2.3: the first job of the queue that has an eligible slot, and the best slot for it."""
        for place, job in enumerate(self.queue):
            found = self._choose(job, now)
            if found is not None:
                del self.queue[place]
                return found
        return None

    def _choose(self, job: Job, now: float) -> Look | None:
        """R2.4-R2.6: idle slots only; a required slot and no other; the highest score, the lowest slot on a tie."""
        required = self._required(job)
        if required is not None:
            offer = IdleSlot(required, job, self, now)
            return None if required.job is not None else self._take(offer, (), 0, now)
        best, best_score = None, 0
        scores: list[int | None] = []
        for session in self.sessions:
            score = None
            if session.job is None:
                offer = IdleSlot(session, job, self, now)
                score = self.scheduler.score(offer)
                if best is None or score > best_score:
                    best, best_score = offer, score
            scores.append(score)
        return None if best is None else self._take(best, tuple(scores), best_score, now)

    def _required(self, job: Job) -> Session | None:
        """R2.5: the lowest slot whose bindings contain all the ids."""
        if not job.required:
            return None
        return next((slot for slot in self.sessions if job.required <= _bound(slot)), None)

    def _take(self, offer: IdleSlot, scores: tuple[int | None, ...], score: int, now: float) -> Look:
        """R2.22: a score below 0 evicts a live state."""
        job, session = offer.job, offer.session
        job.scores, job.slot, session.job = scores, session.number, job
        if self.log is not None:
            evicting = score < 0 and not offer.empty
            request, idle = job.asked.request, offer.idle_s
            row = Dispatched(now, request, session.number, scores, evicting, offer.live, idle)
            self.log.append(row)
        return offer


def _bound(session: Session) -> frozenset[str]:
    """Tool-call ids that the slot's bindings hold."""
    none: frozenset[str] = frozenset()
    return none.union(*(b.ids for b in (session.responses, session.anthropic) if b is not None))
