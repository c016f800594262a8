"""store-then-evict: a checkpoint is deleted moments after it was written (4.6)."""

from __future__ import annotations

from collections.abc import Iterator

from triage import evictions
from triage.episodes import total_s
from triage.evidence import event_sign, plural
from triage.figures import compact, evicted_figures, stored_figures
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def detect(view: View) -> Iterator[Sign]:
    """An evicted line with the tokens and size of a store at most 60 s or two requests earlier, hits=0."""
    gone = evictions.of(view, "store-then-evict")
    if not gone:
        return
    fresh = evictions.fresh_stores(view)
    stores = list({fresh[e.seq].seq: fresh[e.seq] for e in gone}.values())
    lengths = {e.get("tokens") for e in gone}
    written = [e for e in view.of("kv_stored") if e.get("tokens") in lengths]
    lives = [
        view.when[e.seq] - view.when[fresh[e.seq].seq]
        for e in gone
        if e.seq in view.when and fresh[e.seq].seq in view.when and fresh[e.seq].seq < e.seq
    ]
    owners = [view.owner[e.seq] for e in (*gone, *stores) if e.seq in view.owner]
    episodes = list({id(e): e for e in owners}.values())
    yield event_sign(
        f"{plural(len(gone), 'checkpoint')} deleted right after being written: the budget holds less than one request writes",
        [*stores, *gone],
        compact(
            {
                **stored_figures(written),
                **evicted_figures(gone),
                "life_seconds": max(lives, default=None),
                "prompt_tokens": max((e.prompt or 0 for e in episodes), default=None),
            }
        ),
        episodes=episodes,
        tokens=0,
        seconds=round((total_s(e.get("save_ms") for e in written) or 0.0) / 1000, 3),
    )


MECHANISM = Mechanism(
    id="store-then-evict",
    title="Checkpoints are deleted right after being written",
    family="budget",
    grades=("log",),
    severity="medium",
    evidence="an evicted line with the file, or tokens and size, of a store at most 60 s or two requests earlier; hits=0",
    not_if="the evicted file is older; hits > 0",
    user="a larger --kv-disk-space-mb, or an emptied directory",
    server="protect fresh files, weigh by reason",
    detect=detect,
    upstream=(157, 159, 176, 814),
    replay=Replay("a larger budget", {"kv_disk_space_mb": "x4"}),
)
