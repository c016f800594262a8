"""Requests: one row a request, joined from its events (`docs/outputs.md`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: Where the reused tokens came from; `memory` where the log cannot tell token from text.
SOURCES = (
    "cold", "memory", "memory-token", "memory-text", "memory-rewind", "thinking-visible",
    "responses-visible", "responses-tool-output", "anthropic-tool-output", "disk-text",
)  # fmt: skip

#: keys of files that are found by what a client sends back, which leaves their reasoning out (R3.30, R3.32)
VISIBLE_KEYS = ("thinking-visible", "responses-visible")


@dataclass(frozen=True, slots=True)
class Store:
    """One written checkpoint: `tokens`, `reason` (cold, continued, evict, shutdown), size in MiB, seq."""

    tokens: int
    reason: str
    size_mib: float | None = None
    save_ms: float | None = None
    trimmed: int | None = None
    key: str | None = None
    event: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """A request's chunk and decoding lines, reduced: what cost fitting needs of them (tokens, seconds, t/s).

    `first_done`/`first_s` is the first chunk line (the point a speed can be measured from), `last_*` the last
    one; `decode_s` and `decode_tps` stand on the last decoding line (elapsed since decode start, average).
    """

    chunks: int = 0
    first_done: int | None = None
    first_s: float | None = None
    last_done: int | None = None
    total: int | None = None
    last_s: float | None = None
    avg_tps: float | None = None
    decodes: int = 0
    decoded: int | None = None
    decode_s: float | None = None
    decode_tps: float | None = None


@dataclass(slots=True)
class Request:
    """One request. Null means "not known", never 0. Token counts are tokens, times are seconds.

    The first block is the stable output; the second block (below `lines`) is for the other packages.
    """

    request: int
    line: int
    start_s: float | None = None
    start_error_s: float | None = None
    api: str | None = None
    flags: tuple[str, ...] = ()
    prompt_tokens: int | None = None
    canonical_prompt_tokens: int | None = None
    cached_tokens: int | None = None
    prefilled_tokens: int | None = None
    source: str | None = None
    images: int | None = None
    generated_tokens: int | None = None
    finish: str | None = None
    prefill_s: float | None = None
    total_s: float | None = None
    slot: int | None = None
    slot_confidence: str = "ambiguous"
    slot_alternatives: tuple[int, ...] = ()
    conversation: str | None = None
    live_before: int | None = None
    common: int | None = None
    evicted_live_tokens: int | None = None
    evict_stored: bool = False
    disk_hit_tokens: int | None = None
    stores: tuple[Store, ...] = ()
    lost_to_cache_tokens: int | None = None
    changed_text_tokens: int | None = None
    lines: tuple[int, ...] = ()

    # -- inside ds4scope ---------------------------------------------------------------------------
    run: int = 0  # index into Reading.runs (one server process)
    excerpt: int = 0  # Event.excerpt of its first event
    end_s: float | None = None  # finish (or last sign of life), seconds from the first stamp
    events: tuple[int, ...] = ()  # Event.seq of the non-bulk events that belong to it, in file order
    previous_in_slot: int | None = None  # `request` of the predecessor in the same slot
    continues: int | None = None  # `request` whose live state or text this prompt extends
    live_after: int | None = None  # L = P + gen (+ corrections); None where unknown
    error: str | None = None  # text of finish=error
    client_gone: bool = False  # stream error, client disconnected, write failed
    load_ms: float | None = None
    hit_file: str | None = None  # 40 hex of the disk hit, or the file name as printed
    evicted_files: tuple[int, ...] = ()  # seq of kv_evicted events inside this request
    evicted_prefix: int = 0  # E of mechanisms section 1: own prefix deleted between miss and start
    mismatch_first: int | None = None  # first_mismatch_token of the trace
    trace_id: int | None = None
    progress: Progress = Progress()  # chunk and decoding lines, reduced
    prompt_line: int | None = None  # line of its `prompt start`
    decided_s: float | None = None  # stamp of its first line (cache decision), seconds from the first stamp
    why: dict[str, str] = field(default_factory=dict)  # inferred field -> reason and grade

    @staticmethod
    def stable_names() -> tuple[str, ...]:
        """The keys of `docs/outputs.md`, in order."""
        return _STABLE

    def as_dict(self) -> dict[str, Any]:
        """The row as `docs/outputs.md` has it; seconds to a millisecond."""
        row = {name: getattr(self, name) for name in _STABLE}
        for name in ("start_s", "start_error_s", "prefill_s", "total_s"):
            row[name] = None if row[name] is None else round(row[name], 3)
        row["stores"] = [
            {"tokens": store.tokens, "reason": store.reason, "size_mib": store.size_mib}
            for store in self.stores
        ]
        for name in ("flags", "slot_alternatives", "lines"):
            row[name] = list(row[name])
        return row


_STABLE = tuple(name for name in Request.__dataclass_fields__)[
    : list(Request.__dataclass_fields__).index("run")
]
