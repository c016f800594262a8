"""alignment-loss: warm starts begin where the alignment cut the cold checkpoint (4.5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parser.event import Event
from triage.episodes import Episode, total, total_s
from triage.evidence import event_sign, plural, triggers_of
from triage.fallback import aligned_stores
from triage.figures import compact, cost_of
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def _warm(view: View, stores: dict[int, Event]) -> list[tuple[Episode, Event, int]]:
    """Hits at exactly the cut length with n close to what was cut off."""
    found = []
    for episode in view.episodes:
        depth = episode.depth
        store = stores.get(depth or -1)
        n = episode.prefilled if episode.prefilled is not None else episode.reprefill
        if store is None or n is None or (episode.hit is None and not episode.start):
            continue
        first = episode.hit.line if episode.hit is not None else episode.request.line
        if store.line < first and abs(n - int(store.get("trimmed"))) <= view.limits.trim_slack_tokens:
            found.append((episode, store, n))
    return found


def _figures(warm: list[tuple[Episode, Event, int]]) -> dict[str, Any]:
    shares = [
        100.0 * e.seconds / e.request.total_s
        for e, _, _ in warm
        if e.seconds is not None and e.request.total_s
    ]
    reuse = [
        100.0 * e.start / e.request.prompt_tokens for e, _, _ in warm if e.start and e.request.prompt_tokens
    ]
    return compact(
        {
            "warm_starts": len(warm),
            "alignment_loss_tokens": warm[0][2],
            "alignment_loss_tokens_sum": sum(n for _, _, n in warm),
            "trimmed_tokens": warm[0][1].get("trimmed"),
            "prefill_seconds": total_s(e.seconds for e, _, _ in warm),
            "reuse_percent": reuse[0] if reuse else None,
            "share_of_latency_percent": max(shares, default=None),
        }
    )


def detect(view: View) -> Iterator[Sign]:
    """A cold store with `trimmed` > 0 on a multiple of A, and warm hits at exactly that length (3.2.4)."""
    warm = _warm(view, aligned_stores(view))
    if not warm:
        return
    episodes = [e for e, _, _ in warm]
    shares = {id(e): n for e, _, n in warm}
    tokens, seconds = cost_of(episodes, view, lambda e: shares[id(e)])
    lines = [x for e, store, _ in warm for x in (*e.events, store)]
    yield event_sign(
        f"{plural(len(warm), 'warm start')} began at the alignment, {total(n for _, _, n in warm)} tokens short of the prompt "
        "that was stored",
        lines,
        _figures(warm),
        episodes=episodes,
        triggers=triggers_of(view, episodes),
        tokens=tokens,
        seconds=seconds,
    )


MECHANISM = Mechanism(
    id="alignment-loss",
    title="The alignment cuts the cold checkpoint short",
    family="disk",
    grades=("log",),
    severity="low",
    evidence="a cold store with `trimmed` > 0 and tokens a multiple of A; warm hits at exactly that length, n about trimmed each time",
    not_if="tokens is no multiple of A (a cut before the first user message, wanted); trimmed < 64",
    user="a smaller --kv-cache-boundary-align-tokens",
    server="cut at message borders",
    detect=detect,
    upstream=(66,),
    replay=Replay("align = 1", {"kv_cache_boundary_align_tokens": "1"}),
    fallback=True,
    repeats=True,
)
