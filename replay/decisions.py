"""The decision log: what a replay did, step by step, for step-through, tensors and exported logs.

Every record has `at_s`, seconds of the virtual clock, and where it belongs to one the `request` and `slot`.
They stand in the order in which the model did them; ropes let a backend carry them out.
"""

from __future__ import annotations

from dataclasses import dataclass

from replay.rope import Rope


@dataclass(frozen=True, slots=True)
class Started:
    """A server process begins: every slot is empty. `run` counts from 0."""

    at_s: float
    run: int
    slots: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """A client sent a request."""

    at_s: float
    request: int


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A request gets a slot (R2.3). `scores` by slot, None for an ineligible one; `evicting`: the score is below
    0 and the slot holds a valid state of `live` tokens, idle for `idle_s` (R2.22)."""

    at_s: float
    request: int
    slot: int
    scores: tuple[int | None, ...]
    evicting: bool
    live: int
    idle_s: int


@dataclass(frozen=True, slots=True)
class Refused:
    """No slot's state is touched: the prompt does not fit the context (R2.1), or HTTP 409 (step 4)."""

    at_s: float
    request: int
    slot: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Missed:
    """LC3: nothing in memory is reusable. `fit` is the image check (`vision=`)."""

    at_s: float
    request: int
    slot: int
    live: int
    prompt: int
    common: int
    fit: bool


@dataclass(frozen=True, slots=True)
class Rewound:
    """LC1: the live state is cut from `live` to `kept` tokens."""

    at_s: float
    request: int
    slot: int
    live: int
    kept: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint is written (DS1). `trimmed` tokens of the prompt are not in it; `request` is None for a
    shutdown store. `silent`: the identical file exists, nothing is written and no line printed."""

    at_s: float
    request: int | None
    slot: int
    tokens: int
    trimmed: int
    reason: str
    key: str
    file: str
    size: int
    seconds: float
    silent: bool
    state: Rope


@dataclass(frozen=True, slots=True)
class Skipped:
    """A store that does not happen: `why` is `budget` (DS6) or `checkpoint` (DS5)."""

    at_s: float
    request: int | None
    slot: int
    tokens: int
    reason: str
    size: int
    why: str


@dataclass(frozen=True, slots=True)
class EvictedFile:
    """A checkpoint file is deleted for room (DS12); `request` None: at shutdown or at the opening."""

    at_s: float
    request: int | None
    file: str
    tokens: int
    hits: int
    size: int


@dataclass(frozen=True, slots=True)
class Discarded:
    """DS13: the file of a disk hit is deleted, since the prefill after it failed or was cancelled."""

    at_s: float
    request: int
    file: str


@dataclass(frozen=True, slots=True)
class Restored:
    """DS9: a checkpoint is loaded into the slot. `consumed`: the hit deletes it (R4.12)."""

    at_s: float
    request: int
    slot: int
    file: str
    tokens: int
    text: int
    size: int
    seconds: float
    consumed: bool
    state: Rope


@dataclass(frozen=True, slots=True)
class Begun:
    """PF1: the effective prompt is known; its first `cached` tokens are reused."""

    at_s: float
    request: int
    slot: int
    source: str
    cached: int
    prompt: Rope


@dataclass(frozen=True, slots=True)
class Prefilled:
    """Positions `start..end` are evaluated, from `at_s` to `until_s`, in pieces of `quantum` (0: by chunk)."""

    at_s: float
    until_s: float
    request: int
    slot: int
    start: int
    end: int
    quantum: int


@dataclass(frozen=True, slots=True)
class PromptDone:
    """PF3."""

    at_s: float
    request: int
    slot: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """Positions `start..end` are sampled and evaluated, `batch` sequences a step."""

    at_s: float
    until_s: float
    request: int
    slot: int
    start: int
    end: int
    batch: int


@dataclass(frozen=True, slots=True)
class Reloaded:
    """R3.35: a checkpoint is loaded to bring the live state into its canonical form, after the reply.
    `consumed`: the hit deletes it (R4.12)."""

    at_s: float
    request: int
    slot: int
    file: str
    tokens: int
    consumed: bool
    state: Rope


@dataclass(frozen=True, slots=True)
class Canonicalised:
    """TK1-TK3: the live state becomes the canonical one of `target` tokens; `source` is `live`, `disk`, `full`."""

    at_s: float
    request: int
    slot: int
    source: str
    cached: int
    target: int
    state: Rope


@dataclass(frozen=True, slots=True)
class Finished:
    """FN: the last token is out. `live` tokens stay in the slot, as `state`; `bound` says what they answer to, `visible`
    the bytes of a thinking turn's key (LC9)."""

    at_s: float
    request: int
    slot: int
    finish: str
    generated: int
    live: int
    state: Rope
    bound: tuple[str, ...]
    visible: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer has ended at the client, or (`gone`) the client left; the slot is free."""

    at_s: float
    request: int
    gone: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """A server process ends (`clean`: sessions were persisted)."""

    at_s: float
    clean: bool


Decision = (
    Started | Arrived | Dispatched | Refused | Missed | Rewound | Stored | Skipped | EvictedFile | Discarded
    | Restored | Begun | Prefilled | PromptDone | Decoded | Reloaded | Canonicalised | Finished | Answered | Ended
)  # fmt: skip
