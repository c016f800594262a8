"""Slots that were passed over: an idle slot whose whole live state a prompt extends is taken by every
scheduler (R2.10, R2.15, R2.20), unless another one offers at least as much. So one that was not taken says
that the prompt does not extend it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from parser.request import Request
from replay.evidence import Evidence
from replay.prefixes import Part
from replay.strings import canonical, live


@dataclass(slots=True)
class _Slot:
    """The last request of a slot and the number of its last event."""

    index: int
    last: int


def passed_over(evidence: Evidence) -> Iterator[Part]:
    """What each prompt does not extend, by the idle slots that it was not given."""
    slots: dict[tuple[int, int], _Slot] = {}
    for index, request in enumerate(evidence.requests):
        if request.slot is None or request.slot_confidence == "ambiguous" or not request.events:
            continue
        first = min(request.events)
        for (run, slot), held in slots.items():
            if run == request.run and slot != request.slot and held.last < first:
                yield from _part(evidence, index, request, held.index)
        slots[request.run, request.slot] = _Slot(index, max(request.events))


def _part(evidence: Evidence, index: int, request: Request, other: int) -> Iterator[Part]:
    """`other` sits in an idle slot: it offered its whole length, and got nothing."""
    whole, tokens = evidence.lengths[live(other)], evidence.lengths[canonical(index)]
    offered = max(request.cached_tokens or 0, request.common or 0)
    if request.disk_hit_tokens:
        offered = request.common or 0
    if offered < whole <= tokens and index not in evidence.hidden:
        yield Part(canonical(index), live(other), whole - 1)
