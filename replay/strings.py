"""Numbers for the token strings of a log, and their lengths.

Request `i` (its index) has three strings: what the client sent, tokenised from nothing (canonical); what
stands in its slot afterwards (live); and its prompt with the reply as the next prompt holds it (visible).
"""

from __future__ import annotations

from collections.abc import Sequence

from parser.request import Request

#: sources whose effective prompt is the live state plus the tokenised rest, whatever the canonical tokens are
HIDDEN = ("thinking-visible", "responses-visible", "responses-tool-output", "anthropic-tool-output")


def canonical(index: int) -> int:
    """String number of the prompt of request `index`."""
    return 3 * index


def live(index: int) -> int:
    """String number of what request `index` leaves in its slot."""
    return 3 * index + 1


def visible(index: int) -> int:
    """String number of the prompt and reply of request `index` as a later prompt holds them."""
    return 3 * index + 2


def owner(string: int) -> int:
    """Index of the request that a string belongs to."""
    return string // 3


def effective_tokens(request: Request) -> int:
    """Tokens of the prompt that was evaluated (P of the span); 0 where the log does not say."""
    return request.prompt_tokens or request.canonical_prompt_tokens or 0


def canonical_tokens(request: Request) -> int:
    """Tokens of the client's prompt; the effective count where no line says it (they are equal but after a
    continuation by text)."""
    return request.canonical_prompt_tokens or request.prompt_tokens or 0


def live_tokens(request: Request, seen: int | None) -> int:
    """Length that a request leaves in its slot (R3.36): what its successor in the slot found (`seen`), else
    what the join worked out, else prompt plus reply."""
    if seen:
        return seen
    if request.live_after:
        return request.live_after
    return effective_tokens(request) + (request.generated_tokens or 0)


def successors(requests: Sequence[Request]) -> dict[int, int]:
    """Index of a request -> index of the next one in the same slot of the same process."""
    place = {request.request: index for index, request in enumerate(requests)}
    following: dict[int, int] = {}
    for index, request in enumerate(requests):
        before = place.get(request.previous_in_slot or 0)
        if before is not None and requests[before].run == request.run:
            following[before] = index
    return following
