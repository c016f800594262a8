"""consumed-on-hit: reading the checkpoint deleted it (builds until August 2026) (4.5)."""

from __future__ import annotations

from collections.abc import Iterator

from triage.episodes import total
from triage.evidence import event_sign, plural
from triage.figures import compact
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def detect(view: View) -> Iterator[Sign]:
    """The word `consumed` in a hit line."""
    hits = [e for e in view.of("kv_hit") if e.get("consumed")]
    if not hits:
        return
    tokens = total(e.get("tokens") for e in hits)
    again = _missed_again(view, {e.get("tokens") for e in hits})
    yield event_sign(
        f"{plural(len(hits), 'checkpoint')} of {tokens} tokens were removed by the hit that read them; the next miss of that "
        "depth finds nothing",
        hits,
        compact(
            {
                "consumed_tokens": tokens,
                "consumed_files": len(hits),
                "deepest_tokens": max(e.get("tokens") or 0 for e in hits),
                "later_misses_of_that_depth": again or None,
                "load_ms": sum(e.get("load_ms") or 0.0 for e in hits) or None,
            }
        ),
        episodes=[ep for ep in view.episodes if ep.hit is not None and ep.hit.get("consumed")],
        tokens=tokens if again else 0,
        seconds=view.seconds_for(tokens) if again else None,
    )


def _missed_again(view: View, depths: set[int | None]) -> int:
    """Later cold misses whose common text reaches a consumed depth."""
    first = min((e.seq for e in view.of("kv_hit") if e.get("consumed")), default=0)
    reach = min((d for d in depths if d), default=0)
    return sum(
        1 for e in view.misses
        if e.miss is not None and e.miss.seq > first and (e.common or 0) >= reach and not e.depth
    )  # fmt: skip


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
