"""tail-mismatch-no-rewind: nearly all of the prompt was live, and all of it is thrown away (4.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triage.episodes import Episode
from triage.evidence import plural, trigger_sign
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def _explain(episodes: list[Episode], figures: dict[str, Any]) -> str:
    return (
        f"{plural(len(episodes), 'prompt')} differed from the live state only near the end, and "
        f"{figures.get('cache_loss_tokens')} tokens that were live are computed again"
    )


def _loss(episode: Episode) -> int | None:
    return episode.cache_loss()


def detect(view: View) -> Iterator[Sign]:
    """C >= 0.8 P, C < P, and nothing more specific fits (3.1.10)."""

    def extra(episodes: list[Episode]) -> dict[str, Any]:
        """How much of the prompt still matched."""
        matched = [100.0 * e.common / e.prompt for e in episodes if e.common and e.prompt]
        return {"matched_percent": round(min(matched), 3) if matched else None}

    yield from trigger_sign(
        view, "tail-mismatch-no-rewind", _explain, extra=extra, measure=_loss, cheap=False
    )


MECHANISM = Mechanism(
    id="tail-mismatch-no-rewind",
    title="A small difference at the end costs the whole state",
    family="rewind",
    grades=("log", "trace"),
    severity="high",
    evidence="C >= 0.8 P, C < P, C not at P', S = 0 or far below C, no disk hit: the general class when the reason of the small "
    "difference is not visible",
    not_if="any more specific trigger fits; a disk fallback within max(1024, 5 %) of C",
    user="disk cache on; where it is on, a smaller --kv-cache-continued-interval-tokens",
    server="rewind to a common prefix where the model allows it",
    detect=detect,
    upstream=(389, 668, 818),
    replay=Replay("cut at C: n = P - C", {"reuse": "rewind-to-common"}),
    trigger=True,
)
