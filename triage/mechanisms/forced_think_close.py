"""forced-think-close: the server closed a think block or repaired a call, and the next turn does not fit (4.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triage.episodes import Episode
from triage.evidence import plural, trigger_sign
from triage.mechanism import Mechanism, Replay, Sign
from triage.trigger import REPAIRS
from triage.view import View


def _explain(episodes: list[Episode], figures: dict[str, Any]) -> str:
    return f"{plural(len(episodes), 'turn')} after a forced think close or a repaired call could not continue the live state"


def detect(view: View) -> Iterator[Sign]:
    """A repair line since the previous prompt and C = P' + 0...16 (3.1.4)."""

    def extra(episodes: list[Episode]) -> dict[str, Any]:
        """The repairs before each miss, and how long each took."""
        repairs = [r for e in episodes for r in e.before if r.kind == "tool_repair" and r.rule in REPAIRS]
        waits = [
            view.span_s([r, e.miss])
            for e in episodes
            for r in e.before
            if r in repairs and e.miss is not None
        ]
        matched = [100.0 * e.common / e.prompt for e in episodes if e.common and e.prompt]
        return {
            "repairs": len(repairs),
            "repair_lines": sorted({r.line for r in repairs}),
            "seconds_to_miss": next((w for w in waits if w is not None), None),
            "matched_percent": round(min(matched), 3) if matched else None,
        }

    yield from trigger_sign(view, "forced-think-close", _explain, extra=extra, turn_before=True)


MECHANISM = Mechanism(
    id="forced-think-close",
    title="The turn before was repaired by the server",
    family="reply",
    grades=("log",),
    severity="medium",
    evidence="a line that the server closed an unclosed think block or repaired a call during the previous turn, then a miss with "
    "C = P' + 0...16",
    not_if="no such line; the turn after it continues live",
    user="lower the chance by settings of the client; nothing else helps",
    server="rewrite the live state to the canonical form after such a recovery",
    detect=detect,
    upstream=(167, 273, 318),
    replay=Replay(
        "at least: a rewind to where the reply parts (a binding would keep the reply as well)",
        {"reuse": "rewind-to-common"},
    ),
    trigger=True,
)
