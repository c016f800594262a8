"""What a log's lines say of seconds: samples of prefill, decoding, stores and loads, for `replay.fitting`. Only lines
with nothing else running between them count."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from parser.reading import Reading
from parser.request import Request
from replay.costs import FittedCosts

#: samples of less time than this are mostly the clock's last digit
_LEAST_S = 0.004
#: a prefill speed needs so many tokens: of a few, the start takes longer than the tokens
_LEAST_TOKENS = 512


class Sample(NamedTuple):
    """`seconds` for `amount` (tokens, steps, bytes) at `place` (a position; the rest of a prompt)."""

    amount: float
    seconds: float
    place: float


@dataclass(slots=True)
class _Step:
    """Two neighbouring lines of one request: positions, seconds between, requests that prefill and decode."""

    start: int
    end: int
    seconds: float
    prefilling: int
    decoding: int
    between: tuple[int, int]


class Lines:
    """The lines of one log, and between which of them nothing else ran."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        log = reading.events
        assert log is not None
        marks = [(e.seq, e.kind) for e in log.rows("prompt_start", "prompt_done", "finish", "startup")]
        self.at, self.prefilling, self.decoding = _running(marks)
        self.moved = [(e.seq, e) for e in log.rows("kv_stored", "kv_skipped")]
        self.moved_at = [seq for seq, _ in self.moved]
        self.stored = [(seq, e) for seq, e in self.moved if e.kind == "kv_stored"]
        self.chunks = list(self._steps("prefill_chunk", _chunk_place))
        self.decodes = list(self._steps("decoding", _decode_place))

    def _steps(self, kind: str, place: Any) -> Iterator[_Step]:
        wanted = ("seq", "span_start", "span_end", "span_tokens", "done", "gen", "elapsed_s", "chunk_tps")
        log = self.reading.events
        assert log is not None
        if not log.counts.get(kind):
            return
        frame = log.frame(kind)
        rows = frame.select([name for name in wanted if name in frame.columns]).iter_rows(named=True)
        before: dict[int, tuple[int, int, float]] = {}
        for row in rows:
            found = place(row)
            if found is None:
                continue
            request, position = found
            was = before.get(request)
            if was is not None and was[1] < position and was[2] <= row["elapsed_s"]:
                yield self._step(was, position, row)
            before[request] = (row["seq"], position, row["elapsed_s"])

    def _step(self, was: tuple[int, int, float], position: int, row: dict[str, Any]) -> _Step:
        seconds, rate = row["elapsed_s"] - was[2], row.get("chunk_tps") or 0.0
        exact = (position - was[1]) / rate if rate > 0 else seconds
        seconds = exact if abs(exact - seconds) < 0.003 + 0.02 * seconds else seconds
        quiet = self._index(was[0]) == self._index(row["seq"])
        index = self._index(row["seq"])
        many = (self.prefilling[index], self.decoding[index]) if quiet else (-1, -1)
        return _Step(was[1], position, seconds, *many, (was[0], row["seq"]))

    def _index(self, seq: int) -> int:
        return bisect_left(self.at, seq)

    def _stores_between(self, step: _Step) -> list[Any]:
        low, high = (bisect_left(self.moved_at, seq) for seq in step.between)
        return [event for _, event in self.moved[low:high]]

    # -- samples -------------------------------------------------------------------------------------

    def prefill(self) -> list[Sample]:
        """Tokens and seconds between chunk lines with nothing else running; else whole silent prefills."""
        alone = [s for s in self.chunks if (s.prefilling, s.decoding) == (1, 0)]
        clean = [
            Sample(s.end - s.start, s.seconds, (s.start + s.end) / 2)
            for s in alone
            if not self._stores_between(s) and s.seconds >= _LEAST_S
        ]
        found = clean if len(clean) >= 4 else clean + self._whole_prefills()
        return found if sum(sample.amount for sample in found) >= _LEAST_TOKENS else []

    def _whole_prefills(self) -> list[Sample]:
        found = []
        for request in self.reading.requests:
            tokens, start = request.prefilled_tokens or 0, request.cached_tokens or 0
            plain = all(s.reason == "evict" for s in request.stores) and self.alone(request)
            plain = plain and not self.skipped_bytes(request, evict=False)
            if plain and tokens >= 32 and request.prefill_s and request.prefill_s >= _LEAST_S:
                found.append(Sample(tokens, request.prefill_s, start + tokens / 2))
        return found

    def alone(self, request: Request) -> bool:
        """No other request was running when it started, nor came before it was through."""
        inside = [self._index(seq) for seq in request.events]
        low, high = (min(inside), max(inside)) if inside else (0, 0)
        return all(self.prefilling[i] + self.decoding[i] <= 1 for i in range(low, min(high, low + 8) + 1))

    def decode(self, batch: int) -> list[Sample]:
        """Steps and seconds between decoding lines of a steady batch."""
        return [
            Sample(s.end - s.start, s.seconds, s.start)
            for s in self.decodes
            if (s.prefilling, s.decoding) == (0, batch) and s.seconds >= _LEAST_S
            if not self._stores_between(s)
        ]

    def stores(self, costs: FittedCosts) -> list[Sample]:
        """Bytes and seconds of a store between two chunk lines, or inside a prefill without any."""
        found = []
        for step in self.chunks:
            stores = self._stores_between(step)
            if (step.prefilling, step.decoding) == (1, 0) and [e.kind for e in stores] == ["kv_stored"]:
                found += _store_sample(stores[0], step.seconds - costs.prefill_s(step.start, step.end))
        for request in self.reading.requests:
            inside = [s for s in request.stores if s.reason in ("cold", "continued")]
            if len(inside) == 1 and not request.progress.chunks and request.prefill_s and self.alone(request):
                start, end = request.cached_tokens or 0, request.prompt_tokens or 0
                left = request.prefill_s - costs.prefill_s(start, end)
                if inside[0].size_mib and left > 0:
                    found.append(Sample(inside[0].size_mib * 2**20, left, 0))
        return found or [
            Sample(e.get("size_mib") * 2**20, e.get("save_ms") / 1000 * 1.6, 0)
            for _, e in self.stored
            if e.get("size_mib") and e.get("save_ms")
        ]

    def staged(self, costs: FittedCosts) -> list[Sample]:
        """Bytes and seconds of stores that were staged and then did not fit the budget (DS6)."""
        found = []
        for step in self.chunks:
            skipped = self._stores_between(step)
            sizes = [e.get("size_mib") for e in skipped if e.kind == "kv_skipped" and e.get("size_mib")]
            if (step.prefilling, step.decoding) == (1, 0) and sizes and len(sizes) == len(skipped):
                left = step.seconds - costs.prefill_s(step.start, step.end)
                found.append(Sample(sum(sizes) * 2**20, left, 0))
        return [sample for sample in found if sample.seconds > 0]

    def skipped_bytes(self, request: Request, *, evict: bool) -> int:
        """Bytes that were staged for nothing on behalf of a request."""
        own = set(request.events)
        sizes = [
            e.get("size_mib") or 0
            for seq, e in self.moved
            if seq in own and e.kind == "kv_skipped" and (e.get("reason") == "evict") == evict
        ]
        return round(sum(sizes) * 2**20)

    def written(self) -> float | None:
        """Seconds a byte of `save=`, which leaves the staging copy out (R4.22)."""
        rates = [
            e.get("save_ms") / 1000 / (e.get("size_mib") * 2**20)
            for _, e in self.stored
            if e.get("size_mib") and e.get("save_ms")
        ]
        return median(rates) if rates else None

    def loads(self) -> list[Sample]:
        """Bytes, seconds, and tokens that were tokenised after them."""
        sizes = {e.get("tokens"): e.get("size_mib") for _, e in self.stored if e.get("size_mib")}
        found = []
        for request in self.reading.requests:
            size = sizes.get(request.disk_hit_tokens)
            if request.load_ms is not None and size:
                rest = (request.prompt_tokens or 0) - (request.disk_hit_tokens or 0)
                found.append(Sample(size * 2**20, request.load_ms / 1000, rest))
        return found


