"""consumed-on-hit: reading the checkpoint deleted it (builds until August 2026) (4.5)."""

from __future__ import annotations

from collections.abc import Iterator

from triage.episodes import total
from triage.evidence import event_sign, fallen, plural
from triage.figures import compact
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def detect(view: View) -> Iterator[Sign]:
    """The word `consumed` in a hit line."""
    hits = [e for e in view.of("kv_hit") if e.get("consumed")]
    if not hits:
        return
    tokens, missed = total(e.get("tokens") for e in hits), fallen(view, "consumed-on-hit")
    share = total(f.share for _, f in missed) or 0
    yield event_sign(
        f"{plural(len(hits), 'checkpoint')} ({tokens} tokens) removed by the hit that read it; "
        + (_needed(len(missed), share) if missed else "the next miss of that depth will find nothing"),
        hits,
        compact(
            {
                "consumed_tokens": tokens,
                "consumed_files": len(hits),
                "deepest_tokens": max(e.get("tokens") or 0 for e in hits),
                "later_misses_of_that_depth": len(missed) or None,
                "share_tokens": share or None,
                "load_ms": sum(e.get("load_ms") or 0.0 for e in hits) or None,
            }
        ),
        episodes=[ep for ep in view.episodes if ep.hit is not None and ep.hit.get("consumed")]
        + [ep for ep, _ in missed],
        tokens=share,
        seconds=view.seconds_for(share) if share else None,
    )


def _needed(count: int, share: int) -> str:
    return (
        f"{plural(count, 'later miss', 'later misses')} needed that depth and computed {share} tokens again"
    )


MECHANISM = Mechanism(
    id="consumed-on-hit",
    title="The hit deletes the file",
    family="disk",
    grades=("log",),
    severity="medium",
    evidence="the word `consumed` in a hit line: the file was removed by reading it (a hit longer than cold_max)",
    not_if="the word is missing (then the file stays)",
    user="a newer server, or cold_max above the depth",
    server="fixed with #673",
    detect=detect,
    upstream=(673,),
    replay=Replay("the file is kept: the next miss of that depth has S = H", {"server": "ds4-2026-08"}),
    fallback=True,
)
