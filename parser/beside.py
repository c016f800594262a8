"""What lies beside a log: `--trace` records and the clients' usage records, given to their rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from parser.clock import Stamp
from parser.errors import InputError
from parser.hearsay import Hearsay
from parser.opens import Open
from parser.request import Request
from parser.rows import file_name
from parser.sources import find_sources, iter_blocks
from parser.trace import TraceRequest, set_key

#: the header of a record is written in the second of `prompt start`, or the one before
_SECONDS_APART: Final = 2


class Traces:
    """Records of all `--trace` files by (C, P); each is given once (log-formats 7.3)."""

    def __init__(self, records: Sequence[TraceRequest]) -> None:
        self.records = list(records)
        self._left: dict[tuple[int | None, int | None], list[TraceRequest]] = defaultdict(list)
        self.add(records)

    def add(self, records: Iterable[TraceRequest]) -> None:
        """More records, as reports show them."""
        for record in records:
            whole = record.effective_prompt_tokens
            whole = record.prompt_tokens if whole is None else whole
            self._left[record.cached_tokens, whole].append(record)

    def grow(self, records: Sequence[TraceRequest]) -> None:
        """More records of the trace files, in their order."""
        self.records += records
        self.add(records)

    @property
    def year(self) -> int | None:
        """The year that the first header prints."""
        return int(self.records[0].when[:4]) if self.records else None

    def take(self, opened: Open) -> TraceRequest | None:
        """The record of a request: equal C and P, the same second, the same live length and common prefix."""
        if opened.span is None:
            return None
        left = self._left.get((opened.row.cached_tokens, opened.row.prompt_tokens), [])
        fits = [record for record in left if _same_second(record, opened.stamp)]
        if not fits:
            return None
        best = min(fits, key=lambda record: (_differs(record, opened.row), record.file, record.id))
        left.remove(best)
        return best


def pasted_records(heard: Iterable[Hearsay]) -> list[TraceRequest]:
    """Pieces of `--trace` records that a report shows: what their key lines say."""
    records = []
    for one in heard:
        if one.kind == "trace":
            record = TraceRequest(0, "", line=one.line)
            for key, value in one.fields.items():
                set_key(record, key.encode(), str(value).encode())
            records.append(record)
    return records


def _same_second(record: TraceRequest, stamp: str | None) -> bool:
    seen, said = Stamp.parse(stamp), Stamp.parse(record.when[5:7] + record.when[8:])
    if seen is None or said is None:
        return True
    if seen.month and (seen.month, seen.day) != (said.month, said.day):
        return abs(seen.second - said.second) >= 86_400 - _SECONDS_APART
    return abs(seen.second - said.second) <= _SECONDS_APART


def _differs(record: TraceRequest, row: Request) -> int:
    """How many facts of the log the record contradicts."""
    pairs = (
        (record.live_before, row.live_before),
        (record.common, row.common),
        (file_name(record.disk_file), row.hit_file),
        (record.generated_tokens, row.generated_tokens),
    )
    return sum(one is not None and other is not None and one != other for one, other in pairs)


def with_trace(opened: Open, record: TraceRequest) -> None:
    """Exact source, live length, common prefix and canonical prompt of the record, into the row."""
    row = opened.row
    row.trace_id, row.mismatch_first = record.id, record.mismatch_first
    row.source = record.source or row.source
    row.live_before = row.live_before if record.live_before is None else record.live_before
    if record.source in ("cold", "disk-text") and record.live_before:
        row.common = record.common if row.common is None else row.common
    row.canonical_prompt_tokens = record.prompt_tokens or row.canonical_prompt_tokens
    row.generated_tokens = record.generated_tokens if row.generated_tokens is None else row.generated_tokens
    row.finish = row.finish or record.finish
    if record.hints.get("images") is not None:
        row.images = max(row.images or 0, record.hints["images"])
    row.why["source"] = "the trace says so"


def read_usage(paths: Iterable[str], *, max_bytes: int | None = None) -> list[Mapping[str, Any]]:
    """JSON lines with a `usage` object (OpenAI, Responses or Anthropic form), in file order.

    Lines without one are left out. Raises InputError for a file that is not JSON lines at all.
    """
    import orjson

    records: list[Mapping[str, Any]] = []
    for path in paths:
        bad = lines = 0
        for source in find_sources([path]):
            for block in iter_blocks(source, max_bytes=max_bytes):
                for raw in filter(bytes.strip, block.data.splitlines()):
                    lines += 1
                    try:
                        record = orjson.loads(raw)
                    except orjson.JSONDecodeError:
                        bad += 1
                        continue
                    if isinstance(record, dict) and isinstance(record.get("usage"), dict):
                        records.append(record)
        if lines and bad == lines:
            hint = "give one JSON object a line, each with the `usage` of a response"
            raise InputError("E-CLIENT-JSON", "no line is JSON", path=path, hint=hint)
    return records


def usage_numbers(record: Mapping[str, Any]) -> tuple[int | None, int | None, int | None]:
    """(P, C, generated) of a usage record (log-formats 9)."""
    usage = record["usage"]
    if "prompt_tokens" in usage:
        details = usage.get("prompt_tokens_details") or {}
        return usage.get("prompt_tokens"), details.get("cached_tokens"), usage.get("completion_tokens")
    if "cache_read_input_tokens" in usage:
        read, written = (
            usage.get("cache_read_input_tokens") or 0,
            usage.get("cache_creation_input_tokens") or 0,
        )
        return (usage.get("input_tokens") or 0) + read + written, read, usage.get("output_tokens")
    details = usage.get("input_tokens_details") or {}
    return usage.get("input_tokens"), details.get("cached_tokens"), usage.get("output_tokens")


class Usage:
    """Usage records of all clients; each is given once, in order, by equal P, C and generated tokens."""

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._left: dict[tuple[int | None, ...], list[Mapping[str, Any]]] = defaultdict(list)
        for record in reversed(records):
            self._left[usage_numbers(record)].append(record)

    def match(self, requests: Iterable[Request]) -> dict[int, Mapping[str, Any]]:
        """Usage record by request number."""
        found = {}
        for row in requests:
            fits = self._left.get((row.prompt_tokens, row.cached_tokens, row.generated_tokens))
            if fits and row.prompt_tokens is not None:
                found[row.request] = fits.pop()
        return found
