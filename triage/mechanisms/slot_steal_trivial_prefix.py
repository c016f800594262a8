"""slot-steal-trivial-prefix: the head of the chat template alone wins a slot from a live conversation (4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triage.episodes import Episode, total
from triage.evidence import event_sign, plural, trigger_sign
from triage.mechanism import Mechanism, Replay, Sign
from triage.mechanisms.slot_steal_shared_prefix import switch_figures
from triage.turns import alternations, owed, switch_seconds
from triage.view import View


def _owner_pays(view: View, episodes: list[Episode]) -> int | None:
    """Re-prefill of the owners' next requests, where they come back in the log."""
    back = [
        r.episode for g in alternations(view) for r in g.returns if any(r.displaced is e for e in episodes)
    ]
    return total(e.reprefill for e in back)


def _explain(episodes: list[Episode], figures: dict[str, Any]) -> str:
    lost = figures.get("lost_live_tokens")
    return f"{plural(len(episodes), 'request')} of another conversation pushed out a live state: {lost} tokens lost"


def detect(view: View) -> Iterator[Sign]:
    """C < 64, several slots, a live state is overwritten (3.1.3)."""

    def extra(episodes: list[Episode]) -> dict[str, Any]:
        """What the switches cost, what the owner pays, whether the server did it on purpose."""
        return {
            **switch_figures(episodes, view),
            "owner_reprefill_tokens": _owner_pays(view, episodes),
            "done_on_purpose": any(e.of("slot_evicting") for e in episodes) or None,
        }

    found = list(
        trigger_sign(
            view,
            "slot-steal-trivial-prefix",
            _explain,
            extra=extra,
            measure=lambda e: owed(view, e),
            overhead=lambda e: switch_seconds(view, e),
        )
    )
    yield from found or _announced(view)


def _announced(view: View) -> Iterator[Sign]:
    """The router's own line, where the miss behind it is not in the input."""
    owned = {e.seq for ep in view.misses for e in ep.events}
    lines = [e for e in view.of("slot_evicting") if e.seq not in owned and e.get("state") != "stale"]
    if lines:
        lost = total(e.get("tokens") for e in lines)
        yield event_sign(
            f"the server says that it gave up live state of {lost} tokens for a request that reuses nothing: all slots were held",
            lines,
            {"lost_live_tokens": lost, "slots_evicted": len(lines)},
            tokens=lost,
            grade="possible",
        )


MECHANISM = Mechanism(
    id="slot-steal-trivial-prefix",
    title="The start of the chat template is enough to take another conversation's slot",
    family="slots",
    grades=("config",),
    severity="high",
    evidence="C < 64, several slots, a live state of thousands of tokens is overwritten, usually with an evict store of L",
    not_if="one slot only (side-calls-on-one-slot); all slots in use and the victim idle for an hour or more; C = 0",
    user="send helper calls to another server, or use a newer server",
    server="a shared template head is worth less than an empty slot",
    detect=detect,
    upstream=(765,),
    replay=Replay("prefixes below 64 tokens score under an empty slot", {"scheduler": "min-prefix:64"}),
    trigger=True,
)
