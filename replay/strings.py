"""Numbers for the token strings of a log, and their lengths.

Request `i` (its index) has three strings: what the client sent, tokenised from nothing (canonical); what
stands in its slot afterwards (live); and its prompt with the reply as the next prompt holds it (visible).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class Measured:
    """Lengths of all strings, and for what a slot answers to besides its tokens (R3.30, R3.32), by index:
    the request whose live state it continued without equal tokens, and the tokens of its prompt's end that
    its visible key does not hold."""

    lengths: list[int]
    hidden: dict[int, int] = field(default_factory=dict)
    dropped: dict[int, int] = field(default_factory=dict)


def measure(requests: Sequence[Request], thought: Mapping[int, int]) -> Measured:
    """Lengths of all strings; `thought` are indices whose closed reasoning was remembered (LC9), with the
    bytes of their visible key.

    A visible string ends with the stop token that was sampled but not evaluated. What a reasoning reply shows
    is a default: as long as the reply, less half of it.
    """
    out = Measured([0] * (3 * len(requests)))
    follows = successors(requests)
    before = {after: index for index, after in follows.items()}
    for index, request in enumerate(requests):
        tokens, source = canonical_tokens(request), before.get(index)
        if request.source in HIDDEN and source is not None:
            out.hidden[index] = source
            rest = effective_tokens(request) - (request.cached_tokens or 0)
            tokens = (out.lengths[visible(source)] or out.lengths[live(source)]) + rest
        seen = requests[follows[index]].live_before if index in follows else None
        out.lengths[canonical(index)] = tokens
        out.lengths[live(index)] = live_tokens(request, seen)
        _measure_visible(out, index, request, index in thought)
    return out


def _measure_visible(out: Measured, index: int, request: Request, thought: bool) -> None:
    responses = "RESPPROTO" in request.flags and request.finish in ("stop", "tool_calls")
    reply = out.lengths[live(index)] - effective_tokens(request)
    if reply <= 0 or not (responses or thought):
        return
    if thought:
        out.dropped[index] = 1
        reply //= 2
    out.lengths[visible(index)] = out.lengths[canonical(index)] - out.dropped.get(index, 0) + reply + 1
