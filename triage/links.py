"""Which request sat in the slot before: P', gen' and how it ended (mechanisms section 1, chaining).

The parser's slot chain is used where it has one. An excerpt often has none (no finish line, no start), so
what the numbers allow is tried next: P' + gen' equal to L, else the request just before with P' <= L.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from parser.event import Event
from parser.request import Request
from triage.episodes import Episode, Previous

#: how many requests back an excerpt's predecessor is looked for
_REACH: Final = 8
#: the longest reply that is believed where its length is not in the log
_REPLY: Final = 16_384


def _from_request(request: Request, how: str, finish_flags: dict[int, tuple[str, ...]]) -> Previous:
    assert request.prompt_tokens is not None or request.canonical_prompt_tokens is not None
    prompt = request.prompt_tokens if request.prompt_tokens is not None else request.canonical_prompt_tokens
    flags = finish_flags.get(request.request, request.flags)
    return Previous(
        int(prompt or 0),
        request.generated_tokens,
        request.finish,
        flags,
        how,
        request.request,
        request.images,
    )


def _known_prompt(request: Request) -> int | None:
    return request.prompt_tokens if request.prompt_tokens is not None else request.canonical_prompt_tokens


def _meets(request: Request, live: int) -> bool:
    prompt = _known_prompt(request)
    if prompt is None:
        return False
    if request.generated_tokens is not None:
        return abs(prompt + request.generated_tokens - live) <= 1
    return 0 <= live - prompt <= _REPLY


def previous_of(
    episode: Episode,
    earlier: Sequence[Request],
    by_number: dict[int, Request],
    finish_flags: dict[int, tuple[str, ...]],
) -> Previous | None:
    """The request before `episode` in its slot, or None. `earlier` are the requests before it, in order."""
    live = episode.live
    slot_mate = by_number.get(episode.request.previous_in_slot or -1)
    if slot_mate is not None and _known_prompt(slot_mate) is not None:
        return _from_request(slot_mate, "slot", finish_flags)
    if live is None:
        return None
    near = [r for r in earlier[-_REACH:] if _meets(r, live)]
    exact = [r for r in near if r.generated_tokens is not None]
    if exact:
        return _from_request(exact[-1], "slot", finish_flags)
    if near and near[-1] is earlier[-1]:
        return _from_request(near[-1], "excerpt", finish_flags)
    return _from_lines(episode, live)


def _from_lines(episode: Episode, live: int) -> Previous | None:
    """P' from another line with a span (a repair, tool calls) between the requests of an excerpt."""
    spans: list[Event] = [
        e
        for e in episode.before
        if e.get("span_end") is not None and 0 <= live - int(e.get("span_end")) <= _REPLY
    ]
    if not spans:
        return None
    last = spans[-1]
    finish = "tool_calls" if any(e.kind == "tool_calls" for e in spans) else None
    return Previous(int(last.get("span_end")), None, finish, tuple(last.get("flags") or ()), "line")
