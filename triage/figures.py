"""Figures: the named quantities of a finding (mechanisms section 1), per episode and summed.

*Lost to the cache* and *changed text* always stand apart: the first is the cache's fault, the second is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from parser.event import Event
from triage.episodes import Episode, total, total_s
from triage.turns import split
from triage.view import View

#: so many episodes are listed one by one; the sums hold all of them
LISTED: Final = 12


def compact(figures: dict[str, Any]) -> dict[str, Any]:
    """Without the unknown ones; floats to the millisecond."""
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in figures.items()
        if value is not None and value != [] and value != {}
    }


def of_episode(episode: Episode, view: View) -> dict[str, Any]:
    """All section 1 figures of one episode that the input allows."""
    prompt, depth, n = episode.prompt, episode.depth, episode.reprefill
    evicted = episode.needed_eviction(view.limits.incoming_slack_tokens)
    return compact(
        {
            "request": episode.request.request,
            "live_tokens": episode.live,
            "prompt_tokens": prompt,
            "common_tokens": episode.common,
            "cached_tokens": episode.start,
            "disk_hit_tokens": episode.hit_tokens,
            "reprefill_tokens": n,
            "cache_loss_tokens": episode.cache_loss(view.limits.incoming_slack_tokens),
            "changed_tokens": episode.changed,
            "new_tokens": episode.new,
            "sampled_not_replayed_tokens": episode.not_replayed,
            "was_live_tokens": None
            if episode.live is None or depth is None
            else max(0, episode.live - depth),
            "evicted_needed_tokens": evicted.get("tokens") if evicted is not None else None,
            "reuse_percent": 100.0 * episode.start / prompt if episode.start is not None and prompt else None,
            "matched_percent": 100.0 * episode.common / prompt if episode.common and prompt else None,
            "prefill_seconds": episode.seconds,
            "prefill_rate_tps": n / episode.seconds if n and episode.seconds else None,
            "projected_seconds": episode.projected,
            "avoidable_tokens": avoidable(episode),
            "avoidable_seconds": episode.seconds_of(avoidable(episode)),
            "hit_to_prompt_tokens": _behind(prompt, episode.hit_tokens),
            "start_is_known": episode.start is not None if episode.miss is not None else None,
        }
    )


def _behind(prompt: int | None, hit: int | None) -> int | None:
    """Tokens behind what was loaded; unknown where that holds reasoning that the prompt does not (R3.32)."""
    return prompt - hit if prompt and hit and hit <= prompt else None


def sums(episodes: Sequence[Episode], view: View) -> dict[str, Any]:
    """Section 1 figures over episodes; an unknown part leaves a lower bound, said by `..._known_for`."""
    slack = view.limits.incoming_slack_tokens
    stored = [s for e in episodes for s in e.of("kv_stored")]
    parts = [split(view, e) for e in episodes]
    seconds = [e.seconds for e in episodes]
    return compact(
        {
            "episodes": len(episodes),
            "reprefill_tokens": total(e.reprefill for e in episodes),
            "cache_loss_tokens": total(e.cache_loss(slack) for e in episodes),
            "changed_tokens": total(e.changed for e in episodes),
            "lost_to_cache_tokens": total(lost for lost, _ in parts),
            "changed_text_tokens": total(changed for _, changed in parts),
            "new_tokens": total(e.new for e in episodes),
            "sampled_not_replayed_tokens": total(e.not_replayed for e in episodes),
            "prefill_seconds": total_s(seconds),
            "prefill_seconds_known_for": sum(s is not None for s in seconds) if len(episodes) > 1 else None,
            "projected_seconds": total_s(e.projected for e in episodes),
            "load_ms": total_s(h.get("load_ms") for e in episodes for h in e.of("kv_hit")),
            **stored_figures(stored),
        }
    )


def listed(episodes: Sequence[Episode], view: View) -> list[dict[str, Any]]:
    """The episodes one by one, the costliest first."""
    ordered = (
        sorted(episodes, key=lambda e: -(e.reprefill or 0)) if len(episodes) > LISTED else list(episodes)
    )
    return [of_episode(e, view) for e in ordered[:LISTED]]


def stored_figures(stores: Sequence[Event]) -> dict[str, Any]:
    """stored_mib and save_ms, in sum and by reason."""
    by_reason: dict[str, float] = {}
    for event in stores:
        if event.get("size_mib") is not None:
            reason = str(event.get("reason") or "unknown")
            by_reason[reason] = round(by_reason.get(reason, 0.0) + event.get("size_mib"), 3)
    return compact(
        {
            "stores": len(stores) or None,
            "stored_mib": total_s(e.get("size_mib") for e in stores),
            "save_ms": total_s(e.get("save_ms") for e in stores),
            "stored_mib_by_reason": by_reason if len(by_reason) > 1 else None,
        }
    )


def evicted_figures(evictions: Sequence[Event]) -> dict[str, Any]:
    """evicted_mib and lost_hits."""
    return compact(
        {
            "evictions": len(evictions),
            "evicted_tokens": total(e.get("tokens") for e in evictions),
            "evicted_mib": total_s(e.get("size_mib") for e in evictions),
            "lost_hits": total(e.get("hits") for e in evictions),
        }
    )


def lines_of(events: Iterable[Event]) -> tuple[int, ...]:
    """1-based lines of the input, in order, each once."""
    return tuple(sorted({e.line for e in events}))


def avoidable(episode: Episode) -> int | None:
    """n - max(0, P - L): what a replay that differs costs above the new text (section 1)."""
    n = episode.reprefill
    if n is None:
        if episode.prompt is None:
            return None
        n = episode.prompt
    return max(0, n - (episode.new or 0))


def cost_of(
    episodes: Sequence[Episode], view: View, measure: Callable[[Episode], int | None] = avoidable
) -> tuple[int | None, float | None]:
    """avoidable_tokens and avoidable_seconds over episodes; seconds by the log's own speed where it must be."""
    tokens = [(e, measure(e)) for e in episodes]
    seconds = [
        s if (s := e.seconds_of(t)) is not None else view.seconds_for(t) for e, t in tokens if t is not None
    ]
    return total(t for _, t in tokens), total_s(seconds)


def cost_figures(tokens: int | None, seconds: float | None, view: View) -> dict[str, Any]:
    """avoidable_tokens, avoidable_seconds and their range at the log's slowest and fastest prefill."""
    span = None
    if tokens is not None and view.rates and view.rates[0] > 0:
        low, high = tokens / view.rates[1], tokens / view.rates[0]
        stored = max(0.0, (seconds or 0.0) - high)  # saving and loading take what they take at any speed
        span = [round(min(low + stored, seconds or low), 3), round(high + stored, 3)]
    return compact(
        {"avoidable_tokens": tokens, "avoidable_seconds": seconds, "avoidable_seconds_range": span}
    )
