"""exact-retry-no-rewind: the same prompt again, and the live state cannot go back to its end (4.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parser.event import Event
from triage.episodes import Episode, total
from triage.evidence import event_sign, plural, trigger_sign
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View

_REFUSED = ("refused", "point_refused")


def _explain(episodes: list[Episode], figures: dict[str, Any]) -> str:
    return (
        f"{plural(len(episodes), 'request')} repeated a prompt whose whole text was live; without a rewind all but one "
        "token are computed again"
    )


def _all_but_one(episode: Episode) -> int | None:
    n = episode.reprefill if episode.reprefill is not None else episode.prompt
    return None if n is None else max(0, n - 1)


def _refusals(view: View) -> list[Event]:
    """Rewinds that the server gave up, outside any episode that already says so."""
    told = {e.seq for ep in view.misses for e in ep.of("live_rewind")}
    prompts = {ep.prompt for ep in view.misses}
    return [
        e for e in view.of("live_rewind", *_REFUSED)
        if e.seq not in told and (e.get("to") is None or e.get("to") + 1 not in prompts)
    ]  # fmt: skip


def detect(view: View) -> Iterator[Sign]:
    """C = P <= L (3.1.2); or a rewind line that says it is not restorable."""

    def extra(episodes: list[Episode]) -> dict[str, Any]:
        """What the retries computed again, and the refusals that the log prints."""
        refused = view.of("live_rewind", *_REFUSED)
        reprefill = total(e.reprefill if e.reprefill is not None else e.prompt for e in episodes)
        return {
            "reprefill_tokens": reprefill,
            "prefill_rate_tps": next(
                (e.prefilled / e.seconds for e in episodes if e.prefilled and e.seconds), None
            ),
            "refused_rewinds": len(refused) or None,
        }

    found = list(trigger_sign(view, "exact-retry-no-rewind", _explain, extra=extra, measure=_all_but_one))
    yield from found
    refused = _refusals(view)
    if refused and not found:
        lost = [
            e.get("from") - e.get("to")
            for e in refused
            if e.get("from") is not None and e.get("to") is not None
        ]
        prompt = total(e.get("to") + 1 for e in refused if e.get("to") is not None)
        yield event_sign(
            "a rewind of the live state to the end of the prompt was refused: the whole prompt is computed again",
            refused,
            {
                "reprefill_tokens": prompt,
                "sampled_not_replayed_tokens": sum(lost),
                "refused_rewinds": len(refused),
            },
            tokens=prompt,
            seconds=view.seconds_for(prompt),
        )


MECHANISM = Mechanism(
    id="exact-retry-no-rewind",
    title="The same prompt again, without a rewind",
    family="rewind",
    grades=("log",),
    severity="high",
    evidence="C = P <= L: regenerate, an aborted stream, a client's retry, a compaction that only drops the last reply",
    not_if="`rewound … live prefix` or `rewind point hit` precedes and S >= P-1 (healthy); C < P",
    user="longer client deadlines, no automatic retry, disk cache on",
    server="rewind to the prompt's end (GLM does since #668), rewind points",
    detect=detect,
    upstream=(668, 698, 818),
    replay=Replay("rewind on: n = 1", {"reuse": "rewind-to-common"}),
    trigger=True,
)
