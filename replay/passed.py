"""Slots that were passed over: an idle slot whose whole live state a prompt extends is taken by every
scheduler (R2.10, R2.15, R2.20), unless another one offers at least as much. So one that was not taken says
that the prompt does not extend it. Where the score is the shared prefix itself (R2.10), it also says that no
more is shared with it than with the slot that was taken."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from parser.reading import Reading
from parser.request import Request
from replay.evidence import Evidence
from replay.prefixes import Part
from replay.profiles import PROFILES
from replay.strings import canonical, live

_BY_PREFIX = ("common-prefix", "visible-key")


def passed_over(reading: Reading, evidence: Evidence) -> Iterator[Part]:
    """What each prompt does not extend, by the idle slots that it was not given."""
    profile = PROFILES.get(reading.server.profile or "")
    by_prefix = profile is not None and profile.scheduler in _BY_PREFIX
    prefilling = _Prefilling(reading)
    held: dict[tuple[int, int], tuple[int, int]] = {}
    for index, request in enumerate(evidence.requests):
        if request.slot is None or request.slot_confidence == "ambiguous" or not request.events:
            continue
        first = min(request.events)
        sure = request.live_before is not None or not prefilling.at(first)
        for (run, slot), (other, last) in held.items():
            if sure and run == request.run and slot != request.slot and last < first:
                yield from _part(
                    evidence, index, request, other, by_prefix=by_prefix, lower=slot < request.slot
                )
        held[request.run, request.slot] = (index, max(request.events))


class _Prefilling:
    """Whether some request was prefilling: then one for an empty slot may have waited for the model between its
    dispatch and its first line, and a slot may have come free meanwhile."""

    def __init__(self, reading: Reading) -> None:
        log = reading.events
        marks = log.rows("prompt_start", "prompt_done", "startup") if log is not None else ()
        self.marks: list[tuple[int, int]] = []
        running = 0
        for event in marks:
            step = {"prompt_start": 1, "prompt_done": -1}.get(event.kind)
            running = 0 if step is None else max(0, running + step)
            self.marks.append((event.seq, running))

    def at(self, seq: int) -> bool:
        """Just before the event number."""
        place = bisect_left(self.marks, (seq, 0))
        return bool(place and self.marks[place - 1][1])


def _part(
    evidence: Evidence, index: int, request: Request, other: int, *, by_prefix: bool, lower: bool
) -> Iterator[Part]:
    """`other` sits in an idle slot: it offered what it shares, and got nothing. Of two equal offers the `lower` slot's
    is taken (R2.6)."""
    whole, tokens = evidence.lengths[live(other)], evidence.lengths[canonical(index)]
    taken = (
        (request.common or 0)
        if request.disk_hit_tokens
        else max(request.cached_tokens or 0, request.common or 0)
    )
    if index in evidence.hidden or taken >= min(whole, tokens):
        return
    if by_prefix and taken:
        yield Part(canonical(index), live(other), taken - lower)
    elif whole <= tokens:
        yield Part(canonical(index), live(other), whole - 1)
