"""Logs that start in the middle: what sat in the slots before the first line.

A miss shows the length of a live state that no request of the log left, and a hit goes on from one. Each such
state is assumed to be the whole prompt of an earlier request that generated nothing; it is replayed first, and
counted nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from parser.reading import Reading
from parser.request import Request
from replay.costs import FittedCosts
from replay.outcome import Outcome, Served
from replay.tally import rank
from replay.workload import Workload

#: how much longer than their prefill alone assumed requests may take, stores and all
_MARGIN = 1.5


def with_prologue(reading: Reading) -> tuple[Reading, frozenset[int]]:
    """The reading with assumed requests before its own, and the numbers of those (none for a whole log)."""
    assumed: list[Request] = []
    number = max((r.request for r in reading.requests), default=0)
    requests = []
    for request in reading.requests:
        if request.previous_in_slot is None and request.live_before:
            number += 1
            assumed.append(_assumed(number, request))
            request = replace(request, previous_in_slot=number)
        requests.append(request)
    if not assumed:
        return reading, frozenset()
    return replace(reading, requests=assumed + requests), frozenset(r.request for r in assumed)


def _assumed(number: int, first: Request) -> Request:
    tokens = first.live_before
    return Request(
        request=number,
        line=0,
        api=first.api,
        flags=tuple(flag for flag in first.flags if flag in ("TOOLS", "RESPPROTO")),
        prompt_tokens=tokens,
        canonical_prompt_tokens=tokens,
        generated_tokens=0,
        finish="stop",
        images=first.images,
        slot=first.slot,
        slot_confidence=first.slot_confidence,
        live_after=tokens,
        run=first.run,
        excerpt=first.excerpt,
    )


def assumed_first(workload: Workload, assumed: Collection[int], costs: FittedCosts) -> tuple[Workload, float]:
    """The assumed requests come at once, so that each finds a slot of its own, and are over before the others
    come; and by how many seconds those are later for it."""
    if not assumed:
        return workload, 0.0
    tokens = [asked.prompt_tokens for asked in workload.requests if asked.request in assumed]
    spent = sum(costs.prefill_s(0, count) for count in tokens)
    later = math.ceil(1 + _MARGIN * spent)
    requests = [
        asked
        if asked.request in assumed or asked.arrival_s is None
        else replace(asked, arrival_s=asked.arrival_s + later)
        for asked in workload.requests
    ]
    return replace(workload, requests=tuple(requests)), float(later)


def without_assumed(outcome: Outcome, assumed: Collection[int]) -> Outcome:
    """The outcome of the log's own requests; deleted files are those that the own requests caused."""
    if not assumed:
        return outcome
    kept = tuple(row for row in outcome.requests if row.request not in assumed)
    lost = sum(row.evicted_files for row in outcome.requests if row.request in assumed)
    latencies = sorted(row.latency_s for row in kept if row.latency_s is not None)
    totals = replace(
        outcome.totals,
        requests=len(kept),
        live_misses=sum(bool(row.evicted_live_tokens) for row in kept),
        evict_stores=sum(made.reason == "evict" for row in kept for made in row.stores),
        disk_hits=sum(bool(row.disk_hit_tokens) for row in kept),
        evictions=outcome.totals.evictions - lost,
        prefilled_tokens=sum(row.prefilled_tokens or 0 for row in kept),
        loaded_tokens=sum(row.disk_hit_tokens or 0 for row in kept),
        wall_s=_wall(kept),
        latency_s_sum=math.fsum(latencies) if latencies else None,
        latency_s_p50=rank(latencies, 0.50),
        latency_s_p95=rank(latencies, 0.95),
    )
    return Outcome(kept, totals)


def _wall(rows: tuple[Served, ...]) -> float | None:
    """From the first start to the last end; arrivals of single requests are not in an outcome."""
    starts = [row.start_s for row in rows if row.start_s is not None]
    ends = [
        row.start_s + row.latency_s for row in rows if row.start_s is not None and row.latency_s is not None
    ]
    return max(ends) - min(starts) if starts and ends else None
