"""Events: what one line of a log says. Columns for bulk (`EventLog`), objects at the edges (`Event`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

#: Every event kind of `docs/outputs.md`; `foreign` is another program or prose, `unknown` a line with
#: ds4-server's head that no rule knows.
KINDS: Final = (
    "live_miss", "live_rewind", "live_continuation", "multimodal_hit",
    "kv_stored", "kv_hit", "kv_evicted", "kv_skipped", "kv_failed", "kv_discarded",
    "prompt_start", "prefill_chunk", "prompt_done", "decoding", "finish",
    "tool_calls", "tool_repair", "checkpoint", "stream_error", "slot_evicting",
    "decode_batch", "vision_cache", "startup", "shutdown", "foreign", "unknown",
)  # fmt: skip

#: Kinds that make up nearly all lines of a long log; kept as columns, never as objects.
BULK_KINDS: Final = ("prefill_chunk", "decoding", "decode_batch")


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    `line` is 1-based in its source, `offset`/`length` are bytes of the (decompressed) source, so the raw
    line can be found again. `stamp` is as printed ("1130 17:52:23", "17:52:23") or None. `rule` is the
    grammar rule (finer than `kind`: "miss", "stored", "rewound", ...). `fields` holds the typed fields
    under the names of `docs/outputs.md`; a field that the line elides is None or absent. `extra` holds
    `key=value` pairs that the rule does not know. `text` is the message after wrappers, stamp and program
    name were taken off (bounded, unsanitised: pass it through `parser.sanitise` before it is shown).
    `excerpt` numbers the fences, quotes and blocks of a report (0 for a plain log); `place` says how
    strongly the line counts: "log", "excerpt" (fence, quote, indented block), "inline" (back quotes in prose).
    """

    seq: int
    line: int
    offset: int
    length: int
    source: int
    stamp: str | None
    kind: str
    rule: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    excerpt: int = 0
    place: str = "log"

    def get(self, name: str) -> Any:
        """The field `name`, or None where the line does not say."""
        return self.fields.get(name)
