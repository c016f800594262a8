"""canonicalisation-rebuild: after a tool call the server reads its own state again in canonical form (4.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parser.event import Event
from triage.episodes import total, total_s
from triage.evidence import event_sign, plural
from triage.figures import compact
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def _needs(event: Event) -> bool:
    return event.rule in ("needs_rebuild", "needs_rebuild_old") or event.get("via") in ("rebuild", "disk")


def _rebuilt(event: Event) -> int | None:
    for name in ("rebuild_tokens", "replay", "canonical"):
        if event.get(name) is not None:
            return int(event.get(name))
    return None


def _figures(needed: list[Event], done: list[Event]) -> dict[str, Any]:
    firsts = [e for e in needed if e.rule != "canonicalized"] or needed
    target = [
        e
        for e in firsts
        if (e.get("canonical") or e.get("target")) is not None and e.get("common") is not None
    ]
    return compact(
        {
            "rebuilds": max(len(firsts), len(done)),
            "rebuild_tokens": total(e.get("replay") for e in done) or total(_rebuilt(e) for e in firsts),
            "discarded_tokens": total(
                e.get("discard") if e.get("discard") is not None else e.get("live") - e.get("common")
                for e in firsts
                if e.get("discard") is not None or (e.get("live") is not None and e.get("common") is not None)
            ),
            "rewritten_tokens": total(
                (e.get("canonical") or e.get("target")) - e.get("common") for e in target
            ),
            "rebuild_seconds": total_s(e.get("elapsed_s") for e in done),
        }
    )


def detect(view: View) -> Iterator[Sign]:
    """A rebuild line (not an extension in place) between the tool call and the finish line."""
    needed = [e for e in view.of("checkpoint") if _needs(e)]
    done = view.of("checkpoint", "rebuild_done", "rebuild_failed")
    if not needed and not done:
        return
    figures = _figures(needed, done)
    tokens, seconds = figures.get("rebuild_tokens"), figures.get("rebuild_seconds")
    yield event_sign(
        f"{plural(figures['rebuilds'], 'tool turn')} made the server compute {tokens or 'its whole'} tokens again "
        "before the final response bytes, only to hold the call in canonical form",
        needed + done,
        figures,
        tokens=tokens,
        seconds=seconds if seconds is not None else view.seconds_for(tokens),
    )


MECHANISM = Mechanism(
    id="canonicalisation-rebuild",
    title="The server rebuilds its state after a tool call",
    family="reply",
    grades=("log",),
    severity="medium",
    evidence="`tool checkpoint canonicalization needs … rebuild`, `rebuild done`, `via=rebuild`; the pause lies between the tool "
    "call and the finish line",
    not_if="`tool checkpoint canonicalized` without a rebuild (extended in place, cheap)",
    user="the Responses or Messages endpoint",
    server="bind the turn instead of rewriting it",
    detect=detect,
    replay=Replay("no rewrite: saves the canonical length per tool turn", {}),
)
