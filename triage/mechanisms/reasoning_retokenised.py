"""reasoning-retokenised: the reply comes back without its reasoning, or in other tokens (4.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triage.episodes import Episode, total
from triage.evidence import plural, trigger_sign
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def was_live(episodes: list[Episode]) -> int | None:
    """Of the re-prefill, what was live a moment before: L - S."""
    return total(
        max(0, e.live - (e.depth or 0)) for e in episodes if e.live is not None and e.depth is not None
    )


def _explain(episodes: list[Episode], figures: dict[str, Any]) -> str:
    return f"{plural(len(episodes), 'turn')} did not send the sampled reply back as it was: the whole conversation is read again"


def detect(view: View) -> Iterator[Sign]:
    """C = P' after finish=stop, or with P < L (3.1.7)."""

    def extra(episodes: list[Episode]) -> dict[str, Any]:
        """What had been live, what the disk gave, what had been generated before."""
        return {
            "was_live_tokens": was_live(episodes),
            "disk_hit_tokens": total(e.hit_tokens for e in episodes),
            "previous_generated_tokens": total(
                e.previous.generated for e in episodes if e.previous is not None
            ),
        }

    yield from trigger_sign(view, "reasoning-retokenised", _explain, extra=extra, turn_before=True)


MECHANISM = Mechanism(
    id="reasoning-retokenised",
    title="The reply comes back without its reasoning",
    family="reply",
    grades=("turns", "trace"),
    severity="high",
    evidence="C = P' (-1 to +8), L-C about gen'; the previous turn ended with finish=stop, or P < L; no continuation line",
    not_if="C < P' by more than 16; a continuation line precedes the prompt; the previous turn was a tool call and P >= L",
    user="a client that sends the reasoning back unchanged, or an endpoint with a live binding (Responses, Messages)",
    server="keep a client-visible key for the live state",
    detect=detect,
    upstream=(62, 489, 709, 714, 789, 856, 1058, 1093),
    replay=Replay(
        "at least: a rewind to where the reply parts (a binding would keep the reply as well)",
        {"reuse": "rewind-to-common"},
    ),
    trigger=True,
)
