"""Numbers for the token strings of a log, and their lengths.

Request `i` (its index) has three strings: what the client sent, tokenised from nothing (canonical); what
stands in its slot afterwards (live); and its prompt with the reply as the next prompt holds it (visible).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
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


def live_lengths(requests: Sequence[Request]) -> list[int]:
    """Tokens that each request leaves in its slot."""
    follows = successors(requests)
    seen = (requests[follows[i]].live_before if i in follows else None for i in range(len(requests)))
    return [live_tokens(request, found) for request, found in zip(requests, seen, strict=True)]


@dataclass(slots=True)
class Measured:
    """Lengths of all strings, and for what a slot answers to besides its tokens (R3.30, R3.32), by index:
    the request whose live state it continued without equal tokens, and the tokens of its prompt's end that
    its visible key does not hold."""

    lengths: list[int]
    hidden: dict[int, int] = field(default_factory=dict)
    dropped: dict[int, int] = field(default_factory=dict)


def measure(
    requests: Sequence[Request], shown: Mapping[int, int], thought: Container[int], read: Mapping[int, int]
) -> Measured:
    """Lengths of all strings; `shown`: index -> tokens by which the visible key of a turn is longer than its prompt
    (`replay.shown`). That of one that `thought` (LC9) does not hold the `<think>` at the prompt's end. `read`: index ->
    index of the turn whose file it found by such a key.
    """
    out = Measured([0] * (3 * len(requests)))
    before = {after: index for index, after in successors(requests).items()}
    lives = live_lengths(requests)
    for index, request in enumerate(requests):
        tokens, source = canonical_tokens(request), before.get(index)
        if request.source in HIDDEN and source is not None:
            out.hidden[index] = source
        source = out.hidden.get(index, read.get(index) if request.canonical_prompt_tokens is None else None)
        if source is not None:
            rest = effective_tokens(request) - (request.cached_tokens or 0)
            tokens = (out.lengths[visible(source)] or out.lengths[live(source)]) + rest
        out.lengths[canonical(index)], out.lengths[live(index)] = tokens, lives[index]
        if index in shown:
            out.lengths[visible(index)] = tokens + shown[index]
            if index in thought and tokens:
                out.dropped[index] = 1
    return out