def _running(marks: Sequence[tuple[int, str]]) -> tuple[list[int], list[int], list[int]]:
    """Event numbers of the marks, and how many requests prefill and decode just before each (and at the
    end)."""
    at, prefilling, decoding = [], [0], [0]
    for seq, kind in marks:
        one, other = prefilling[-1], decoding[-1]
        if kind == "startup":
            one = other = 0
        elif kind == "prompt_start":
            one += 1
        elif kind == "prompt_done":
            one, other = max(0, one - 1), other + 1
        else:
            other = max(0, other - 1)
        at.append(seq)
        prefilling.append(one)
        decoding.append(other)
    return at, prefilling, decoding


def _chunk_place(row: dict[str, Any]) -> tuple[int, int] | None:
    start, end, done = row.get("span_start"), row.get("span_end"), row.get("done")
    if start is None or end is None or done is None or row.get("elapsed_s") is None:
        return None
    return end, start + done


def _decode_place(row: dict[str, Any]) -> tuple[int, int] | None:
    end, gen = row.get("span_end"), row.get("gen")
    if end is None or gen is None or row.get("elapsed_s") is None:
        return None
    return end - gen, end


def _store_sample(event: Any, seconds: float) -> list[Sample]:
    size = event.get("size_mib")
    return [Sample(size * 2**20, seconds, 0)] if size and seconds > 0 else []
