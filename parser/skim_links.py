"""Which request a rare line belongs to, by the numbers it bears (log-formats section 6)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from parser.event import Event
from parser.losses import evicted_prefix
from parser.request import Request
from parser.rows import file_name, note, reuse, store_of
from parser.skim_match import Begun

#: how many starts ahead, or behind, a line's request is looked for
_REACH: Final = 24
#: a text-keyed hit keeps sampled tokens: P may differ from the canonical prompt by this share
_RETOKENISED: Final = 0.1
#: a line whose request has not started waits for it, if it stands so few events before the last start
_NEAR: Final = 500
_AHEAD: Final = ("live_rewind", "live_continuation", "multimodal_hit", "slot_evicting")
_NOTES: Final = ("live_rewind", "live_continuation", "multimodal_hit")
_BEHIND: Final = ("tool_repair", "stream_error", "checkpoint")


class Links:
    """The rare lines of a stretch, given to its requests (in order of start)."""

    def __init__(self, begun: Sequence[Begun]) -> None:
        self.seqs: list[int] = [b.seq for b in begun]
        self.prompts: list[int] = [b.span[1] for b in begun]
        self.starts: list[int] = [b.span[0] if b.span[2] is None else b.span[1] - b.span[2] for b in begun]
        self.gens: list[int] = [(b.finish.gen or 0) if b.finish is not None else 0 for b in begun]
        self.own: dict[int, list[Event]] = {}
        self.missed: dict[int, Event] = {}

    def give(self, rare: Sequence[Event], *, final: bool) -> list[Event]:
        """Gives each line away; returns those whose request may come with the next stretch."""
        waiting: list[Event] = []
        near = (self.seqs[-1] if self.seqs else 0) - _NEAR
        for event in rare:
            index = self._index(event)
            if index is not None:
                self.own.setdefault(index, []).append(event)
                if event.kind == "live_miss":
                    self.missed[index] = event
            elif not final and event.seq > near and event.kind not in ("startup", "shutdown"):
                waiting.append(event)
        return waiting

    def _index(self, event: Event) -> int | None:
        if event.kind == "live_miss":
            return self._missing(event)
        if event.kind in _AHEAD:
            return self._ahead(event.seq, _fits(event))
        if event.kind == "kv_hit":
            tokens = event.get("tokens")
            found = self._ahead(event.seq, lambda s, p: s == tokens)
            return found if found is not None else self._open_miss(event.seq)
        if event.kind == "kv_stored":
            return self._stored(event)
        if event.kind in ("kv_evicted", "kv_skipped", "kv_failed", "kv_discarded"):
            open_ = self._open_miss(event.seq)
            return open_ if open_ is not None else self._behind(event.seq, lambda s, p: True)
        if event.kind in _BEHIND and event.get("span_end") is not None:
            end = event.get("span_end")
            return self._behind(event.seq, lambda s, p: p == end)
        return None

    def _missing(self, event: Event) -> int | None:
        """The next start without a miss line whose prompt is nearest to the miss line's (canonical) one."""
        prompt, first = event.get("prompt"), bisect_right(self.seqs, event.seq)
        ahead = [i for i in range(first, min(first + 8, len(self.seqs))) if i not in self.missed]
        if prompt is None or not ahead:
            return None
        best = min(ahead, key=lambda i: (abs(self.prompts[i] - prompt), i))
        return best if abs(self.prompts[best] - prompt) <= max(16, int(prompt * _RETOKENISED)) else None

    def _ahead(self, seq: int, fits: Callable[[int, int], bool]) -> int | None:
        """The next start that fits."""
        first = bisect_right(self.seqs, seq)
        for index in range(first, min(first + _REACH, len(self.seqs))):
            if fits(self.starts[index], self.prompts[index]):
                return index
        return None

    def _behind(self, seq: int, fits: Callable[[int, int], bool]) -> int | None:
        last = bisect_left(self.seqs, seq) - 1
        for index in range(last, max(-1, last - _REACH), -1):
            if fits(self.starts[index], self.prompts[index]):
                return index
        return None

    def _open_miss(self, seq: int) -> int | None:
        """The request whose miss line stands before `seq` and whose start behind it."""
        first = bisect_right(self.seqs, seq)
        for index in range(first, min(first + 4, len(self.seqs))):
            if index in self.missed and self.missed[index].seq < seq:
                return index
        return None

    def _stored(self, event: Event) -> int | None:
        tokens = event.get("tokens")
        if event.get("reason") == "evict":
            return self._open_miss(event.seq)
        if event.get("reason") == "shutdown" or tokens is None:
            return None
        last = bisect_left(self.seqs, event.seq) - 1
        for index in range(last, max(-1, last - 8), -1):
            if self.starts[index] < tokens <= self.prompts[index] + self.gens[index]:
                return index
        return None

    def fill(self, row: Request, index: int) -> None:
        """Puts what its rare lines say into the row, and where its reused tokens come from."""
        events = self.own.get(index)
        if events:
            started = row.events[0]
            for event in events:
                _apply(row, event)
            early = [e for e in events if e.seq < started]
            said = next((e for e in early if e.kind in _NOTES), None)
            if said is not None:
                note(row, said, early)
            row.evicted_prefix = evicted_prefix(early, row.common)
            row.events = tuple(sorted({*row.events, *(e.seq for e in events)}))
            row.lines = tuple(sorted({*row.lines, *(e.line for e in events)}))
            row.line = row.lines[0]
        reuse(row)


def _fits(event: Event) -> Callable[[int, int], bool]:
    """Whether a start (S, P) can be the one that the line announces."""
    prompt, cached = event.get("prompt"), event.get("cached")
    if event.kind == "live_rewind":
        to = event.get("to")
        return lambda s, p: s == to or p == (to or 0) + 1
    if cached is not None:
        return lambda s, p: s == cached
    if prompt is None:
        return lambda s, p: True
    return lambda s, p: p == prompt


def _apply(row: Request, event: Event) -> None:
    match event.kind:
        case "live_miss":
            row.live_before, row.common = event.get("live"), event.get("common")
            row.canonical_prompt_tokens = event.get("prompt")
            row.evicted_live_tokens = event.get("live")
        case "kv_hit":
            row.disk_hit_tokens, row.load_ms = event.get("tokens"), event.get("load_ms")
            row.hit_file, row.source = file_name(event.get("file")), "disk-text"
        case "kv_stored":
            row.stores = (*row.stores, store_of(event))
            if event.get("reason") == "evict":
                row.evict_stored = True
                row.evicted_live_tokens = event.get("tokens") if row.live_before is None else row.live_before
        case "kv_evicted":
            row.evicted_files = (*row.evicted_files, event.seq)
        case "stream_error":
            row.client_gone = True
