"""`--trace` files: one record a request, read by state and ids, never by a bare marker (log-formats 7).

Texts of parallel requests mix, bodies may be cut, records may lack their end, and any text may contain
lines that look like markers. A header counts only if its id follows the last one and its block of key lines
follows; header to `--- generated text ---` is one locked write, so nothing inside it can begin a record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from parser.prefixes import PrefixTree
from parser.sources import find_sources, iter_blocks
from parser.tracebody import body_hints, cut_at, window_row

_HEADER: Final = re.compile(rb"===== request (\d{1,12}) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) =====")
_END: Final = re.compile(rb"===== end request (\d{1,12}) =====")
_KEY: Final = re.compile(rb"([a-z_]{2,40}): ?(.*)", re.DOTALL)
_EVENT: Final = re.compile(rb"--- trace: (.*) ---", re.DOTALL)
_GENERATED: Final = b"--- generated text ---"
_LAST_KEY: Final = b"stream_include_usage"
_RESULT_KEYS: Final = (b"finish", b"generated_tokens", b"dsml_start", b"dsml_end", b"elapsed_sec")
_MOST_KEYS: Final = 40
_SOURCES: Final = {"none": "cold", "disk": "disk-text"}


@dataclass(slots=True)
class TraceRequest:
    """One request record. Tokens and seconds as printed; None where the record does not say.

    `source` is `cache_source` under the names of `docs/outputs.md` (`none` is `cold`). `mismatch_first` and
    `window` (index, mark, live id, live text, prompt id, prompt text) tell where live state and prompt part.
    `prompt_bytes` is the length of the rendered prompt, None where it was cut; `prompt_offset`/`prompt_known`
    where its known part lies in the file. `parent` is the earlier record (its place in the reading order)
    that shares most of the text, `shared_bytes` how much, `extends` whether the parent's whole prompt is a
    prefix of this one. `events` are `--- trace: ---` texts that stand between its header and its end while
    no other request was open (`shared_events` where others were).
    """

    id: int
    when: str
    file: int = 0
    kind: str | None = None
    model: str | None = None
    stream: bool | None = None
    tools: bool | None = None
    think_mode: str | None = None
    prompt_tokens: int | None = None
    effective_prompt_tokens: int | None = None
    cached_tokens: int | None = None
    max_tokens: int | None = None
    live_before: int | None = None
    common: int | None = None
    reusable: bool | None = None
    miss_reason: str | None = None
    tool_replay: str | None = None
    source: str | None = None
    disk_cached_tokens: int | None = None
    disk_file: str | None = None
    mismatch_first: int | None = None
    window: tuple[tuple[int, str, int | None, str, int | None, str], ...] = ()
    json_bytes: int | None = None
    json_cut: bool = False
    hints: dict[str, Any] = field(default_factory=dict)
    prompt_bytes: int | None = None
    prompt_offset: int | None = None
    prompt_known: int = 0
    prompt_cut: bool = False
    parent: int | None = None
    shared_bytes: int = 0
    extends: bool = False
    finish: str | None = None
    generated_tokens: int | None = None
    dsml_start: bool | None = None
    dsml_end: bool | None = None
    elapsed_s: float | None = None
    ended: bool = False
    events: list[str] = field(default_factory=list)
    shared_events: bool = False
    line: int = 0
    place: int = -1  # its own place in the reading order


def read_traces(paths: Sequence[str], *, max_bytes: int | None = None) -> list[TraceRequest]:
    """All records of `paths`, file by file in the order given. Raises InputError for unreadable files."""
    records: list[TraceRequest] = []
    tree = PrefixTree()
    for number, path in enumerate(paths):
        for source in find_sources([path]):
            lines = numbered_lines(iter_blocks(source, max_bytes=max_bytes))
            reader = TraceReader(records, tree, number)
            reader.read(lines)
    return records


def numbered_lines(blocks: Iterable[Any]) -> Iterator[tuple[bytes, int]]:
    """(line without its end, byte offset)."""
    for block in blocks:
        offset = block.offset
        for raw in block.data.splitlines(keepends=True) if b"\r" not in block.data else _split(block.data):
            yield raw.rstrip(b"\n"), offset
            offset += len(raw)


def _split(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


class TraceReader:
    """State machine over the lines of one file."""

    def __init__(self, records: list[TraceRequest], tree: PrefixTree, file: int) -> None:
        self.records, self.tree, self.file = records, tree, file
        self.last_id: int | None = None
        self.open: dict[int, TraceRequest] = {}
        self.line = 0
        self._state = self._between
        self._held: list[bytes] = []
        self._now: TraceRequest | None = None
        self._text: list[bytes] = []
        self._start = 0
        self._skip = 0
        self._result: dict[bytes, bytes] = {}
        self._hidden = -1  # the last id of headers that stand inside a parsed message

    def read(self, lines: Iterable[tuple[bytes, int]]) -> None:
        """The whole file."""
        self.feed(lines)
        self.end()

    def feed(self, lines: Iterable[tuple[bytes, int]]) -> None:
        """Some more lines of it."""
        plain = self._between
        for raw, offset in lines:
            self.line += 1
            if self._state == plain and raw[:3] not in (b"---", b"==="):
                continue
            self._state(raw, offset)

    def end(self) -> None:
        """The file ends here."""
        if self._state == self._prompt:
            self._close_prompt()

    def anew(self) -> TraceReader:
        """A reader for a file that begins again; its records come behind those of the old one."""
        return TraceReader(self.records, self.tree, self.file)

    @property
    def undecided(self) -> TraceRequest | None:
        """The record whose cache decision is still being read."""
        return self._now if self._state == self._decision else None

    # -- between records: generated text, events, ends ------------------------------------------------

    def _between(self, raw: bytes, offset: int) -> None:
        if (header := _HEADER.fullmatch(raw)) and self._follows(int(header[1])):
            self._now = TraceRequest(int(header[1]), header[2].decode(), self.file, line=self.line)
            self._held, self._state = [], self._keys
        elif raw == b"--- parsed message ---":
            self._result, self._state = {}, self._parsed
        elif event := _EVENT.fullmatch(raw):
            self._event(event[1].decode("utf-8", "replace"))
        elif end := _END.fullmatch(raw):
            self._ended(int(end[1]))

    def _follows(self, number: int) -> bool:
        return self.last_id is None or number in (self.last_id + 1, self._hidden + 1)

    def _event(self, text: str) -> None:
        for record in self.open.values():
            if len(self.open) == 1:
                record.events.append(text)
            record.shared_events = record.shared_events or len(self.open) > 1

    # -- header: keys and cache decision ----------------------------------------------------------------

    def _keys(self, raw: bytes, offset: int) -> None:
        key = _KEY.fullmatch(raw)
        first = b"kind" if not self._held else None
        if key is None or (first and key[1] != first) or len(self._held) > _MOST_KEYS:
            self._state = self._between  # a look-alike inside a text
            self._between(raw, offset)
            return
        self._held.append(raw)
        _set(self._record, _HEADER_KEYS, key[1], key[2])
        if key[1] == _LAST_KEY:
            self._record.place = len(self.records)
            self.records.append(self._record)
            self.open[self._record.id] = self._record
            self.last_id = self._record.id
            self._state = self._decision

    @property
    def _record(self) -> TraceRequest:
        assert self._now is not None
        return self._now

    def _decision(self, raw: bytes, offset: int) -> None:
        if raw == b"--- raw request json ---":
            self._text, self._state = [], self._json
        elif raw[:3] in (b"===", b"---") and raw != b"--- cache decision ---":
            self._state = self._between
            self._between(raw, offset)
        elif raw[:1] == b" " and (row := window_row(raw)) is not None:
            self._record.window += (row,)
        elif key := _KEY.fullmatch(raw):
            _set(self._record, _DECISION_KEYS, key[1], key[2])

    # -- bodies ---------------------------------------------------------------------------------------

    def _json(self, raw: bytes, offset: int) -> None:
        if raw != b"--- rendered prompt ---":
            self._text.append(raw)
            return
        body = b"\n".join(self._text).rstrip(b"\n")
        record = self._record
        record.json_bytes, record.json_cut = len(body), cut_at(body) is not None
        record.hints = body_hints(body)
        self._skip = body.count(_GENERATED)
        self._text, self._start, self._state = [], offset + len(raw) + 1, self._prompt

    def _prompt(self, raw: bytes, offset: int) -> None:
        if raw == _GENERATED:
            if self._skip <= 0:
                self._close_prompt()
                return
        elif self._skip and _HEADER.fullmatch(raw) and self._text[-2:-1] == [_GENERATED]:
            self._close_prompt()
            self._between(raw, offset)
            return
        self._skip -= raw.count(_GENERATED)
        self._text.append(raw)

    def _close_prompt(self) -> None:
        text = b"\n".join(self._text)
        text = text[:-1] if text.endswith(b"\n") else text  # the blank line before the marker
        record, cut = self._record, cut_at(text)
        record.prompt_offset, record.prompt_cut = self._start, cut is not None
        known = text if cut is None else text[:cut]
        record.prompt_known = len(known)
        record.prompt_bytes = len(text) if cut is None else None
        shared = self.tree.add(len(self.records) - 1, known)
        if shared is not None:
            record.parent, record.shared_bytes = shared.key, shared.shared
            record.extends = shared.whole and not self.records[shared.key].prompt_cut
        self._text, self._now, self._state = [], None, self._between

    # -- parsed message ---------------------------------------------------------------------------------

    def _parsed(self, raw: bytes, offset: int) -> None:
        key = _KEY.fullmatch(raw)
        wanted = _RESULT_KEYS[len(self._result)] if len(self._result) < len(_RESULT_KEYS) else None
        if wanted is not None:
            if key is None or key[1] != wanted:
                self._state = self._between
                self._between(raw, offset)
                return
            self._result[wanted] = key[2]
        elif raw == b"--- parsed message ---":
            self._result = {}  # the one before stood in a text
        elif (end := _END.fullmatch(raw)) and (int(end[1]) in self.open or not self.open):
            self._ended(int(end[1]))
            self._state = self._between
        elif (header := _HEADER.fullmatch(raw)) and self._follows(int(header[1])):
            self._hidden = int(header[1])  # its own, or of a request that began beside a look-alike

    def _ended(self, number: int) -> None:
        record = self.open.pop(number, None)
        if record is None:
            return
        record.ended = True
        for key, value in self._result.items():
            _set(record, _RESULT_FIELDS, key, value)
        self._result = {}


_HEADER_KEYS: Final = {
    b"kind": ("kind", str), b"model": ("model", str), b"stream": ("stream", bool), b"tools": ("tools", bool),
    b"think_mode": ("think_mode", str), b"prompt_tokens": ("prompt_tokens", int),
    b"effective_prompt_tokens": ("effective_prompt_tokens", int), b"cached_tokens": ("cached_tokens", int),
    b"max_tokens": ("max_tokens", int),
}  # fmt: skip
_DECISION_KEYS: Final = {
    b"live_tokens_before": ("live_before", int), b"prompt_tokens": ("prompt_tokens", int),
    b"live_prompt_common": ("common", int), b"memory_token_reusable": ("reusable", bool),
    b"memory_reusable": ("reusable", bool), b"memory_miss_reason": ("miss_reason", str),
    b"tool_replay": ("tool_replay", str), b"cache_source": ("source", str),
    b"cached_tokens": ("cached_tokens", int), b"disk_cached_tokens": ("disk_cached_tokens", int),
    b"disk_cache_file": ("disk_file", str), b"first_mismatch_token": ("mismatch_first", int),
}  # fmt: skip
_RESULT_FIELDS: Final = {
    b"finish": ("finish", str), b"generated_tokens": ("generated_tokens", int),
    b"dsml_start": ("dsml_start", bool), b"dsml_end": ("dsml_end", bool),
    b"elapsed_sec": ("elapsed_s", float),
}  # fmt: skip


#: What is more is no number of the server's (and NaN is less than nothing).
_MOST: Final = 1 << 53


def set_key(record: TraceRequest, key: bytes, value: bytes) -> None:
    """Set what a key line of header, decision or result says; unknown keys are left out."""
    for known in (_HEADER_KEYS, _DECISION_KEYS, _RESULT_FIELDS):
        _set(record, known, key, value)


def _set(record: TraceRequest, known: dict[bytes, tuple[str, type]], key: bytes, value: bytes) -> None:
    """Set the field that a key line names; a value that is not of its type stays unknown."""
    if key not in known:
        return
    name, kind = known[key]
    text = value.decode("utf-8", "replace")
    try:
        parsed: Any = text == "1" if kind is bool else kind(text)
    except ValueError:
        return
    if kind in (int, float) and not -1 <= parsed < _MOST:  # -1 is the server's own "none"
        return
    setattr(record, name, _SOURCES.get(text, text) if name == "source" else parsed)
