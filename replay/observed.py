"""Reading -> Outcome: what the log says the server did, in the same form as what a replay predicts."""

from __future__ import annotations

import math

from parser.reading import Reading
from parser.request import Request
from replay.arrivals import Arrivals
from replay.outcome import Outcome, Served, StoreMade, Totals
from replay.tally import rank


def observed(reading: Reading, times: Arrivals | None = None) -> Outcome:
    """The log's own outcome. Null is "the log does not say". `times` (of `replay.extract`) gives starts and
    latencies; arrivals are not logged, so latencies count from the estimated arrival."""
    served = tuple(_served(index, request, times) for index, request in enumerate(reading.requests))
    return Outcome(served, _totals(reading, served, times))


def _served(index: int, request: Request, times: Arrivals | None) -> Served:
    start = request.start_s if times is None else times.start[index]
    return Served(
        request=request.request,
        slot=request.slot,
        source=request.source,
        cached_tokens=request.cached_tokens,
        prompt_tokens=request.prompt_tokens,
        prefilled_tokens=request.prefilled_tokens,
        live_before=request.live_before,
        common=request.common,
        evicted_live_tokens=request.evicted_live_tokens,
        disk_hit_tokens=_disk_hit(request),
        stores=tuple(StoreMade(store.tokens, store.reason) for store in request.stores),
        evicted_files=len(request.evicted_files),
        start_s=start,
        prefill_s=request.prefill_s,
        latency_s=_latency(index, request, times),
    )


def _disk_hit(request: Request) -> int | None:
    if request.disk_hit_tokens is not None or request.source is None:
        return request.disk_hit_tokens
    return 0


def _latency(index: int, request: Request, times: Arrivals | None) -> float | None:
    if times is None or request.total_s is None:
        return None
    start, arrival = times.start[index], times.arrival[index]
    return None if start is None or arrival is None else start + request.total_s - arrival


def _totals(reading: Reading, served: tuple[Served, ...], times: Arrivals | None) -> Totals:
    counts = reading.counts
    latencies = sorted(row.latency_s for row in served if row.latency_s is not None)
    prefilled = [row.prefilled_tokens for row in served if row.prefilled_tokens is not None]
    return Totals(
        requests=len(served),
        live_misses=counts.get("live_miss", 0),
        evict_stores=sum(made.reason == "evict" for row in served for made in row.stores),
        disk_hits=sum(bool(row.disk_hit_tokens) for row in served),
        evictions=counts.get("kv_evicted", 0),
        prefilled_tokens=sum(prefilled),
        loaded_tokens=sum(row.disk_hit_tokens or 0 for row in served),
        wall_s=_wall(times) if times is not None else None,
        latency_s_sum=math.fsum(latencies) if latencies else None,
        latency_s_p50=rank(latencies, 0.50),
        latency_s_p95=rank(latencies, 0.95),
    )


def _wall(times: Arrivals) -> float | None:
    ends = [s + d for s, d in zip(times.start, times.spans.lasted, strict=True) if s is not None]
    arrivals = [at for at in times.arrival if at is not None]
    return max(ends) - min(arrivals) if ends and arrivals else None
