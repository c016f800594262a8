"""Attempts: prefills of one prompt, one after the other (mechanisms 4.6 poisoned-checkpoint, 4.7 retry-storm)."""

from __future__ import annotations

from collections.abc import Iterator

from parser.event import Event
from parser.request import Request
from triage.view import View

#: a failed prefill with a client still there prints nothing; these rules say that it failed
FAILED_RULES = ("prefill_failed", "sse_error")


def unfinished(view: View, request: Request) -> bool:
    """A prefill that never got to `prompt done`."""
    return request.prefill_s is None and request.finish is None and request.generated_tokens is None


def lost(view: View, request: Request) -> bool:
    """The attempt failed, or its client was gone before the answer."""
    if request.error or request.client_gone or request.finish == "error":
        return True
    return unfinished(view, request)


def failures(view: View) -> list[Event]:
    """Lines that say a prefill failed: stream errors of that kind, files discarded for it."""
    broken = view.of("stream_error", *FAILED_RULES)
    return broken + discarded(view)


def discarded(view: View) -> list[Event]:
    """Files that were deleted because the prefill from them came to nothing (DS13)."""
    return view.of("kv_discarded", "prefill_failed", "prefill_failed_old")


def cancels(view: View) -> bool:
    """The build drops a request whose client is gone, on the path of a failed prefill (cache-behaviour R3.16)."""
    return (view.server.profile or "").startswith("ds4-2026-09")


def chains(view: View) -> Iterator[list[Request]]:
    """Maximal runs of requests with the same S and P equal or grown a little, each after the previous one's end."""
    last: dict[tuple[int, int | None, str | None, bool], list[Request]] = {}
    found = []
    for request in view.requests:
        if request.prompt_tokens is None or request.cached_tokens is None or not request.prefilled_tokens:
            continue
        key = (request.run, request.cached_tokens, request.api, "RESPPROTO" in request.flags)
        chain = last.get(key)
        if chain is not None and _follows(view, chain[-1], request):
            chain.append(request)
            if len(chain) == 2:
                found.append(chain)
        else:
            last[key] = [request]
    yield from found


def _strangers(view: View, before: Request, request: Request) -> bool:
    """The parser is sure that these are two conversations."""
    both = before.conversation, request.conversation
    in_vain = before.client_gone or (unfinished(view, before) and _alone(view, before, request))
    if before.prompt_tokens == request.prompt_tokens and in_vain:
        return False  # the same length again after an attempt in vain: the state of it was not kept
    return None not in both and both[0] != both[1] and "guess" not in request.why.get("conversation", "guess")


def _alone(view: View, before: Request, request: Request) -> bool:
    """Nothing says that the two ran side by side: no second slot is known of, nor did they start together."""
    if view.slots() not in (None, 1) or before.start_s is None or request.start_s is None:
        return False
    return request.start_s - before.start_s > 2.0


def _follows(view: View, before: Request, request: Request) -> bool:
    limits = view.limits
    if _strangers(view, before, request):
        return False
    if unfinished(view, before) and before.excerpt != request.excerpt:
        return False  # the excerpt ends, not the attempt
    grown = (request.prompt_tokens or 0) - (before.prompt_tokens or 0)
    allowed = limits.unknown_reply_tokens if lost(view, before) else limits.retry_growth_tokens - 1
    if not 0 <= grown <= allowed:
        return False
    if before.end_s is not None and request.start_s is not None:
        error, gap = request.start_error_s or 0.0, request.start_s - before.end_s
        return -1.0 - error <= gap <= limits.retry_gap_s + error or (
            unfinished(view, before) and request.start_s - (before.start_s or 0.0) >= 0
        )
    return not before.events or not request.events or max(before.events) <= min(request.events)
