"""client-transient-tail: a block that the client adds each turn and takes out again on the next (4.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triage.episodes import Episode, total
from triage.evidence import plural, trigger_sign
from triage.figures import avoidable
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def _explain(episodes: list[Episode], figures: dict[str, Any]) -> str:
    pinned = figures.get("pinned_common_tokens")
    where = (
        f"at {pinned} tokens"
        if pinned
        else f"{figures.get('distance_tokens')} tokens before the end of the last prompt"
    )
    return f"{plural(len(episodes), 'turn')} of one conversation part from the live state {where}"


def detect(view: View) -> Iterator[Sign]:
    """C pinned over three or more misses, or the same distance below P' turn after turn (3.1.5, 3.1.8)."""

    def extra(episodes: list[Episode]) -> dict[str, Any]:
        """How many turns part at the same place, and how far before the end."""
        commons = [e.common for e in episodes if e.common is not None]
        pinned = max(commons) - min(commons) <= 2 * view.limits.same_common_tokens if commons else False
        distances = [e.previous.prompt - e.common for e in episodes if e.previous and e.common is not None]
        return {
            "turns": len(episodes),
            "pinned_common_tokens": commons[0] if pinned and commons else None,
            "distance_tokens": min(distances) if distances and not pinned else None,
            "all_changed_tokens": total(e.changed for e in view.misses),
        }

    yield from trigger_sign(view, "client-transient-tail", _explain, extra=extra, measure=avoidable)


MECHANISM = Mechanism(
    id="client-transient-tail",
    title="The client adds a block each turn and removes it on the next",
    family="client",
    grades=("turns",),
    severity="medium",
    evidence="C pinned (within 2) over three or more misses while P varies, or C below P' by about the same distance turn after turn",
    not_if="L and P come from different conversations (slot-steal-shared-prefix); the same file is read again and again "
    "without a finished prompt (poisoned-checkpoint)",
    user="switch the block (counter, environment, reminder) off in the client, or move it behind the history",
    server="remember the transcript without its transient spans",
    detect=detect,
    upstream=(364, 378),
    replay=Replay("C = P' for these turns", {"reuse": "rewind-to-common"}),
    trigger=True,
)
