"""What a request's own lines say about it: fields of the row, from episode, `prompt start` and `finish`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parser.event import Event
from parser.losses import evicted_prefix
from parser.opens import Open, set_span
from parser.pending import Episode
from parser.request import Request, Store

_CONTINUATIONS = {
    ("responses", "visible-prefix"): "responses-visible",
    ("responses", "tool-output-ids"): "responses-tool-output",
    ("anthropic", "tool-output-ids"): "anthropic-tool-output",
    ("thinking", "visible-prefix"): "thinking-visible",
}
_TRACE_NAMES = {"none": "cold"}


def from_episode(opened: Open) -> None:
    """When a request is closed: what the lines before its `prompt start` say, and its source."""
    episode = opened.episode
    if episode is not None:
        opened.events[:0] = [event.seq for event in episode.events]
        opened.lines[:0] = [event.line for event in episode.events]
        opened.first = min([opened.first, *(event.seq for event in episode.events)])
        opened.row.evicted_files += tuple(e.seq for e in episode.events if e.kind == "kv_evicted")
        _decision(opened, episode)
        opened.row.evicted_prefix = evicted_prefix(episode.events, opened.row.common)
    reuse(opened.row)
    opened.row.live_after = live_after(opened)


def _decision(opened: Open, episode: Episode) -> None:
    row = opened.row
    if episode.miss is not None:
        row.live_before, row.common = episode.live, episode.miss.get("common")
        row.canonical_prompt_tokens = episode.prompt
        row.evicted_live_tokens = row.live_before
    _evict_store(opened, episode)
    if episode.hit is not None:
        row.disk_hit_tokens = episode.hit.get("tokens")
        row.load_ms = episode.hit.get("load_ms")
        row.hit_file = file_name(episode.hit.get("file"))
        row.source = "disk-text"
    if episode.note is not None:
        note(row, episode.note, episode.events)


def _evict_store(opened: Open, episode: Episode) -> None:
    event, row = episode.evict, opened.row
    if event is None:
        return
    row.evicted_live_tokens = event.get("tokens") if row.live_before is None else row.live_before
    if event.kind == "kv_stored":
        row.evict_stored = True
        opened.stores.insert(0, store_of(event))


def note(row: Request, said: Event, events: list[Event]) -> None:
    """A rewind, continuation or image line among the lines before its `prompt start`."""
    if said.kind == "live_rewind":
        row.live_before = said.get("from") if said.get("from") is not None else said.get("live")
        row.source = "memory-rewind" if said.rule in ("rewound", "point_hit") else row.source
        return
    for event in events:
        if row.prompt_tokens is None and event.get("prompt") is not None and event.get("cached") is not None:
            row.prompt_tokens, row.cached_tokens = event.get("prompt"), event.get("cached")
            row.prefilled_tokens = max(0, event.get("prompt") - event.get("cached"))
        if event.kind == "multimodal_hit":
            row.images = event.get("images")
            row.source = row.source or "memory"
        elif event.rule == "continuation":
            row.source = _CONTINUATIONS.get((str(event.get("protocol")), str(event.get("match"))), "memory")
        elif event.rule == "replay" and event.get("source"):
            name = str(event.get("source"))
            row.source = _TRACE_NAMES.get(name, name)


def reuse(row: Request) -> None:
    """Source from the log alone: cold, disk-text, what a continuation line names, else memory."""
    cached = row.cached_tokens
    if cached is None:
        return
    if cached == 0:
        row.source = "cold"
        row.canonical_prompt_tokens = row.canonical_prompt_tokens or row.prompt_tokens
    elif row.source is None or (row.source == "disk-text" and row.disk_hit_tokens != cached):
        row.source = "disk-text" if row.common is not None else "memory"
    if row.source.startswith(("memory", "responses", "anthropic", "thinking")) and row.live_before is None:
        row.live_before = cached  # R3.1: what memory gives is the whole live length


def known_zeros(row: Request, needs: int | None) -> None:
    """What a whole log tells by saying nothing: no load, nothing overwritten, an empty slot (`needs` 0)."""
    if row.source is None or row.prompt_line is None:
        return
    row.disk_hit_tokens = row.disk_hit_tokens or 0
    if needs == 0:
        row.live_before = 0
    if row.evicted_live_tokens is None and (needs == 0 or row.source not in ("cold", "disk-text")):
        row.evicted_live_tokens = 0


def begin_row(opened: Open, event: Event) -> None:
    """Span and flags of the line that begins the request (`prompt start` where it is in the input)."""
    row = opened.row
    row.flags = tuple(event.get("flags") or ())
    if event.kind == "prompt_start":
        row.prompt_line = event.line
    set_span(opened)


def finish_row(opened: Open, event: Event, at: float | None) -> None:
    """FN1, FN2."""
    row = opened.row
    row.finish, row.error = event.get("finish"), event.get("error")
    row.generated_tokens, row.total_s = event.get("gen"), event.get("elapsed_s")
    row.flags = tuple(dict.fromkeys((*row.flags, *(event.get("flags") or ()))))
    if row.error in ("client stream write failed", "client disconnected"):
        row.client_gone = True


def store_of(event: Event) -> Store:
    """A DS1 line as a record."""
    get: Callable[[str], Any] = event.get
    return Store(
        get("tokens"), get("reason"), get("size_mib"), get("save_ms"), get("trimmed"), get("key"), event.seq
    )


def file_name(path: str | None) -> str | None:
    """The 40 hex digits of a checkpoint file, or its name as printed."""
    if path is None:
        return None
    name = path.rstrip().rsplit("/", 1)[-1]
    return name[:-3] if name.endswith(".kv") else name


def live_after(opened: Open) -> int | None:
    """R3.36: P + generated (+ appended), or the length that a checkpoint line names."""
    if opened.reset:
        return 0
    if opened.live_set is not None:
        return opened.live_set
    if opened.finish_seq is None or opened.row.prompt_tokens is None or opened.row.generated_tokens is None:
        return None
    return opened.row.prompt_tokens + opened.row.generated_tokens + opened.extra
