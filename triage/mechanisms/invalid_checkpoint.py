"""invalid-checkpoint: the live state was marked invalid; not even its start token counts (4.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triage.episodes import Episode, total
from triage.evidence import plural, trigger_sign
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def _ended(episode: Episode) -> str | None:
    """What ended the request before, where the log says it."""
    if episode.previous is not None and episode.previous.finish is not None:
        return episode.previous.finish
    last = next((e for e in reversed(episode.before) if e.kind in ("stream_error", "tool_repair")), None)
    return last.rule if last is not None else None


def _explain(episodes: list[Episode], figures: dict[str, Any]) -> str:
    return (
        f"{plural(len(episodes), 'request')} met a state of {figures.get('lost_live_tokens')} tokens that a failed, cancelled or "
        "rolled-back run had marked invalid"
    )


def detect(view: View) -> Iterator[Sign]:
    """C = 0 with L > 0 (3.1.1)."""

    def extra(episodes: list[Episode]) -> dict[str, Any]:
        """The states thrown out, what was computed again, how the request before ended."""
        return {
            "lost_live_tokens": total(e.live for e in episodes),
            "reprefill_tokens": total(e.reprefill if e.reprefill is not None else e.prompt for e in episodes),
            "previous_ended": next((x for x in map(_ended, episodes) if x is not None), None),
        }

    yield from trigger_sign(view, "invalid-checkpoint", _explain, extra=extra)


MECHANISM = Mechanism(
    id="invalid-checkpoint",
    title="The live state was marked invalid",
    family="rewind",
    grades=("log",),
    severity="high",
    evidence="C = 0 with L > 0; `vision=mismatch` often comes with it and proves nothing about images",
    not_if="C >= 1",
    user="a newer server; no speculative decoding with images",
    server="restore the state after a stop inside a speculative block; keep the valid part after a failure",
    detect=detect,
    replay=Replay("the state valid at P': n = P - C of a normal turn", {}),
    trigger=True,
)
