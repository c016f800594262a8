"""client-early-edit: a block near the start of the prompt changed (4.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triage.episodes import Episode, total
from triage.evidence import plural, trigger_sign
from triage.figures import avoidable
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def _explain(episodes: list[Episode], figures: dict[str, Any]) -> str:
    return (
        f"{plural(len(episodes), 'prompt')} changed near the start: {figures.get('changed_tokens')} tokens behind the "
        f"change are new text to any cache, {figures.get('cache_loss_tokens', 0)} before it were lost to the cache"
    )


def detect(view: View) -> Iterator[Sign]:
    """C < min(L, P)/2 and P >= 0.9 L (3.1.9)."""

    def extra(episodes: list[Episode]) -> dict[str, Any]:
        """Where the prompt parts, what the disk gave, how much each prompt grew."""
        return {
            "common_tokens": episodes[0].common,
            "disk_hit_tokens": total(e.hit_tokens for e in episodes),
            "prompt_growth_tokens": [e.prompt - e.live for e in episodes if e.prompt and e.live][:12],
        }

    yield from trigger_sign(view, "client-early-edit", _explain, extra=extra, measure=avoidable)


MECHANISM = Mechanism(
    id="client-early-edit",
    title="The client changes a block near the start of the prompt",
    family="client",
    grades=("log", "trace"),
    severity="high",
    evidence="C < min(L, P)/2 and P >= 0.9 L: the conversation went on, but a date, a status block, a reminder or the tool "
    "list near the start changed; a trace shows the first mismatch inside the instructions",
    not_if="C < 64; P much smaller than L (client-history-rewrite); C repeats over many turns (client-transient-tail); a "
    "rebuild of the server stands between (canonicalisation-rebuild)",
    user="keep the head constant, put variable text last, keep the tool list constant",
    server="nothing saves the changed part; denser or renewed checkpoints below C save the rest",
    detect=detect,
    upstream=(393, 394),
    replay=Replay(
        "a checkpoint at C: the gain over the log is the cache loss only", {"reuse": "rewind-to-common"}
    ),
    trigger=True,
)
