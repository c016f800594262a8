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
from parser.rows import file_name, reuse
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
        """The year that the first header prints; None for one that no server can have run in."""
        year = int(self.records[0].when[:4]) if self.records else 0
        return year if 1970 <= year < 9000 else None

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
    """(P, C, generated) of a usage record (log-formats 9); None for what is missing or no number of tokens."""
    usage = record["usage"]
    if "prompt_tokens" in usage:
        cached = _tokens(usage.get("prompt_tokens_details"), "cached_tokens")
        return _tokens(usage, "prompt_tokens"), cached, _tokens(usage, "completion_tokens")
    generated = _tokens(usage, "output_tokens")
    if "cache_read_input_tokens" in usage:
        read = _tokens(usage, "cache_read_input_tokens") or 0
        written = _tokens(usage, "cache_creation_input_tokens") or 0
        return (_tokens(usage, "input_tokens") or 0) + read + written, read, generated
    cached = _tokens(usage.get("input_tokens_details"), "cached_tokens")
    return _tokens(usage, "input_tokens"), cached, generated


def _tokens(holder: Any, name: str) -> int | None:
    value = holder.get(name) if isinstance(holder, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


Numbers = tuple[int | None, int | None, int | None]


class Usage:
    """Usage records of all clients; each is given once, in order, by equal P, C and generated tokens.

    What the log does not say of a request is taken from the record of that P, where all that fit say the same.
    """

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._left: dict[int | None, list[tuple[Numbers, Mapping[str, Any]]]] = defaultdict(list)
        for record in records:
            numbers = usage_numbers(record)
            self._left[numbers[0]].append((numbers, record))

    def match(self, requests: Iterable[Request]) -> dict[int, Mapping[str, Any]]:
        """Usage record by request number; fills in what these rows do not know."""
        found = {}
        for row in requests:
            left = self._left.get(row.prompt_tokens, []) if row.prompt_tokens is not None else []
            known = (row.prompt_tokens, row.cached_tokens, row.generated_tokens)
            fits = [one for one in left if _agree(one[0], known)]
            if fits and len({numbers for numbers, _ in fits}) == 1:
                left.remove(fits[0])
                _fill(row, fits[0][0])
                found[row.request] = fits[0][1]
        return found


def _agree(said: Numbers, known: Numbers) -> bool:
    return all(one is None or other in (one, None) for one, other in zip(said, known, strict=True))


def _fill(row: Request, said: Numbers) -> None:
    prompt, cached, generated = said
    if row.cached_tokens is None and cached is not None and prompt is not None:
        row.cached_tokens, row.prefilled_tokens = cached, max(0, prompt - cached)
        row.why["cached_tokens"] = "the client's usage says so"
        reuse(row)
    if row.generated_tokens is None and generated is not None:
        row.generated_tokens = generated
        row.why["generated_tokens"] = "the client's usage says so"
