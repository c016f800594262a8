"""Workload: what the clients asked, and nothing that the server decided. `docs/workload.md`.

Token strings are ropes of shared segments (`replay.rope`). A segment has a length and an identity, never its
text: two ropes share as many tokens as their leading pieces agree. A segment may be the *twin* of another
(`text`): same bytes, other tokens - how a sampled reply differs from the same reply sent back and tokenised
anew. So the canonical prompt and the reply that was sampled are kept apart, and each policy makes its own
effective prompt. Read and written by `replay.workload_file`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from replay.rope import Rope, length

SCHEMA: Final = 1
APIS: Final = ("chat", "completion", "responses", "anthropic")
FINISHES: Final = ("stop", "length", "tool_calls", "error")
FAMILIES: Final = ("deepseek-v4", "deepseek-v4-pro", "glm", "qwen-next")
#: public log lines show about 4.27 bytes of text a token (R4.4)
BYTES_PER_TOKEN: Final = 4.27


@dataclass(frozen=True, slots=True)
class Segment:
    """`tokens` tokens that always stand together; `id` is opaque and carries no text.

    `bytes` is the length of their text (None: not known, `Workload.bytes_per_token` is taken; never fewer
    than one a token). `text` names the text: segments with the same `text` are twins (equal bytes, other
    tokens); None means a text of its own. `tool_map` is the bytes of a tool map that a disk file holding this
    segment carries (R3.34, R4.20); 0 for no tool call.
    """

    id: str
    tokens: int
    bytes: int | None = None
    text: str | None = None
    tool_map: int = 0


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a prompt: its tokens are `at .. at + tokens` of the canonical prompt; `fingerprint` is the
    identity of its exact bytes (R3.14), opaque."""

    at: int
    tokens: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Fault:
    """Not the clients' doing nor a decision of the server: its accelerator failed. `phase` is "prefill" or
    "decode", `after` the tokens of that phase that were done (R1.4, R4.14, R6.6)."""

    phase: str
    after: int


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as a client sent it. Tokens, seconds.

    `request` is its number (unique, 1-based, the order of the source log). `prompt` is canonical: the text of
    the request tokenised from nothing. `reply` is what the server samples and evaluates: it stands after the
    effective prompt in the live state, whatever that is (R3.36; after a tool-error retry it is longer than
    `generated`). `shown` is the reply as a later prompt would hold it, in canonical tokens, in place of the
    prompt's last `drop` tokens (1 for a closing `<think>`): the visible key (R3.30, R3.32); None if it is not
    known. `anchor` is the tokens before the last user message that precedes the first assistant
    message (R5.1); None if the prompt has no such roles.

    Arrival: `after` (a request) + `think_s` for a closed loop: that long after the answer of `after` ended;
    or `arrival_s` for a request that waited for nobody. `gives_up_s`: the client leaves that long after its
    arrival if it has no complete answer by then. `stream`: the answer is streamed (R6.11).

    `calls` are ids of the reply's tool calls, `results` ids of the tool results at the prompt's end, whose
    tokens are the prompt's last `tool_tail`; `needs_live`: the request does not replay the calls of `results`
    (R2.5). `raw_tools`: the sampled tool text is remembered (R3.35 does not apply). `keeps_reasoning`: the
    prompt already preserves reasoning; `open_reasoning`: the reply's reasoning never closed (both R3.32).
    `tool_block`: (from, to), the tokens of the reply inside a tool-call block, () for none (R5.2).
    `stop_sequence`: a client's stop sequence ended the reply, which invalidates the session (R3.36).
    `open_to` lists what the source left open, in words of `docs/workload.md`; the value here is the default.
    """

    request: int
    prompt: Rope
    reply: Rope = ()
    generated: int = 0
    conversation: str | None = None
    api: str = "chat"
    tools: bool = False
    thinking: bool = False
    stream: bool = True
    shown: Rope | None = None
    drop: int = 0
    anchor: int | None = None
    images: tuple[Image, ...] = ()
    after: int | None = None
    think_s: float = 0.0
    arrival_s: float | None = None
    gives_up_s: float | None = None
    finish: str = "stop"
    stop_sequence: bool = False
    tool_block: tuple[int, ...] = ()
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    needs_live: bool = False
    tool_tail: int = 0
    raw_tools: bool = True
    keeps_reasoning: bool = False
    open_reasoning: bool = False
    fault: Fault | None = None
    open_to: tuple[str, ...] = ()

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the canonical prompt."""
        return length(self.prompt)


@dataclass(frozen=True, slots=True)
class Stop:
    """The operator stops the server and, unless this is the end, starts it again: slots are empty, files stay.

    When: just before request `before` is sent, or (a stop that interrupted requests) `delay_s` after request
    `after` was sent, and then no request from number `before` on is sent earlier; with neither, when the last
    request has ended. `clean`: SIGTERM, so running requests are cut off and resident sessions persisted (R5.5);
    else the process was killed. `down_s`: seconds until it serves again.
    """

    before: int | None = None
    after: int | None = None
    delay_s: float = 0.0
    clean: bool = True
    down_s: float = 0.0


@dataclass(frozen=True, slots=True)
class KnownFile:
    """An assumption: a checkpoint that lay in the disk directory before the first request.

    `key` is its text as a rope of this workload's segments, or None: it takes room and can be evicted, but
    nothing is known to match it. `state` are its tokens, where they are not those of `key` (a visible key).
    `age_s` is the seconds since its last use at the start.
    """

    id: str
    tokens: int
    size_bytes: int
    reason: str = "unknown"
    hits: int = 0
    age_s: float = 0.0
    key: Rope | None = None
    state: Rope | None = None


@dataclass(frozen=True)
class Workload:
    """Requests (by number), the segments of their ropes, operator stops, assumed files, and hints.

    `family` and `ctx` say what the source's server served (None: not known); they are hints, a replay may
    take others. `origin_s` is the fraction of a wall-clock second at virtual time 0 (scores and idle times
    count whole seconds). `notes` say in plain words what could not be reconstructed and what rests on it.
    """

    segments: Mapping[str, Segment]
    requests: tuple[Asked, ...]
    stops: tuple[Stop, ...] = ()
    files: tuple[KnownFile, ...] = ()
    family: str | None = None
    ctx: int | None = None
    bytes_per_token: float = BYTES_PER_TOKEN
    origin_s: float = 0.0
    notes: tuple[str, ...] = field(default=())

    @cached_property
    def by_number(self) -> Mapping[int, Asked]:
        """Request by its number."""
        return {asked.request: asked for asked in self.requests}

    def text_bytes(self, segment: Segment) -> int:
        """Bytes of the segment's text: known, or by `bytes_per_token`; never fewer than one a token."""
        guess = segment.tokens * self.bytes_per_token if segment.bytes is None else segment.bytes
        return max(round(guess), segment.tokens)
