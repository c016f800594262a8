"""budget-eviction: ordinary housekeeping of the disk budget (4.6)."""

from __future__ import annotations

from collections.abc import Iterator

from triage import evictions
from triage.evidence import event_sign, plural
from triage.figures import compact, evicted_figures
from triage.mechanism import INFORMATION, Mechanism, Replay, Sign
from triage.view import View


def detect(view: View) -> Iterator[Sign]:
    """Evicted lines that fit none of the other ids."""
    gone = evictions.of(view, "budget-eviction")
    if not gone:
        return
    span = view.span_s(gone)
    many = len(gone) > 2
    figures = {**evicted_figures(gone), "per_hour": len(gone) * 3600 / span if span and many else None}
    yield event_sign(
        f"{plural(len(gone), 'file')} deleted to stay within the disk budget"
        + (
            ": the budget is small for this traffic"
            if many
            else ": ordinary housekeeping, nothing to delete by hand"
        ),
        gone,
        compact(figures),
        tokens=0,
        severity="low" if many else "none",
    )


MECHANISM = Mechanism(
    id="budget-eviction",
    title="The disk budget is kept",
    family="budget",
    grades=("log",),
    severity="none",
    evidence="evicted lines that fit none of the other ids; one or two are housekeeping, many with hits=0 mean that the budget is "
    "too small for the traffic",
    not_if="a more specific id fits; it is about the budget, not about a full file system",
    user="nothing to delete by hand; a larger --kv-disk-space-mb if hits matter",
    server="nothing to do",
    detect=detect,
    upstream=(500,),
    replay=Replay("a larger budget: which later misses become hits", {"kv_disk_space_mb": "x4"}),
    place=INFORMATION,
)
