"""host-suspended: the machine slept in the middle of a request (4.7)."""

from __future__ import annotations

from collections.abc import Iterator

from triage.evidence import event_sign, plural
from triage.figures import compact
from triage.mechanism import Mechanism, Sign
from triage.view import Gap, View


def sleeps(view: View) -> list[Gap]:
    """Pairs of lines of one request whose stamps advance by a minute more than the printed seconds."""
    return [
        g
        for g in view.gaps
        if g.wall_s is not None
        and g.printed_s is not None
        and g.wall_s - g.printed_s >= view.limits.suspended_s
        and (g.first.source, g.first.excerpt) == (g.second.source, g.second.excerpt)
    ]


def detect(view: View) -> Iterator[Sign]:
    """Inside one request the stamps advance by >= 60 s more than the printed seconds do."""
    found = sleeps(view)
    if not found:
        return
    worst = max(found, key=lambda g: g.wall_s or 0.0)
    hidden = sum((g.wall_s or 0.0) - (g.printed_s or 0.0) for g in found)
    yield event_sign(
        f"{plural(len(found), 'gap')} in which the clock went on and the server did not: the machine slept",
        [e for g in found for e in (g.first, g.second)],
        compact(
            {
                "wall_gap_seconds": worst.wall_s,
                "hidden_seconds": round(hidden, 3),
                "printed_seconds": worst.printed_s,
                "gaps": len(found),
            }
        ),
        tokens=0,
        seconds=round(hidden, 3),
    )


MECHANISM = Mechanism(
    id="host-suspended",
    title="The machine slept",
    family="client",
    grades=("log",),
    severity="medium",
    evidence="inside one request the stamps advance by >= 60 s more than the printed seconds do",
    not_if="both advance alike; the lines come from different places of a file (time runs backwards, another request)",
    user="keep the machine awake",
    server="nothing to do",
    detect=detect,
)
