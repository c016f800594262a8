"""Totals of an input: what was prefilled, reused, lost to the cache, changed; in tokens and seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triage.build import prefill_seconds
from triage.episodes import Episode, total, total_s
from triage.evidence import triggered
from triage.figures import compact, evicted_figures, stored_figures
from triage.trigger import triggers
from triage.turns import displaces, split
from triage.view import View


def totals(view: View) -> dict[str, Any]:
    """The keys that `--expect` names. A key whose value the input does not tell is left out, but for those of
    `docs/outputs.md`, which are then null. Tokens are those of the `prefill_known_for` requests that show them."""
    requests = view.requests
    spanned = [r for r in requests if r.prefilled_tokens is not None]
    parts = [split(view, e) for e in _judged(view)]
    lost = _sum([one for one, _ in parts])
    return {
        "requests": len(requests),
        "live_misses": view.reading.counts.get("live_miss", 0),
        "prefilled_tokens": _sum([r.prefilled_tokens for r in requests]),
        "reused_tokens": total(r.cached_tokens for r in spanned) if spanned or requests else 0,
        "prefill_known_for": len(spanned),
        "lost_to_cache_tokens": lost,
        "changed_text_tokens": _sum([one for _, one in parts]),
        "seconds_lost": _seconds_lost(view),
        **compact(
            {
                "seconds_lost_range": _range(view, lost),
                "prefill_seconds": prefill_seconds(view),
                "span_seconds": max(view.when.values()) - min(view.when.values())
                if len(view.when) > 1
                else None,
                "prefill_tps": view.rate,
                "prefill_tps_range": list(view.rates) if view.rates else None,
                "disk_hits": view.reading.counts.get("kv_hit", 0),
                "unrelated_prompts": len(triggered(view, "unrelated-prompt")),
                "unjudged_misses": len(view.misses) - sum(id(e) in triggers(view) for e in view.misses),
                **stored_figures(view.of("kv_stored")),
                **(evicted_figures(view.of("kv_evicted")) if view.of("kv_evicted") else {}),
            }
        ),
    }


def _sum(values: Sequence[int | None]) -> int | None:
    """Sum of what is known: 0 where there is nothing to sum, None where nothing of it is known."""
    return total(values) if values else 0


def _judged(view: View) -> list[Episode]:
    """Episodes in which something may have been lost: a miss, a state pushed out, a hit thrown away."""
    return [e for e in view.episodes if displaces(e) or e.miss is not None or e.wasted_hit]


def _seconds_lost(view: View) -> float | None:
    """Seconds of prefill that were lost to the cache, at each request's own speed."""
    losses = [(e, split(view, e)[0]) for e in _judged(view)]
    if not any(loss for _, loss in losses):
        return 0.0
    return total_s(
        s if (s := e.seconds_of(loss)) is not None else view.seconds_for(loss) for e, loss in losses if loss
    )


def _range(view: View, lost: int | None) -> list[float] | None:
    if not view.rates or not lost or view.rates[0] <= 0:
        return None
    return [round(lost / view.rates[1], 3), round(lost / view.rates[0], 3)]
