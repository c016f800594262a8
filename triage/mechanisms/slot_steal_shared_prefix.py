"""slot-steal-shared-prefix: conversations with one common head push each other out while a slot is free (4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from triage.episodes import Episode, total
from triage.evidence import plural, trigger_sign
from triage.figures import compact
from triage.mechanism import Mechanism, Replay, Sign
from triage.turns import alternations, owed, switch_seconds
from triage.view import View


def switch_figures(episodes: Sequence[Episode], view: View) -> dict[str, Any]:
    """Figures of switches between conversations: value of C, tokens between H and P, seconds of the switches."""
    events = [event for e in episodes for event in e.events]
    waits = [
        start - missed
        for e in episodes
        if (missed := view.at(e.miss)) is not None
        and (start := view.at(next(iter(e.of("prompt_start")), None))) is not None
    ]
    groups = [g for g in alternations(view) if any(m in episodes for m in g.members)]
    return compact(
        {
            "switches": len(episodes),
            "common_tokens": max((e.common for e in episodes if e.common is not None), default=None),
            "conversations": max((g.conversations for g in groups), default=None),
            "restored_tokens": total(e.hit_tokens for e in episodes),
            "hit_to_prompt_tokens": total(
                e.prompt - e.hit_tokens
                for e in episodes
                if e.prompt and e.hit_tokens and e.prompt > e.hit_tokens
            ),
            "lost_live_tokens": total(e.live for e in episodes),
            "switch_seconds": sum(waits) if waits else None,
            "span_seconds": view.span_s(events),
        }
    )


def _explain(episodes: list[Episode], figures: dict[str, Any]) -> str:
    return (
        f"{plural(len(episodes), 'request')} took a slot that held another conversation; they share only the "
        f"first {figures.get('common_tokens', 'few')} tokens"
    )


def detect(view: View) -> Iterator[Sign]:
    """The same C >= 64 recurs while conversations take turns and a slot is free (3.1.5)."""
    severity = "medium" if view.disk_in_use else "high"
    yield from trigger_sign(
        view,
        "slot-steal-shared-prefix",
        _explain,
        extra=lambda e: switch_figures(e, view),
        measure=lambda e: owed(view, e),
        overhead=lambda e: switch_seconds(view, e),
        severity=severity,
    )


MECHANISM = Mechanism(
    id="slot-steal-shared-prefix",
    title="A request takes the slot of another conversation although a slot is free",
    family="slots",
    grades=("config", "turns"),
    severity="high",
    evidence="the same C >= 1024 in two or more misses with clearly different L, an evict store of L each time, a "
    "later hit with H = an earlier L, more than one slot configured",
    not_if="one growing conversation (client-transient-tail); every slot taken (too-few-slots); C = P",
    user="use a newer server; more slots do not help with the old choice; keep the disk cache on and large",
    server="choose the slot by what it can really reuse, and an empty slot before a live one",
    detect=detect,
    upstream=(765, 1069),
    replay=Replay("the same requests with the reuse-aware choice", {"scheduler": "reuse-aware"}),
    trigger=True,
)
