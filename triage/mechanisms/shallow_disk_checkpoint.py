"""shallow-disk-checkpoint: the disk answered, but far short of what was known (4.5)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from triage.evidence import fallback_sign, fallen
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def _spacing(view: View) -> int | None:
    """Smallest distance between continued stores of one request."""
    gaps = []
    for episode in view.episodes:
        lengths = sorted({e.get("tokens") for e in episode.of("kv_stored") if e.get("reason") == "continued"})
        gaps += [b - a for a, b in pairwise(lengths)]
    return min(gaps, default=None)


def _share(view: View) -> float | None:
    """Share of the prefill that the missing depth makes up, over all episodes, in percent."""
    found = fallen(view, "shallow-disk-checkpoint")
    lost = sum(f.share or 0 for _, f in found)
    n = sum(e.reprefill or 0 for e, _ in found)
    return 100.0 * lost / n if n else None


def detect(view: View) -> Iterator[Sign]:
    """C - H >= max(1024, C/20) with S = H (3.2.5)."""
    share = _share(view)
    yield from fallback_sign(
        view,
        "shallow-disk-checkpoint",
        "{count} fallback{s} to a disk file that ends short of the common text: {share} tokens computed again",
        store_spacing_tokens=_spacing(view),
        share_of_prefill_percent=round(share, 3) if share is not None else None,
    )


MECHANISM = Mechanism(
    id="shallow-disk-checkpoint",
    title="The disk checkpoint ends too early",
    family="disk",
    grades=("log",),
    severity="medium",
    evidence="C - H >= max(1024, C/20), S = H",
    not_if="the deeper file was evicted in this episode (incoming-prefix-evicted) or consumed; H >= C; C unknown",
    user="a smaller --kv-cache-continued-interval-tokens, --kv-cache-cold-max-tokens above the prompts",
    server="checkpoints at the ends of turns, denser near the live end",
    detect=detect,
    replay=Replay(
        "checkpoints every A tokens: the loss stays below A", {"kv_cache_continued_interval_tokens": "2048"}
    ),
    fallback=True,
)
