"""cold-max-below-prompts: prompts above `--kv-cache-cold-max-tokens` get no cold checkpoint (4.5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from triage.episodes import Episode, total_s
from triage.evidence import event_sign, plural, triggers_of
from triage.fallback import fallbacks
from triage.figures import compact, lines_of
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View

#: the server's own default (cache-behaviour R4.2)
COLD_MAX: Final = 30_000


def cold_prompts(view: View) -> list[tuple[Episode, int]]:
    """Cold prompts above the limit in runs with a disk cache, without a cold store or a hit; with their limit."""
    found, explained = [], fallbacks(view)
    for episode in view.episodes:
        if id(episode) in explained:
            continue
        limit = view.config(episode, "kv_cache_cold_max_tokens")
        limit = COLD_MAX if limit is None else limit
        prompt = episode.prompt
        if prompt is None or prompt <= limit or episode.depth or episode.hit is not None:
            continue
        if view.images_known(episode):
            continue  # R3.13: a request with images is never stored cold, whatever the limit
        if view.disk_configured(episode) and not any(
            e.get("reason") == "cold" for e in episode.of("kv_stored")
        ):
            found.append((episode, limit))
    return found


def _stated_seconds(view: View) -> list[float]:
    """Prefill seconds of lines that have lost their span: the costliest is the cold one."""
    return sorted(
        (e.get("elapsed_s") for e in view.of("prompt_done") if e.get("elapsed_s") is not None), reverse=True
    )


def _disk_useless(view: View) -> bool:
    """No cold store, no useful hit; a server that says the cache stays unused is another matter."""
    if any(e.get("reason") == "cold" for e in view.of("kv_stored")):
        return False
    if view.of("startup", "no_checkpoints", "kv_disk_failed"):
        return False
    return not view.of("kv_hit")


def detect(view: View) -> Iterator[Sign]:
    """Disk cache on (start line), prompts longer than cold_max, no cold store, no hit."""
    found = cold_prompts(view)
    if not found or not _disk_useless(view):
        return
    episodes, limit = [e for e, _ in found], found[0][1]
    stated = _stated_seconds(view)
    known = [e.seconds for e in episodes if e.seconds is not None]
    cold = total_s(known) if known else (stated[0] if stated else None)
    tokens = sum(e.reprefill if e.reprefill is not None else e.prompt or 0 for e in episodes)
    figures = {
        "prompts_above_limit": len(episodes),
        "cold_max_tokens": limit,
        "prompt_tokens": max(e.prompt or 0 for e in episodes),
        "cold_prefill_seconds": cold,
        "prefill_seconds": total_s(stated) if stated else None,
        "avoidable_tokens": tokens,
    }
    lines = [
        e for ep in episodes for e in ep.events if e.kind in ("live_miss", "prompt_start", "prompt_done")
    ]
    start = view.of("startup", "kv_disk")
    yield event_sign(
        f"{plural(len(episodes), 'prompt')} longer than cold_max={limit}: no cold checkpoint is written, and none of "
        "them finds one",
        start + lines,
        compact(figures),
        episodes=episodes,
        triggers=triggers_of(view, episodes),
        tokens=tokens,
        seconds=cold if cold is not None else view.seconds_for(tokens),
        grade="config" if start or lines_of(lines) else "possible",
    )


MECHANISM = Mechanism(
    id="cold-max-below-prompts",
    title="The cold limit lies below the prompts",
    family="disk",
    grades=("config",),
    severity="high",
    evidence="disk cache on (start line), prompts longer than cold_max (30000 if not given), none of them has a `reason=cold` "
    "store, no hits",
    not_if="no disk cache; a cold store exists; the prompts are shorter; continued stores give hits of useful depth",
    user="--kv-cache-cold-max-tokens of at least the context",
    server="say in the log when a cold store is skipped for length",
    detect=detect,
    upstream=(392,),
    replay=Replay("cold_max = ctx", {"kv_cache_cold_max_tokens": "ctx"}),
    fallback=True,
    repeats=True,
)
