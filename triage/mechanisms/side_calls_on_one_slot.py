"""side-calls-on-one-slot: small helper requests push the conversation out of the only slot (4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triage.episodes import Episode, total, total_s
from triage.evidence import plural, trigger_sign
from triage.mechanism import Mechanism, Replay, Sign
from triage.mechanisms.slot_steal_shared_prefix import switch_figures
from triage.turns import owed, switch_seconds
from triage.view import View


def waited(view: View, episodes: list[Episode]) -> int:
    """Side calls whose `prompt start` has the stamp at which another request ended: they waited for it."""
    ends = {view.at(e) for e in view.of("finish")} - {None}
    starts = [view.at(next(iter(e.of("prompt_start")), None)) for e in episodes]
    return sum(start in ends for start in starts if start is not None)


def _explain(episodes: list[Episode], figures: dict[str, Any]) -> str:
    return (
        f"{plural(len(episodes), 'request')} of another kind took the slot of a conversation of up to "
        f"{max(e.live or 0 for e in episodes)} tokens"
    )


def detect(view: View) -> Iterator[Sign]:
    """One slot, requests of two sizes alternate, the big conversation pays afterwards (3.1.3)."""

    def extra(episodes: list[Episode]) -> dict[str, Any]:
        """What the switches cost, and the small prompts that made them."""
        small = [e for e in episodes if (e.prompt or 0) < (e.live or 0)]
        return {
            **switch_figures(episodes, view),
            "lost_live_tokens": total(e.live for e in small) or total(e.live for e in episodes),
            "side_call_tokens": total(e.prompt for e in small),
            "side_call_seconds": total_s(e.seconds for e in small),
            "side_calls_that_waited": waited(view, small) or None,
        }

    yield from trigger_sign(
        view,
        "side-calls-on-one-slot",
        _explain,
        extra=extra,
        measure=lambda e: owed(view, e),
        overhead=lambda e: switch_seconds(view, e),
        cheap=False,
    )


MECHANISM = Mechanism(
    id="side-calls-on-one-slot",
    title="Helper calls push the conversation out of the only slot",
    family="slots",
    grades=("turns", "config"),
    severity="high",
    evidence="one slot; requests of two sizes alternate, the small one often without TOOLS, C of 1 to a few hundred; its "
    "prompt start follows another request's end in the same second; the big conversation re-prefills afterwards",
    not_if="the displaced conversation never returns (unrelated-prompt); the disk heals the switch",
    user="turn off titles and summaries of the client, add a second slot, or send small calls to another server",
    server="resident sessions apart from active requests; choose the slot by reuse",
    detect=detect,
    upstream=(930, 765),
    replay=Replay(
        "two slots, and the reuse-aware choice (the old one sends small calls to the held slot)",
        {"slots": "2", "scheduler": "reuse-aware"},
    ),
    trigger=True,
)
