"""hit-not-used: a checkpoint was loaded and then not used (4.5)."""

from __future__ import annotations

from collections.abc import Iterator

from triage.episodes import total, total_s
from triage.evidence import fallback_sign, fallen
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def detect(view: View) -> Iterator[Sign]:
    """A hit of H tokens, but the span starts at 0 or far below H (3.2.1)."""
    found = fallen(view, "hit-not-used")
    hits = [e.hit for e, _ in found if e.hit is not None]
    yield from fallback_sign(
        view,
        "hit-not-used",
        "{count} disk hit{s} loaded and thrown away: the prefill starts before it",
        thrown_away_tokens=total(h.get("tokens") for h in hits),
        load_ms=total_s(h.get("load_ms") for h in hits),
    )


MECHANISM = Mechanism(
    id="hit-not-used",
    title="The disk hit is thrown away",
    family="disk",
    grades=("log",),
    severity="high",
    evidence="a hit of H tokens, but the span starts at 0 or far below H (guards of forks, a failed restore)",
    not_if="S = H",
    user="report it; use another build",
    server="check before the load, count reuse by S only",
    detect=detect,
    replay=Replay("S = H", {"reuse": "ladder"}),
    fallback=True,
    repeats=True,
)
