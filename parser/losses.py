"""What a request prefilled: lost to the cache (it was known a moment ago), or text no cache can help with."""

from __future__ import annotations

from collections.abc import Iterable

from parser.event import Event
from parser.request import Request

#: an evicted file belongs to the incoming prefix if it is no longer than C by more (mechanisms 3.2, rule 2)
_BEYOND: int = 16


def evicted_prefix(events: Iterable[Event], common: int | None) -> int:
    """E of mechanisms section 1: tokens of the longest checkpoint of this prompt's own beginning that was
    deleted between the miss and the `prompt start`."""
    if common is None:
        return 0
    lengths = [e.get("tokens") or 0 for e in events if e.kind == "kv_evicted"]
    return max((length for length in lengths if length <= common + _BEYOND), default=0)


def set_losses(row: Request, kept: int = 0) -> None:
    """Split the prefill: `lost` = max(C, E, H, kept) - S, at least 0; the rest is new or changed text.

    `kept` is what else is known of the prompt's beginning: the length of the conversation that it continues.
    Unknown S leaves `lost` unknown; P - C is the changed text even then.
    """
    prompt = row.canonical_prompt_tokens if row.prompt_tokens is None else row.prompt_tokens
    if row.prefilled_tokens is None or row.cached_tokens is None or prompt is None:
        if prompt is not None and row.common is not None:
            row.changed_text_tokens = max(0, prompt - row.common)
        return
    known = min(max(row.common or 0, row.evicted_prefix, row.disk_hit_tokens or 0, kept), prompt)
    row.lost_to_cache_tokens = min(row.prefilled_tokens, max(0, known - row.cached_tokens))
    row.changed_text_tokens = row.prefilled_tokens - row.lost_to_cache_tokens
