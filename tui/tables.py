"""Requests -> compact columns. Nothing here knows the axis: a position in time is a request and a phase of
it.

One row a request (`Tables.requests`), one a mark on the disk lane (`marks`), one a flow from an eviction to
the conversation's return (`flows`). Columns are Polars series; a million rows cost some hundred bytes each.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import polars as pl

from parser.request import SOURCES, Request, Store

#: Where within its request something happens: before the prefill (evict store, then load), then a share of
#: it.
BEFORE, LOADING, PREFILL, DECODE = range(4)
#: Kinds of marks on the disk lane.
STORED_EVICT, STORED, RESTORED, DELETED, STORED_LAST = range(5)
#: How a flow ends: the evicted state was read back whole, from an older checkpoint, not at all, deleted,
#: not needed yet.
FLOW_ENDS: Final = ("restored", "partly", "unused", "deleted", "waiting")
SURE: Final = {"certain": 0, "inferred": 1, "ambiguous": 2}
_SOURCE_INDEX: Final = {name: index for index, name in enumerate(SOURCES)}

#: column -> (type, attribute of a request); null means "not known"
_PLAIN: Final[dict[str, tuple[Any, str]]] = {
    "request": (pl.Int32, "request"),
    "line": (pl.Int64, "line"),
    "run": (pl.Int32, "run"),
    "slot": (pl.Int32, "slot"),
    "start_s": (pl.Float64, "start_s"),
    "error_s": (pl.Float32, "start_error_s"),
    "prefill_s": (pl.Float64, "prefill_s"),
    "total_s": (pl.Float64, "total_s"),
    "end_s": (pl.Float64, "end_s"),
    "prompt": (pl.Int64, "prompt_tokens"),
    "cached": (pl.Int64, "cached_tokens"),
    "fresh": (pl.Int64, "prefilled_tokens"),
    "generated": (pl.Int64, "generated_tokens"),
    "live_before": (pl.Int64, "live_before"),
    "common": (pl.Int64, "common"),
    "evicted": (pl.Int64, "evicted_live_tokens"),
    "saved": (pl.Boolean, "evict_stored"),
    "disk_hit": (pl.Int64, "disk_hit_tokens"),
    "lost": (pl.Int64, "lost_to_cache_tokens"),
    "changed": (pl.Int64, "changed_text_tokens"),
}
_TAKE: Final = attrgetter(*(attribute for _, attribute in _PLAIN.values()))
#: column -> (type, how a request says it)
_DERIVED: Final[dict[str, tuple[Any, Callable[[Request], Any]]]] = {
    "sure": (pl.Int8, lambda r: SURE.get(r.slot_confidence, 2)),
    "load_s": (pl.Float32, lambda r: (r.load_ms or 0.0) / 1000),
    "save_s": (pl.Float32, lambda r: _evict_save_s(r.stores) if r.stores else 0.0),
    "source": (pl.Int8, lambda r: _SOURCE_INDEX.get(r.source or "", -1)),
    "live_after": (pl.Int64, lambda r: _live_after(r)),
    "miss": (pl.Boolean, lambda r: is_miss(r)),
    "rewound": (pl.Boolean, lambda r: r.source == "memory-rewind"),
    "failed": (pl.Boolean, lambda r: r.finish == "error" or r.client_gone),
}
REQUEST_SCHEMA: Final = {
    **{name: kind for name, (kind, _) in (_PLAIN | _DERIVED).items()},
    "conv": pl.Int32,
    "evicted_conv": pl.Int32,
    "file": pl.Int16,
}
MARK_SCHEMA: Final = {
    "row": pl.Int64,
    "phase": pl.Int8,
    "share": pl.Float32,
    "kind": pl.Int8,
    "tokens": pl.Int64,
    "mib": pl.Float64,
}
FLOW_SCHEMA: Final = {
    "from_row": pl.Int64,
    "to_row": pl.Int64,
    "tokens": pl.Int64,
    "conv": pl.Int32,
    "end": pl.Int8,
}


def is_miss(request: Request) -> bool:
    """True where live state stood in the slot and none of it could be used (a miss line, `live_before` > 0).

    A rewind prints `live` too but reuses; a continuation has C > 0 from memory.
    """
    from_memory = (request.source or "").startswith(("memory", "thinking", "responses", "anthropic"))
    return bool(request.live_before) and not from_memory


def _live_after(request: Request) -> int | None:
    if request.live_after is not None:
        return request.live_after
    if request.prompt_tokens is None:
        return None
    return request.prompt_tokens + (request.generated_tokens or 0)


def _evict_save_s(stores: Sequence[Store]) -> float:
    return sum(store.save_ms or 0.0 for store in stores if store.reason == "evict") / 1000


@dataclass(frozen=True, slots=True)
class Deleted:
    """One checkpoint deleted from disk (`kv_evicted`): tokens and MiB as printed."""

    tokens: int | None
    mib: float | None


@dataclass(frozen=True, slots=True)
class Frozen:
    """The columns at one moment; nothing changes them any more."""

    requests: pl.DataFrame
    marks: pl.DataFrame
    flows: pl.DataFrame
    names: tuple[str, ...]


class Tables:
    """Grows by `add`; `freeze` gives what there is. Conversations are numbered by first appearance."""

    def __init__(self) -> None:
        self._parts: list[pl.DataFrame] = []
        self._marks: list[tuple[int, int, float, int, int | None, float]] = []
        self._mark_parts: list[pl.DataFrame] = []
        self._names: dict[str, int] = {}
        self._numbers: list[int] = []
        self._conversations: list[int] = []
        self._flows = _Flows()

    def __len__(self) -> int:
        return len(self._numbers)

    def add(
        self,
        requests: Sequence[Request],
        deleted: Mapping[int, Deleted] | None = None,
        files: Sequence[int] | None = None,
    ) -> None:
        """Add requests in order of their start; `deleted` maps `Event.seq` of `kv_evicted` to its figures,
        `files` says in which source each request stands (default: the first)."""
        if not requests:
            return
        convs = [self._number(request.conversation) for request in requests]
        base = len(self._numbers)
        self._numbers.extend(request.request for request in requests)
        self._conversations.extend(convs)
        evicted = [self._evicted_conversation(request) for request in requests]
        for row, (request, conv, gone) in enumerate(zip(requests, convs, evicted, strict=True), base):
            self._disk(row, request, deleted or {})
            self._flows.see(row, request, conv, gone)
        columns: dict[str, Any] = dict(zip(_PLAIN, zip(*map(_TAKE, requests), strict=True), strict=True))
        columns |= {name: [get(request) for request in requests] for name, (_, get) in _DERIVED.items()}
        columns |= {"conv": convs, "evicted_conv": evicted, "file": files or [0] * len(requests)}
        frame = pl.DataFrame(columns, schema=REQUEST_SCHEMA)
        self._parts.append(frame)
        self._mark_parts.append(pl.DataFrame(self._marks, schema=MARK_SCHEMA, orient="row"))
        self._marks.clear()

    def freeze(
        self,
        unfinished: Sequence[Request] = (),
        deleted: Mapping[int, Deleted] | None = None,
        files: Sequence[int] | None = None,
    ) -> Frozen:
        """The columns so far, as frames that later `add`s do not change; `unfinished` rows come after them
        this once."""
        if unfinished:
            preview = self._copy()
            preview.add(unfinished, deleted, files)
            return preview.freeze()
        self._parts = _merged(self._parts, REQUEST_SCHEMA)
        self._mark_parts = _merged(self._mark_parts, MARK_SCHEMA)
        flows = pl.DataFrame(self._flows.rows(), schema=FLOW_SCHEMA, orient="row")
        return Frozen(self._parts[0], self._mark_parts[0], flows, tuple(self._names))

    def _copy(self) -> Tables:
        """Columns are shared, what grows is not."""
        other = Tables()
        other._parts, other._mark_parts = list(self._parts), list(self._mark_parts)
        other._names, other._numbers = dict(self._names), list(self._numbers)
        other._conversations, other._flows = list(self._conversations), self._flows.copy()
        return other

    def _number(self, label: str | None) -> int:
        return -1 if label is None else self._names.setdefault(label, len(self._names))

    def _evicted_conversation(self, request: Request) -> int:
        """Conversation of the predecessor in the slot (-1: not known)."""
        if request.previous_in_slot is None:
            return -1
        row = bisect_left(self._numbers, request.previous_in_slot)
        found = row < len(self._numbers) and self._numbers[row] == request.previous_in_slot
        return self._conversations[row] if found else -1

    def _disk(self, row: int, request: Request, deleted: Mapping[int, Deleted]) -> None:
        for seq in request.evicted_files:
            gone = deleted.get(seq, Deleted(None, None))
            self._flows.delete(row, gone.tokens)
            self._marks.append((row, BEFORE, 0.0, DELETED, gone.tokens, -(gone.mib or 0.0)))
        for store in request.stores:
            phase, share = _when(store, request)
            kind = (
                STORED_EVICT
                if store.reason == "evict"
                else STORED_LAST
                if store.reason == "shutdown"
                else STORED
            )
            self._marks.append((row, phase, share, kind, store.tokens, store.size_mib or 0.0))
        if request.disk_hit_tokens:
            self._marks.append((row, LOADING, 0.0, RESTORED, request.disk_hit_tokens, 0.0))


def _merged(parts: list[pl.DataFrame], schema: dict[str, Any]) -> list[pl.DataFrame]:
    return [pl.concat(parts, rechunk=True)] if parts else [pl.DataFrame(schema=schema)]


def _when(store: Store, request: Request) -> tuple[int, float]:
    """Phase and share of it at which a checkpoint of `store.tokens` was written: the frontier passes it
    then."""
    if store.reason == "evict":
        return BEFORE, 0.0
    if store.reason == "shutdown":
        return DECODE, 1.0
    cached, prompt = request.cached_tokens or 0, request.prompt_tokens or 0
    if store.tokens <= prompt:
        return PREFILL, _share(store.tokens - cached, prompt - cached)
    return DECODE, _share(store.tokens - prompt, request.generated_tokens or 0)


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 1.0


@dataclass(slots=True)
class _Parked:
    row: int
    tokens: int
    conv: int


class _Flows:
    """Follows what was evicted until its conversation comes back.

    One conversation has at most one state parked: it ends when the conversation's next request starts,
    whatever that request found. A state that a request evicted from its own conversation counts only if it
    is read back.
    """

    def __init__(self) -> None:
        self._by_conversation: dict[int, _Parked] = {}
        self._by_tokens: dict[int, _Parked] = {}
        self._done: list[tuple[int, int, int, int, int]] = []

    def copy(self) -> _Flows:
        """One that goes its own way from here."""
        other = _Flows()
        other._by_conversation, other._by_tokens = dict(self._by_conversation), dict(self._by_tokens)
        other._done = list(self._done)
        return other

    def see(self, row: int, request: Request, conv: int, evicted_conv: int) -> None:
        if request.evicted_live_tokens:
            self._park(_Parked(row, request.evicted_live_tokens, evicted_conv), conv)
        self._come_back(row, request.disk_hit_tokens or 0, conv)

    def delete(self, row: int, tokens: int | None) -> None:
        """A checkpoint of `tokens` was deleted: whoever waited on it waits in vain."""
        parked = self._by_tokens.get(tokens or 0)
        if parked is not None and self._by_conversation.get(parked.conv) is parked:
            del self._by_conversation[parked.conv]
            self._end(parked, row, "deleted")

    def rows(self) -> Iterable[tuple[int, int, int, int, int]]:
        waiting = FLOW_ENDS.index("waiting")
        return self._done + [(p.row, -1, p.tokens, p.conv, waiting) for p in self._by_conversation.values()]

    def _park(self, parked: _Parked, by: int) -> None:
        self._by_tokens[parked.tokens] = parked
        if parked.conv >= 0 and parked.conv != by:
            self._by_conversation[parked.conv] = parked
        if len(self._by_tokens) > 100_000:
            del self._by_tokens[next(iter(self._by_tokens))]

    def _come_back(self, row: int, hit: int, conv: int) -> None:
        parked = self._by_conversation.pop(conv, None) if conv >= 0 else None
        found = parked if parked is not None and parked.tokens == hit else self._by_tokens.get(hit)
        if found is not None and found.row < row:
            self._by_tokens.pop(hit, None)
            if self._by_conversation.get(found.conv) is found:
                del self._by_conversation[found.conv]
            self._end(found, row, "restored")
        if parked is not None and parked is not found:
            self._end(parked, row, "partly" if hit else "unused")

    def _end(self, parked: _Parked, row: int, how: str) -> None:
        self._done.append((parked.row, row, parked.tokens, parked.conv, FLOW_ENDS.index(how)))
