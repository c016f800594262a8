"""Outcome: what a server (the observed one, or a model of one) did with a workload. `docs/outputs.md`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreMade:
    """A checkpoint written for a request: length in tokens and why (cold, continued, evict, shutdown)."""

    tokens: int
    reason: str


@dataclass(frozen=True, slots=True)
class Served:
    """What happened to one request. Tokens and seconds; `slot` is a 0-based label."""

    request: int
    slot: int | None
    source: str | None
    cached_tokens: int | None
    prompt_tokens: int | None
    prefilled_tokens: int | None
    live_before: int | None
    common: int | None
    evicted_live_tokens: int | None
    disk_hit_tokens: int | None
    stores: tuple[StoreMade, ...]
    evicted_files: int
    start_s: float | None
    prefill_s: float | None
    latency_s: float | None
    #: every idle slot's score as the scheduler saw it, by slot (None: ineligible); empty for an observed outcome
    scores: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over an outcome; the keys are what `--expect` names."""

    requests: int
    live_misses: int
    evict_stores: int
    disk_hits: int
    evictions: int
    prefilled_tokens: int
    loaded_tokens: int
    wall_s: float | None
    latency_s_sum: float | None
    latency_s_p50: float | None
    latency_s_p95: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Requests in order of their start, and their totals."""

    requests: tuple[Served, ...]
    totals: Totals
