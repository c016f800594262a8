"""retry-storm: the same prompt is prefilled again and again (4.7)."""

from __future__ import annotations

from collections.abc import Iterator

from parser.request import Request
from triage.attempts import chains, lost
from triage.build import prefill_seconds
from triage.evidence import event_sign
from triage.figures import compact
from triage.mechanism import CONSEQUENCE, Mechanism, Replay, Sign
from triage.view import View


def _storms(view: View) -> Iterator[list[Request]]:
    """Three or more attempts (two, if the first failed or lost its client), at least one of them in vain.

    The last attempt may merely be cut off by the end of the input; and prompts that each part early from the
    state of another session (which the one before left) are sessions, no attempts.
    """
    apart = {
        e.request.request: e.live
        for e in view.misses
        if e.common is not None and e.common < (e.prompt or 0) - 64
    }
    for chain in chains(view):
        needed = 2 if lost(view, chain[0]) else view.limits.retry_attempts
        in_vain = [r for r in chain[:-1] if lost(view, r)] or [
            r for r in chain[-1:] if r.error or r.client_gone
        ]
        sessions = len({apart[r.request] for r in chain if r.request in apart}) > 1
        told = any(r.error or r.client_gone for r in chain)
        if len(chain) >= needed and in_vain and (told or not sessions):
            yield chain


def detect(view: View) -> Iterator[Sign]:
    """Prefills with the same S and P equal or grown by less than 64, each soon after the previous end."""
    storms = list(_storms(view))
    if not storms:
        return
    attempts = [r for chain in storms for r in chain]
    again = [r for chain in storms for r in chain[1:]]
    seconds, tokens = prefill_seconds(view, attempts), sum(r.prefilled_tokens or 0 for r in attempts)
    numbers = {r.request for r in attempts}
    yield event_sign(
        f"{len(attempts)} prefills of the same prompt follow each other: {tokens} tokens for one answer",
        [
            e
            for ep in view.episodes
            if ep.request.request in numbers
            for e in ep.events
            if e.kind in ("prompt_start", "finish", "stream_error", "prompt_done")
        ],
        compact(
            {
                "attempts": len(attempts),
                "reprefill_tokens": tokens,
                "prefill_seconds": seconds,
                "cached_tokens": attempts[0].cached_tokens,
                "prompt_tokens": attempts[0].prompt_tokens,
            }
        ),
        episodes=[e for e in view.episodes if e.request.request in numbers],
        tokens=sum(r.prefilled_tokens or 0 for r in again),
        seconds=prefill_seconds(view, again),
        grade="turns",
    )


MECHANISM = Mechanism(
    id="retry-storm",
    title="The same prompt is sent again and again",
    family="client",
    grades=("turns",),
    severity="high",
    evidence="three or more prefills (two, if the first failed or lost its client) with the same S and P equal or grown by less "
    "than 64 tokens, each starting within 120 s of the previous end",
    not_if="each attempt belongs to another conversation; a single repeat by hand",
    user="a deadline above the prefill time, fewer retries",
    server="keep the finished answer or state for the retry, cancel early",
    detect=detect,
    upstream=(333, 489),
    replay=Replay("the first attempt succeeds", {}),
    place=CONSEQUENCE,
    causes=("client-gave-up", "prefill-stall", "poisoned-checkpoint", "engine-prefill-failure", "distributed-failure",
            "host-suspended", "out-of-memory"),
)  # fmt: skip
