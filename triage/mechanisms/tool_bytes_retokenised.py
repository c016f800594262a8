"""tool-bytes-retokenised: a tool call comes back in other tokens than were sampled (4.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triage.episodes import Episode
from triage.evidence import plural, trigger_sign
from triage.figures import avoidable, compact
from triage.mechanism import Mechanism, Replay, Sign
from triage.mechanisms.reasoning_retokenised import was_live
from triage.view import View


def _explain(episodes: list[Episode], figures: dict[str, Any]) -> str:
    return f"{plural(len(episodes), 'tool turn')} came back rendered differently and nothing binds the turn by its call id"


def detect(view: View) -> Iterator[Sign]:
    """C = P' after finish=tool_calls with P >= L (3.1.7)."""

    def extra(episodes: list[Episode]) -> dict[str, Any]:
        starts = {e.start for e in episodes if e.start is not None}
        return compact(
            {
                "was_live_tokens": was_live(episodes),
                "restart_tokens": starts.pop() if len(starts) == 1 else None,
                "avoidable_tokens_each": [avoidable(e) for e in episodes][:12] if len(episodes) > 1 else None,
            }
        )

    yield from trigger_sign(view, "tool-bytes-retokenised", _explain, extra=extra, turn_before=True)


MECHANISM = Mechanism(
    id="tool-bytes-retokenised",
    title="A tool call comes back in other tokens",
    family="reply",
    grades=("turns", "trace"),
    severity="high",
    evidence="C = P' after finish=tool_calls with P >= L; it repeats on every tool turn and the restart point S stays while P grows",
    not_if="a live continuation by tool-output ids; P < L; C = P",
    user="the Messages or Responses endpoint, exact tool replay on",
    server="bind by call id, a visible checkpoint after tool turns",
    detect=detect,
    upstream=(609, 611, 489, 1093),
    replay=Replay(
        "at least: a rewind to where the reply parts (a binding would keep the reply as well)",
        {"reuse": "rewind-to-common"},
    ),
    trigger=True,
)
