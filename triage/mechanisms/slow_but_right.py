"""slow-but-right: everything reusable was reused; the time is real work (4.9)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Any

from parser.event import Event
from triage.episodes import Episode, total, total_s
from triage.evidence import CONFIDENCE, event_sign, plural
from triage.figures import compact
from triage.health import cold_again, judged_right
from triage.mechanism import INFORMATION, Mechanism, Sign
from triage.view import View


def _seconds(episode: Episode, view: View) -> float | None:
    """Stated seconds, else n at the request's own or the log's average."""
    if episode.seconds is not None:
        return episode.seconds
    if episode.request.finish is not None or not episode.prefilled:
        return None
    return episode.projected if episode.projected is not None else view.seconds_for(episode.prefilled)


def slow_prefills(view: View) -> list[tuple[Episode, float]]:
    """Prefills of really new text that take a minute or more (or will, at the log's own speed)."""
    found = []
    for episode in judged_right(view):
        seconds = _seconds(episode, view)
        if seconds is not None and seconds >= view.limits.slow_prefill_s:
            found.append((episode, seconds))
    return found


def batch_figures(view: View) -> dict[str, Any]:
    """Rates of decode steps at count=1 and count>1."""
    steps = [e for e in view.steps if e.get("count") and e.get("elapsed_ms")]
    single = [e.get("elapsed_ms") for e in steps if e.get("count") == 1]
    most = max((e.get("count") for e in steps), default=1)
    many = [e.get("elapsed_ms") for e in steps if e.get("count") == most and most > 1]
    return compact(
        {
            "streams": most if many else None,
            "single_rate_tps": 1000 / median(single) if single else None,
            "aggregate_rate_tps": 1000 * most / median(many) if many else None,
            "step_ms_single": median(single) if single else None,
            "step_ms_many": median(many) if many else None,
        }
    )


def slow_steps(view: View) -> bool:
    """A decode step of several streams takes at least twice as long as one of a single stream."""
    found = batch_figures(view)
    one, many = found.get("step_ms_single"), found.get("step_ms_many")
    return bool(one and many and many >= view.limits.slow_batch_factor * one)


def _lines(found: list[tuple[Episode, float]], view: View) -> list[Event]:
    kinds = ("prompt_start", "prompt_done", "finish", "kv_hit")
    return [e for ep, _ in found for e in ep.events if e.kind in kinds] + (
        view.steps[:8] if not found else []
    )


def detect(view: View) -> Iterator[Sign]:
    """S = L' or a first prompt, n really new, and rate or amount explains the time."""
    found, steps = slow_prefills(view), slow_steps(view)
    if not found and not steps:
        return
    episodes = [e for e, _ in found]
    projected = [s for e, s in found if e.seconds is None]
    known = [(e.prefilled, e.seconds) for e in judged_right(view) if e.prefilled and e.seconds]
    rates = [n / s for n, s in known if n and s]
    reuse = [100.0 * e.start / e.prompt for e in episodes if e.start and e.prompt]
    later = [e for e in judged_right(view) if e.start]
    figures = compact(
        {
            "slow_prefills": len(found) or None,
            "prefill_tokens": total(e.prefilled for e in episodes),
            "new_tokens": [e.prefilled for e in later][:12] or None,
            "frontier_tokens": [e.start for e in later][:12] or None,
            "prefill_seconds": total_s(e.seconds for e in episodes),
            "prefill_rate_tps": max(rates) if rates else None,
            "slowest_rate_tps": min(rates) if rates else None,
            "projected_seconds": total_s(projected),
            "reuse_percent": max(reuse, default=None),
            **batch_figures(view),
        }
    )
    again = cold_again(view, episodes)
    sign = event_sign(
        _text(len(found), len(again)), _lines(found, view), figures, episodes=episodes, tokens=0
    )
    yield replace(sign, grade="possible", confidence=CONFIDENCE["possible"]) if again else sign


def _text(found: int, again: int) -> str:
    if not found:
        return "several streams share the machine: nothing was lost to the cache"
    if not again:
        takes = "takes its" if found == 1 else "take their"
        return f"{plural(found, 'prefill')} of really new text {takes} time: nothing was lost to the cache"
    return (
        f"{plural(found, 'prefill')} take their time and no line shows a loss; but {again} of them start from zero "
        "behind a prompt of nearly the same length: the `live kv cache miss` lines would tell why"
    )


MECHANISM = Mechanism(
    id="slow-but-right",
    title="Slow, and nothing is wrong with the cache",
    family="none",
    grades=("log",),
    severity="none",
    evidence="S = L' (everything reusable was reused) or a first prompt, n really new, and the rate or the amount explains the time: "
    "big tool outputs, slow hardware, several streams at once, streaming of experts",
    not_if="S < L' in the same slot; small suffixes have low rates by nature",
    user="faster hardware, smaller outputs",
    server="nothing to do",
    detect=detect,
    place=INFORMATION,
)
