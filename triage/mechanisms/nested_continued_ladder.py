"""nested-continued-ladder: checkpoints of one conversation that contain each other fill the budget (4.6)."""

from __future__ import annotations

from collections.abc import Iterator

from parser.event import Event
from triage import evictions
from triage.evidence import event_sign, plural
from triage.figures import compact, evicted_figures, stored_figures
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def detect(view: View) -> Iterator[Sign]:
    """Continued stores at rising multiples of one step, and evictions of such lengths in rising order."""
    rungs = evictions.of(view, "nested-continued-ladder")
    if not rungs:
        return
    stored = [e for e in view.of("kv_stored") if e.get("reason") == "continued"]
    sizes = [e.get("size_mib") for e in view.of("kv_stored") if e.get("size_mib") is not None]
    figures = {**stored_figures(stored), **evicted_figures(rungs), "step_tokens": evictions.step_of(rungs)}
    if sizes and figures.get("stored_mib"):
        figures["ratio_to_final_state"] = figures["stored_mib"] / max(sizes)
    figures["life_seconds"] = min(_lives(view, stored, rungs), default=None)
    yield event_sign(
        f"{plural(len(rungs), 'checkpoint')} of one growing conversation were written, never read, and deleted in rising "
        "order: each longer one contains the shorter ones",
        [*stored, *rungs],
        compact(figures),
        tokens=0,
        seconds=round(sum(e.get("save_ms") or 0.0 for e in stored) / 1000, 3),
    )


def _lives(view: View, stored: list[Event], rungs: list[Event]) -> Iterator[float]:
    """Seconds from the last store of that length to its eviction."""
    last: dict[int | None, Event] = {}
    for event in sorted([*stored, *rungs], key=lambda e: e.seq):
        if event.kind == "kv_stored":
            if event.seq in view.when:
                last[event.get("tokens")] = event
        elif event.get("tokens") in last and event.seq in view.when:
            yield view.when[event.seq] - view.when[last[event.get("tokens")].seq]


MECHANISM = Mechanism(
    id="nested-continued-ladder",
    title="Nested checkpoints of one conversation fill the budget",
    family="budget",
    grades=("log",),
    severity="medium",
    evidence="continued stores of one conversation at rising multiples of one step, and evictions of exactly such lengths with "
    "hits=0 in rising order; three or more",
    not_if="equal lengths (store-then-evict); hits > 0; lengths without a common step",
    user="a larger --kv-cache-continued-interval-tokens or budget",
    server="drop the shorter file of the same prefix first",
    detect=detect,
    upstream=(174,),
    replay=Replay("a larger step; superseded files first", {"kv_cache_continued_interval_tokens": "x4"}),
)
