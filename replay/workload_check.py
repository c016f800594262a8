"""What must hold in a workload; each complaint says where, what, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from parser.errors import InputError
from replay.rope import Rope, length
from replay.workload import APIS, FAMILIES, FINISHES, Asked, Workload

_PROBLEM = tuple[str, str, str]


def check(workload: Workload, *, path: str | None = None) -> None:
    """Raise InputError for the first thing that cannot be replayed."""
    for where, what, hint in _problems(workload):
        _fail(path, where, what, hint)


def _fail(path: str | None, where: str, what: str, hint: str) -> NoReturn:
    raise InputError("E-WORKLOAD", f"{where}: {what}", path=path, hint=hint)


def _problems(workload: Workload) -> Iterator[_PROBLEM]:
    if workload.family is not None and workload.family not in FAMILIES:
        yield "workload", f"family {workload.family!r} is not known", f"one of {', '.join(FAMILIES)}, or none"
    yield from _segments(workload)
    seen: set[int] = set()
    for asked in workload.requests:
        where = f"request {asked.request}"
        if asked.request < 1 or asked.request in seen:
            yield where, "its number is not a new number from 1 on", "give every request its own number"
        yield from ((where, what, hint) for what, hint in _request(asked, seen))
        yield from ((where, what, hint) for what, hint in _ropes(asked, workload))
        seen.add(asked.request)
    for stop in workload.stops:
        for number in (stop.before, stop.after):
            if number is not None and number not in seen:
                yield "stop", f"names request {number}, which is not there", "name a request, or leave it out"
        if stop.before is not None and stop.after is not None and stop.after >= stop.before:
            yield (
                "stop",
                f"comes after request {stop.after} and before {stop.before}",
                "it ends what came earlier",
            )
    for file in workload.files:
        if file.tokens < 1 or file.size_bytes < 1:
            yield f"file {file.id}", "has no tokens or no bytes", "give both, as the log's `size=` says"
        state = file.key if file.state is None else file.state
        if file.key is not None and (not file.key or length(state or ()) != file.tokens):
            hint = "give its `key`, and its `state` if that has other tokens, or neither"
            yield f"file {file.id}", f"its ropes do not hold {file.tokens} tokens", hint
        for name, rope in (("key", file.key), ("state", file.state)):
            yield from ((f"file {file.id}", what, hint) for what, hint in _rope(name, rope or (), workload))


def _segments(workload: Workload) -> Iterator[_PROBLEM]:
    texts: dict[str, tuple[str, int]] = {}
    for segment in workload.segments.values():
        if segment.tokens < 1:
            yield f"segment {segment.id}", "has no tokens", "remove it, or give it at least one"
        if segment.text is None:
            continue
        other, size = texts.setdefault(segment.text, (segment.id, workload.text_bytes(segment)))
        if size != workload.text_bytes(segment):
            what = f"is a twin of {other} (text {segment.text!r}) but not of the same bytes"
            yield f"segment {segment.id}", what, "twins have equal `bytes`; state them in both"


def _request(asked: Asked, seen: set[int]) -> Iterator[tuple[str, str]]:
    if asked.api not in APIS:
        yield f"api {asked.api!r} is not known", f"one of {', '.join(APIS)}"
    if asked.finish not in FINISHES:
        yield f"finish {asked.finish!r} is not known", f"one of {', '.join(FINISHES)}"
    if asked.after is not None and asked.arrival_s is not None:
        yield "has both `after` and `arrival_s`", "keep one: it waits for an answer, or it comes at a time"
    if asked.after is not None and asked.after not in seen:
        yield (
            f"waits for request {asked.after}, which is not above it",
            "give it `arrival_s`, or `after` another request",
        )
    if asked.tool_block and (len(asked.tool_block) != 2 or asked.tool_block[0] > asked.tool_block[1]):
        yield "its `tool_block` is no span", "give [from, to] in tokens of the reply, or leave it out"
    if asked.fault is not None and asked.fault.phase not in ("prefill", "decode"):
        yield f"fault in phase {asked.fault.phase!r}", "one of prefill, decode"


def _ropes(asked: Asked, workload: Workload) -> Iterator[tuple[str, str]]:
    for name, rope in (("prompt", asked.prompt), ("reply", asked.reply), ("shown", asked.shown)):
        yield from _rope(name, rope or (), workload)
    tokens = asked.prompt_tokens
    if not tokens:
        yield "has an empty prompt", "give it at least one segment"
    if asked.generated > length(asked.reply):
        yield "generates more tokens than its reply holds", "`generated` counts tokens of `reply`"
    for name in ("anchor", "drop", "tool_tail"):
        if (getattr(asked, name) or 0) > tokens:
            yield (
                f"`{name}` is beyond its prompt of {tokens} tokens",
                "count it in tokens of the canonical prompt",
            )
    end = 0
    for image in asked.images:
        if image.at < end or image.at + image.tokens > tokens:
            yield (
                f"image at {image.at} overlaps another or leaves the prompt",
                "list images in order, as spans",
            )
        end = image.at + image.tokens


def _rope(name: str, rope: Rope, workload: Workload) -> Iterator[tuple[str, str]]:
    for piece in rope:
        segment = workload.segments.get(piece.segment)
        if segment is None:
            yield f"`{name}` names segment {piece.segment!r}, which is not there", "add the segment"
        elif not 0 <= piece.start < piece.end <= segment.tokens:
            yield (
                f"`{name}` cuts segment {piece.segment!r} outside its {segment.tokens} tokens",
                "0 <= start < end",
            )
