"""`Asked` records: what each request of a log asked, from ropes, arrivals and what its lines say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from parser.reading import Reading
from parser.request import Request
from replay.arrivals import Arrivals
from replay.evidence import Evidence
from replay.marks import Between
from replay.rope import Piece, Rope, join, length, rest
from replay.strings import canonical, live, visible
from replay.weave import Woven
from replay.workload import FINISHES, Asked, Image


@dataclass(slots=True)
class Parts:
    """What the steps before found, by request index."""

    reading: Reading
    evidence: Evidence
    woven: Woven
    arrivals: Arrivals
    talk: Mapping[int, int]
    anchor: Mapping[int, int]
    #: index -> tool call ids, whether their raw text was kept
    calls: Mapping[int, tuple[tuple[str, ...], bool]]
    #: index -> tokens of the reply when its tool-call block began
    blocks: Mapping[int, Between]
    images: Mapping[int, tuple[Image, ...]]
    #: index -> tokens that its answer would have had besides those it has
    unsaid: Mapping[int, int]
    #: index -> words of what the log left open
    open_to: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


def asked(parts: Parts, index: int) -> Asked:
    """One request as its client sent it."""
    request = parts.evidence.requests[index]
    prompt = parts.woven.ropes[canonical(index)]
    calls, raw = parts.calls.get(index, ((), True))
    reply = _reply(parts, index)
    before = parts.arrivals.after.get(index)
    return Asked(
        request=request.request,
        prompt=prompt,
        reply=reply,
        generated=length(reply) if index in parts.unsaid else _generated(request, reply),
        conversation=f"c{parts.talk[index] + 1}",
        api=_api(parts, index),
        tools="TOOLS" in request.flags,
        thinking=_thinking(parts, index),
        stream=_stream(parts, request),
        shown=_shown(parts, index),
        drop=_drop(parts, index),
        anchor=parts.anchor.get(index),
        images=parts.images.get(index, ()),
        after=None if before is None else parts.evidence.requests[before].request,
        think_s=_rounded(parts.arrivals.think[index]) if before is not None else 0.0,
        arrival_s=None if before is not None else _arrival(parts, index),
        gives_up_s=_gives_up(parts, index),
        finish=request.finish if request.finish in FINISHES else "stop",
        stop_sequence=request.finish == "stop" and index in parts.evidence.emptied,
        calls=calls,
        results=_results(parts, index),
        tool_tail=_tool_tail(parts, index),
        tool_block=_tool_block(parts, index, length(reply)),
        raw_tools=raw,
        open_reasoning="THINKING" in request.flags,
        open_to=parts.open_to.get(index, ()),
    )


def _rounded(seconds: float) -> float:
    """Microseconds: more is noise, and a file should not show it."""
    return round(seconds, 6) + 0.0


def _arrival(parts: Parts, index: int) -> float:
    known = [at for at in parts.arrivals.arrival if at is not None]
    at = parts.arrivals.arrival[index]
    return _rounded(max(0.0, at - min(known))) if at is not None else 0.0


def _reply(parts: Parts, index: int) -> Rope:
    """What stands in the slot behind the effective prompt."""
    request = parts.evidence.requests[index]
    effective = request.prompt_tokens or request.canonical_prompt_tokens or 0
    said = rest(parts.woven.ropes[live(index)], effective)
    unsaid = parts.unsaid.get(index, 0)
    return join(said, [Piece(f"x{request.request}", 0, unsaid)]) if unsaid else said


def _generated(request: Request, reply: Rope) -> int:
    """As printed; a log that does not say it shows what the slot held behind the prompt."""
    return length(reply) if request.generated_tokens is None else min(request.generated_tokens, length(reply))


def _shown(parts: Parts, index: int) -> Rope | None:
    rope = parts.woven.ropes[visible(index)]
    if not rope:
        return None
    return rest(rope, length(parts.woven.ropes[canonical(index)]) - _drop(parts, index))


def _drop(parts: Parts, index: int) -> int:
    return parts.evidence.dropped.get(index, 0)


def _api(parts: Parts, index: int) -> str:
    """What the log's lines say, then what a trace's body looks like."""
    request = parts.evidence.requests[index]
    if "RESPPROTO" in request.flags:
        return "responses"
    ids = parts.calls.get(index, ((), True))[0] + _results(parts, index)
    if request.source == "anthropic-tool-output" or any(call[:6] == "toolu_" for call in ids):
        return "anthropic"
    if request.api == "completion":
        return "completion"
    record = parts.reading.trace.get(request.request)
    said = record.hints.get("api") if record is not None else None
    return "anthropic" if said == "anthropic" else "chat"


def _thinking(parts: Parts, index: int) -> bool:
    request = parts.evidence.requests[index]
    record = parts.reading.trace.get(request.request)
    if record is not None and record.think_mode is not None:
        return record.think_mode != "none"
    return index in parts.evidence.thought or "THINKING" in request.flags


def _stream(parts: Parts, request: Request) -> bool:
    record = parts.reading.trace.get(request.request)
    return True if record is None or record.stream is None else record.stream


def _results(parts: Parts, index: int) -> tuple[str, ...]:
    """The results at the prompt's end answer the calls of the request before in the conversation."""
    before = parts.evidence.occupant.get(index)
    if parts.evidence.requests[index].source in ("anthropic-tool-output", "responses-tool-output"):
        return parts.calls.get(before, ((), True))[0] if before is not None else ()
    return ()


def _tool_tail(parts: Parts, index: int) -> int:
    request = parts.evidence.requests[index]
    if not _results(parts, index):
        return 0
    return (request.prompt_tokens or 0) - (request.cached_tokens or 0)


def _tool_block(parts: Parts, index: int, reply: int) -> tuple[int, ...]:
    """From where the log has it, to the reply's end."""
    begins = parts.blocks.get(index)
    return () if begins is None else (min(round(begins.middle), reply), reply)


def _gives_up(parts: Parts, index: int) -> float | None:
    request = parts.evidence.requests[index]
    arrival, start = parts.arrivals.arrival[index], parts.arrivals.start[index]
    if not request.client_gone or arrival is None or start is None:
        return None
    return _rounded(start - arrival + parts.arrivals.spans.lasted[index])
