"""From finished jobs to an Outcome."""

from __future__ import annotations

import math
from collections.abc import Sequence

from replay.outcome import Outcome, Served, Totals
from replay.session import Job


def outcome_of(jobs: Sequence[Job], evictions: int) -> Outcome:
    """The Outcome of a replay; `evictions` counts deleted files, also those of a start or a shutdown."""
    served = sorted((_served(job) for job in jobs), key=_start)
    return Outcome(tuple(served), _totals(jobs, served, evictions))


def _start(row: Served) -> tuple[float, int]:
    return (math.inf if row.start_s is None else row.start_s, row.request)


def _served(job: Job) -> Served:
    asked, ran = job.asked, job.effective is not None
    return Served(
        request=asked.request,
        slot=job.slot,
        source=job.source,
        cached_tokens=job.cached if ran else None,
        prompt_tokens=job.effective_size if ran else None,
        prefilled_tokens=job.prefilled if ran else None,
        live_before=job.live_before if ran else None,
        common=job.common if ran else None,
        evicted_live_tokens=job.evicted_live if ran else None,
        disk_hit_tokens=job.loaded if ran else None,
        stores=tuple(job.stores),
        evicted_files=job.evicted_files,
        start_s=job.start_s,
        prefill_s=job.prefill_s,
        latency_s=None if job.end_s is None else job.end_s - job.sent_s,
        scores=job.scores,
    )


def _totals(jobs: Sequence[Job], served: Sequence[Served], evictions: int) -> Totals:
    latencies = sorted(row.latency_s for row in served if row.latency_s is not None)
    ended = [job for job in jobs if job.end_s is not None]
    wall = max((job.end_s or 0.0) for job in ended) - min(job.sent_s for job in ended) if ended else None
    return Totals(
        requests=len(served),
        live_misses=sum(bool(row.evicted_live_tokens) for row in served),
        evict_stores=sum(made.reason == "evict" for row in served for made in row.stores),
        disk_hits=sum(bool(row.disk_hit_tokens) for row in served),
        evictions=evictions,
        prefilled_tokens=sum(row.prefilled_tokens or 0 for row in served),
        loaded_tokens=sum(row.disk_hit_tokens or 0 for row in served),
        wall_s=wall,
        latency_s_sum=math.fsum(latencies) if latencies else None,
        latency_s_p50=rank(latencies, 0.50),
        latency_s_p95=rank(latencies, 0.95),
    )


def rank(ordered: Sequence[float], share: float) -> float | None:
    """The value below which `share` of the ordered values lie, interpolated; None of none."""
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
