"""client-history-rewrite: the client compacts, trims or edits its history (4.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triage.episodes import Episode
from triage.evidence import plural, trigger_sign
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
        numbers = [e.request.request for e in episodes]
        between = [b - a - 1 for a, b in zip(numbers, numbers[1:], strict=False)]
        commons = [e.common for e in episodes if e.common is not None]
        steps = [b - a for a, b in zip(commons, commons[1:], strict=False) if b > a]
        return {
            "useful_turns_between": between[:12] if any(between) else None,
            "boundary_step_tokens": steps[:12] or None,
            "bound_tokens": sum(commons) or None,
        }

    yield from trigger_sign(view, "client-history-rewrite", _explain, extra=extra, measure=_kept)


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
