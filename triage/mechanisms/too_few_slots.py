"""too-few-slots: more conversations take turns than there are slots (4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triage.episodes import Episode
from triage.evidence import plural, trigger_sign
from triage.mechanism import Mechanism, Replay, Sign
from triage.mechanisms.slot_steal_shared_prefix import switch_figures
from triage.turns import owed, switch_seconds
from triage.view import View


def detect(view: View) -> Iterator[Sign]:
    """Every slot is held by a conversation that returns (3.1.5)."""

    def extra(episodes: list[Episode]) -> dict[str, Any]:
        """What the switches cost, and how many conversations share the slots."""
        slots = view.slots(episodes[0])
        found = switch_figures(episodes, view)
        found["conversations"] = max(found.get("conversations", 2), (slots or 1) + 1)
        return {**found, "slots": slots}

    def explain(episodes: list[Episode], figures: dict[str, Any]) -> str:
        return (
            f"{figures.get('conversations')} conversations share {_slots(figures.get('slots'))}, "
            f"{plural(len(episodes), 'switch', 'switches')}, each pushes a live state out"
        )

    severity = "medium" if view.disk_in_use else "high"
    yield from trigger_sign(
        view,
        "too-few-slots",
        explain,
        extra=extra,
        severity=severity,
        measure=lambda e: owed(view, e),
        overhead=lambda e: switch_seconds(view, e),
    )


def _slots(slots: int | None) -> str:
    return plural(slots, "slot") if slots is not None else "too few slots"


MECHANISM = Mechanism(
    id="too-few-slots",
    title="More conversations than slots",
    family="slots",
    grades=("turns", "config"),
    severity="medium",
    evidence="more conversations alternate than slots exist; misses whose L comes back as a later H or cold; every slot "
    "is held by a conversation that returns",
    not_if="a slot stays unused (slot-steal-*); the other requests are small and unrelated (side-calls-on-one-slot)",
    user="as many slots as conversations if memory allows (the context-buffer line says what one costs), a larger disk budget",
    server="nothing wrong; cheaper switches help",
    detect=detect,
    upstream=(930,),
    replay=Replay(
        "as many slots as conversations, and the reuse-aware choice (the old one sends them all to one slot)",
        {"slots": "conversations", "scheduler": "reuse-aware"},
    ),
    trigger=True,
)
