"""unrelated-prompt: a new chat or a benchmark; nothing that a cache could have kept (4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triage.episodes import Episode
from triage.evidence import plural, trigger_sign
from triage.mechanism import INFORMATION, Mechanism, Replay, Sign
from triage.view import View


def _explain(episodes: list[Episode], figures: dict[str, Any]) -> str:
    restored = sum(e.depth or 0 for e in episodes)
    helped = f"{restored} tokens came from the disk" if restored else "no cache could have helped"
    return f"{plural(len(episodes), 'request')} began another conversation: {helped}"


def _nothing(_: Episode) -> int:
    return 0


def detect(view: View) -> Iterator[Sign]:
    """C < 64 and no sign that the displaced conversation returns (3.1.3)."""

    def extra(episodes: list[Episode]) -> dict[str, Any]:
        return {
            "prompt_tokens": max(e.prompt or 0 for e in episodes),
            "bound_tokens": sum(e.common or 0 for e in episodes),
        }

    yield from trigger_sign(view, "unrelated-prompt", _explain, extra=extra, measure=_nothing)


MECHANISM = Mechanism(
    id="unrelated-prompt",
    title="A prompt of another conversation",
    family="slots",
    grades=("log",),
    severity="none",
    evidence="C < 64 (1 to 3: the start token only), L and P of similar size, no sign that the displaced conversation returns",
    not_if="C = 0; the old conversation returns later",
    user="nothing to do",
    server="nothing to do",
    detect=detect,
    replay=Replay("more slots change nothing unless prompts recur", {"slots": "+1"}),
    place=INFORMATION,
    trigger=True,
)
