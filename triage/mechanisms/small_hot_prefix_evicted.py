"""small-hot-prefix-evicted: short checkpoints that were used lose against long ones that were not (4.6)."""

from __future__ import annotations

from collections.abc import Iterator

from triage import evictions
from triage.evidence import event_sign, plural
from triage.figures import compact, evicted_figures
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def detect(view: View) -> Iterator[Sign]:
    """Evicted lines with hits > 0."""
    gone = evictions.of(view, "small-hot-prefix-evicted")
    if not gone:
        return
    needed = [
        ep for ep in view.misses
        if ep.miss is not None and not ep.depth
        and any(e.seq < ep.miss.seq and (e.get("tokens") or 0) <= (ep.common or 0) + 16 for e in gone)
    ]  # fmt: skip
    tokens = sum(max((e.get("tokens") or 0) for e in gone) for _ in needed)
    opening = [
        e for e in gone if view.of("startup", "kv_disk") and e.seq < view.of("startup", "kv_disk")[0].seq
    ]
    yield event_sign(
        f"{plural(len(gone), 'checkpoint')} that had been used {sum(e.get('hits') or 0 for e in gone)} times were deleted "
        "to make room",
        gone,
        compact(
            {
                **evicted_figures(gone),
                "hits_each": [e.get("hits") for e in gone][:12],
                "later_misses": len(needed) or None,
                "while_opening": len(opening) or None,
            }
        ),
        episodes=needed,
        tokens=tokens,
        seconds=view.seconds_for(tokens),
    )


MECHANISM = Mechanism(
    id="small-hot-prefix-evicted",
    title="Used checkpoints are deleted",
    family="budget",
    grades=("log",),
    severity="medium",
    evidence="evicted lines with hits > 0, or sizes far below those that stay while hits are equal or higher; bursts while the "
    "store opens (a lowered budget)",
    not_if="hits=0 and no later need",
    user="a larger --kv-disk-space-mb",
    server="score without the bonus of long files, decay more slowly",
    detect=detect,
    upstream=(444, 550),
    replay=Replay("a larger budget", {"kv_disk_space_mb": "x4"}),
)
