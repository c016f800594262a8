"""client-history-rewrite: the client compacts, trims or edits its history (4.2)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from triage.episodes import Episode
from triage.evidence import event_sign, plural, trigger_sign, triggered
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def _explain(episodes: list[Episode], figures: dict[str, Any]) -> str:
    return (
        f"{plural(len(episodes), 'prompt')} came with a rewritten history: no cache can avoid the "
        f"{figures.get('changed_tokens', 'changed')} changed tokens; a perfect one would have kept "
        f"{figures.get('cache_loss_tokens', 0)}"
    )


def _kept(episode: Episode) -> int | None:
    return episode.cache_loss()


def detect(view: View) -> Iterator[Sign]:
    """P clearly below L with C far below both, or C creeping forward between misses (3.1.11)."""

    def extra(episodes: list[Episode]) -> dict[str, Any]:
        """How many requests lie between two rewrites, and how far the common prefix moves on."""
        numbers = [e.request.request for e in episodes]
        between = [b - a - 1 for a, b in pairwise(numbers)]
        commons = [e.common for e in episodes if e.common is not None]
        steps = [b - a for a, b in pairwise(commons) if b > a]
        return {
            "useful_turns_between": between[:12] if any(between) else None,
            "boundary_step_tokens": steps[:12] or None,
            "bound_tokens": sum(commons) or None,
        }

    signs = list(trigger_sign(view, "client-history-rewrite", _explain, extra=extra, measure=_kept))
    yield from signs or _behind_a_tail(view)


def _behind_a_tail(view: View) -> Iterator[Sign]:
    """A late mismatch that lies well before the last prompt's end: the history was changed, not the reply."""
    early = [
        e for e, _ in triggered(view, "tail-mismatch-no-rewind", cheap=False)
        if e.previous is not None and e.common is not None
        and e.previous.prompt - e.common > view.limits.transient_tokens
    ]  # fmt: skip
    if early:
        before = max(e.previous.prompt - (e.common or 0) for e in early if e.previous is not None)
        yield event_sign(
            f"{plural(len(early), 'prompt')} part from the live state {before} tokens before the end of the last prompt: "
            "something in the history was rewritten",
            [e for ep in early for e in ep.of("live_miss")],
            {"changed_tokens": sum(e.changed or 0 for e in early), "before_last_prompt_end_tokens": before},
            episodes=early,
            tokens=0,
            grade="possible",
            role="contributing",
        )


MECHANISM = Mechanism(
    id="client-history-rewrite",
    title="The client rewrites its history",
    family="client",
    grades=("turns",),
    severity="medium",
    evidence="P clearly below L with C far below both (compaction, trimming), or C creeping forward between expensive misses, "
    "or a proxy that edits the history",
    not_if="C = P' (reasoning left out: reasoning-retokenised); C = P",
    user="compact less often; use a proxy that only appends",
    server="nothing to do: no cache can avoid the changed part",
    detect=detect,
    replay=Replay("a perfect cache at C: the gain is C - S only", {"reuse": "rewind-to-common"}),
    trigger=True,
)
