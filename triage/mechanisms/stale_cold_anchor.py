"""stale-cold-anchor: fresh sessions all start from one old, too short file (4.5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from triage.episodes import Episode
from triage.evidence import fallback_sign, fallen
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def detect(view: View) -> Iterator[Sign]:
    """The same H on two or more fresh sessions, no cold store in between (3.2.3)."""
    found = fallen(view, "stale-cold-anchor")
    if len(found) < 2:
        return
    depths = {e.depth for e, _ in found}
    for sign in fallback_sign(
        view,
        "stale-cold-anchor",
        "{count} fresh sessions start from the same short file and compute the same stretch again: because part was "
        "reused, no new anchor is written",
        anchor_tokens=max((d for d in depths if d), default=None),
        sessions=len(found),
    ):
        yield replace(sign, triggers=frozenset()) if all(_opens(e, view) for e, _ in found) else sign


def _opens(episode: Episode, view: View) -> bool:
    """A session that opens on the state of a longer one: that it parts there is no fault of anybody."""
    return (episode.prompt or 0) < view.limits.grown_share * (episode.live or 0)


MECHANISM = Mechanism(
    id="stale-cold-anchor",
    title="An old short checkpoint is never renewed",
    family="disk",
    grades=("turns",),
    severity="medium",
    evidence="two or more fresh sessions with the same H below the end of the instructions, each re-prefills the same stretch; no "
    "cold store in between because part was reused",
    not_if="the prompts never finish (poisoned-checkpoint); one occurrence only",
    user="delete the old file once, or restart with an empty store",
    server="renew the anchor after a partial hit below it",
    detect=detect,
    upstream=(393, 394),
    replay=Replay("the anchor stored at partial hits: the second session starts at it", {}),
    fallback=True,
    repeats=True,
)
