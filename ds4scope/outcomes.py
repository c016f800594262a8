"""Outcomes as JSON objects and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from replay.outcome import Outcome, Served

#: totals in the order of tables
TOTALS: Final = (
    "live_misses", "evict_stores", "disk_hits", "evictions", "prefilled_tokens", "loaded_tokens",
    "wall_s", "latency_s_sum", "latency_s_p50", "latency_s_p95",
)  # fmt: skip
_SECONDS: Final = ("start_s", "prefill_s", "latency_s")


def totals_json(outcome: Outcome, *, timed: bool = True) -> dict[str, Any]:
    """The `totals` of `docs/outputs.md`; seconds are null where nothing says how fast the machine is, prefilled
    tokens where no request of an excerpt shows its own."""
    totals = {
        name: getattr(outcome.totals, name) if timed or not name.startswith(("wall", "latency")) else None
        for name in ("requests", *TOTALS)
    }
    if outcome.requests and all(row.prefilled_tokens is None for row in outcome.requests):
        totals["prefilled_tokens"] = None
    return totals


def outcome_json(outcome: Outcome, *, timed: bool = True) -> dict[str, Any]:
    """One outcome."""
    return {
        "requests": [served_json(row, timed=timed) for row in outcome.requests],
        "totals": totals_json(outcome, timed=timed),
    }


def served_json(row: Served, *, timed: bool = True) -> dict[str, Any]:
    """One request of an outcome."""
    plain = {
        name: getattr(row, name)
        for name in (
            "request", "slot", "source", "cached_tokens", "prompt_tokens", "prefilled_tokens", "live_before",
            "common", "evicted_live_tokens", "disk_hit_tokens",
        )
    }  # fmt: skip
    plain["stores"] = [{"tokens": made.tokens, "reason": made.reason} for made in row.stores]
    plain["evicted_files"] = row.evicted_files
    return plain | {name: getattr(row, name) if timed else None for name in _SECONDS}


def totals_rows(outcomes: Sequence[tuple[Outcome, bool]]) -> list[list[Any]]:
    """One row a total, one column an outcome (and whether its seconds mean something)."""
    columns = [totals_json(outcome, timed=timed) for outcome, timed in outcomes]
    return [[name, *(column[name] for column in columns)] for name in ("requests", *TOTALS)]
