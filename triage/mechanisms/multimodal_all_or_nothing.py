"""multimodal-all-or-nothing: a conversation with images loses all of its state at any difference (4.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triage.episodes import Episode
from triage.evidence import plural, trigger_sign
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def _explain(episodes: list[Episode], figures: dict[str, Any]) -> str:
    return (
        f"{plural(len(episodes), 'prompt')} of a conversation with images parted from the live state near the end: no rewind, "
        "no look-up on the disk, no checkpoints on the way"
    )


def _loss(episode: Episode) -> int | None:
    return episode.cache_loss()


def _continued(episodes: list[Episode]) -> int:
    return sum(s.get("reason") == "continued" for e in episodes for s in e.of("kv_stored"))


def detect(view: View) -> Iterator[Sign]:
    """Images are known to be in the conversation and C >= 0.8 P (3.1.6)."""

    def extra(episodes: list[Episode]) -> dict[str, Any]:
        """How much of the prompt still matched, and how many images were in it."""
        matched = [100.0 * e.common / e.prompt for e in episodes if e.common and e.prompt]
        images = [e.get("images") for e in view.of("multimodal_hit") if e.get("images")]
        return {
            "matched_percent": round(min(matched), 3) if matched else None,
            "images": max(images, default=None),
            "image_lines": len(view.of("vision_cache") + view.of("multimodal_hit")),
            "disk_hits": sum(e.hit is not None for e in episodes),
            "continued_stores": _continued(episodes),
        }

    yield from trigger_sign(view, "multimodal-all-or-nothing", _explain, extra=extra, measure=_loss)


MECHANISM = Mechanism(
    id="multimodal-all-or-nothing",
    title="A conversation with images is kept whole or not at all",
    family="rewind",
    grades=("config",),
    severity="high",
    evidence="images in the conversation (`vision embedding …`, `multimodal live kv hit`, client data), C close to P, S = 0 or "
    "unknown, no evict store and no hit although the disk cache is on",
    not_if="only `vision=match` is there (every newer server prints it for text, too); C = 0",
    user="fewer image turns in long conversations, a separate slot",
    server="exact live reuse with images, one reuse path for text and images, a memory checkpoint",
    detect=detect,
    upstream=(916, 977, 962, 1007),
    replay=Replay(
        "image state treated like text: n = P - C or P - L",
        {"reuse": "rewind-to-common", "store": "images-on-disk"},
    ),
    trigger=True,
)
