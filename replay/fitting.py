"""Fits cost figures to a log's chunk, decoding, store and load lines. Robust: medians, and only lines with
nothing else running between them (`docs/fidelity.md`)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from parser.reading import Reading
from parser.request import Request
from replay.costs import TOKENISE_S, Figure, FittedCosts, completed

#: samples of less time than this are mostly the clock's last digit
_LEAST_S = 0.004
#: a prefill speed needs so many tokens: of a few, the start takes longer than the tokens
_LEAST_TOKENS = 512


class Sample(NamedTuple):
    """`seconds` for `amount` (tokens, steps, bytes) at `place` (a position; the rest of a prompt)."""

    amount: float
    seconds: float
    place: float


def fit(reading: Reading) -> FittedCosts:
    """Costs of the machine that wrote the log."""
    if reading.events is None:
        return FittedCosts()
    lines = _Lines(reading)
    found = _line("token_s", "token_slope_s", lines.prefill())
    if "token_s" in found:
        found |= _line("step_s", "step_slope_s", lines.decode(1))
        found |= _batches(lines, found)
        found |= _moved("store", lines.stores(completed(found)))
        found |= _staged(lines.staged(completed(found)))
        found |= _loads(lines.loads(), completed(found), lines.written())
        found |= _besides(lines, completed(found))
    return completed(found)


# -- reading lines ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Step:
    """Two neighbouring lines of one request: positions, seconds between, requests that prefill and decode."""

    start: int
    end: int
    seconds: float
    prefilling: int
    decoding: int
    between: tuple[int, int]


class _Lines:
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
            plain = all(s.reason == "evict" for s in request.stores) and self._alone(request)
            plain = plain and not self.skipped_bytes(request, evict=False)
            if plain and tokens >= 32 and request.prefill_s and request.prefill_s >= _LEAST_S:
                found.append(Sample(tokens, request.prefill_s, start + tokens / 2))
        return found

    def _alone(self, request: Request) -> bool:
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
            if (
                len(inside) == 1
                and not request.progress.chunks
                and request.prefill_s
                and self._alone(request)
            ):
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


# -- figures ---------------------------------------------------------------------------------------------


def _line(base: str, slope: str, samples: Sequence[Sample]) -> dict[str, Figure]:
    """Seconds an item, growing with the position: the medians of the near and of the far half."""
    if not samples:
        return {}
    samples = sorted(samples, key=lambda sample: sample.place)
    half = len(samples) // 2
    near, far = _rate(samples[: half or 1]), _rate(samples[half:])
    grown = _growth(samples, near, far)
    bases = [s.seconds / s.amount - grown * s.place for s in samples]
    value = _weighted_median(bases, [s.amount for s in samples])
    if value <= 0:
        value, grown = median(s.seconds / s.amount for s in samples), 0.0
    fitted = [s.seconds / s.amount / (value + grown * s.place) - 1 for s in samples]
    spread = median(abs(one) for one in fitted)
    return {base: Figure(value, spread, len(samples)), slope: Figure(grown, spread, len(samples))}


def _growth(samples: Sequence[Sample], near: tuple[float, float], far: tuple[float, float]) -> float:
    """What a position adds; 0 where the two halves differ by no more than the samples among themselves."""
    if len(samples) < 16 or far[1] <= near[1]:
        return 0.0
    noise = relative_spread(s.seconds / s.amount for s in samples[: len(samples) // 2])
    clear = far[0] - near[0] > max(0.02, 3 * noise) * near[0]
    return (far[0] - near[0]) / (far[1] - near[1]) if clear else 0.0


def _rate(samples: Sequence[Sample]) -> tuple[float, float]:
    rate = _weighted_median([s.seconds / s.amount for s in samples], [s.amount for s in samples])
    return rate, sum(s.place for s in samples) / len(samples)


def _weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    order = sorted(zip(values, weights, strict=True))
    left = sum(weights) / 2
    for value, weight in order:
        left -= weight
        if left <= 0:
            return value
    return order[-1][0]


def _batches(lines: _Lines, found: dict[str, Figure]) -> dict[str, Figure]:
    """What each further sequence of a batch adds to a step, as a share of it."""
    costs = completed(found)
    if costs.step_s.origin == "default":
        return {}
    shares = []
    for batch in range(2, max((s.decoding for s in lines.decodes), default=0) + 1):
        for sample in lines.decode(batch):
            alone = costs.decode_s(1, int(sample.place), int(sample.amount))
            shares.append((sample.seconds / alone - 1) / (batch - 1))
    if len(shares) < 3:
        return {}
    value = max(0.0, median(shares))
    return {"batch_share": Figure(value, median(abs(s - value) for s in shares), len(shares))}


def _moved(name: str, samples: Sequence[Sample]) -> dict[str, Figure]:
    """Fixed seconds and seconds a byte."""
    if not samples:
        return {}
    fixed, rate = _straight([(s.amount, s.seconds) for s in samples])
    spread = median(abs(s.seconds / (fixed + rate * s.amount) - 1) for s in samples)
    many = len(samples)
    return {f"{name}_fixed_s": Figure(fixed, spread, many), f"{name}_byte_s": Figure(rate, spread, many)}


def _straight(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Intercept and slope, neither negative, through the medians of all pairs (Theil and Sen)."""
    some = sorted(points)[:: max(1, len(points) // 60)]
    slopes = [
        (b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(some) for b in some[i + 1 :] if b[0] > a[0] * 1.05
    ]
    through = max(0.0, median(y / x for x, y in points))
    slope = min(max(0.0, median(slopes)), through) if len(slopes) >= 3 else through
    return max(0.0, median(y - slope * x for x, y in points)), slope


def _staged(samples: Sequence[Sample]) -> dict[str, Figure]:
    """Seconds a byte of what is staged only."""
    if not samples:
        return {}
    rate = _weighted_median([s.seconds / s.amount for s in samples], [s.amount for s in samples])
    spread = median(abs(s.seconds / s.amount / rate - 1) for s in samples)
    return {"stage_byte_s": Figure(rate, spread, len(samples))}


def _few_loads(samples: Sequence[Sample], byte: float) -> dict[str, Figure]:
    """From few loads only one of reading and tokenising can be told: reading is as fast as writing."""
    known = [(s.seconds - byte * s.amount) / s.place for s in samples if s.place >= 1000]
    found = {"load_byte_s": Figure(byte, 0.0, len(samples))}
    if known and 0 < median(known) < 4 * TOKENISE_S:
        found["admit_token_s"] = Figure(median(known), 0.0, len(known))
    return found


def _loads(samples: Sequence[Sample], costs: FittedCosts, written: float | None) -> dict[str, Figure]:
    """Loads, and what tokenising costs: a load reads its bytes and tokenises the rest of the prompt. `written`:
    seconds a byte of `save=`."""
    if not samples:
        return {}
    if len(samples) < 4:
        return _few_loads(samples, costs.load_byte_s.value if written is None else written)
    token = _tokenising(samples)
    plain = [Sample(s.amount, max(1e-9, s.seconds - token * s.place), 0) for s in samples]
    found = _moved("load", plain)
    fixed, rest = found["load_fixed_s"], median(s.place for s in samples)
    found["load_fixed_s"] = Figure(fixed.value + token * rest, fixed.spread, len(samples))
    if token > 0:
        found["admit_token_s"] = Figure(token, found["load_byte_s"].spread, len(samples))
    return found


def _tokenising(samples: Sequence[Sample]) -> float:
    """Seconds a token of the rest: least squares of seconds on bytes and rest, over at least four loads whose
    rests differ; 0 where they do not tell."""
    rests = [s.place for s in samples]
    if len(samples) < 4 or max(rests) < 4 * (min(rests) + 1):
        return 0.0
    n = len(samples)
    x = [s.amount / max(s.amount for s in samples) for s in samples]
    y = [s.place / max(rests) for s in samples]
    z = [s.seconds for s in samples]
    mean_x, mean_y, mean_z = sum(x) / n, sum(y) / n, sum(z) / n
    xx, yy = sum((a - mean_x) ** 2 for a in x), sum((b - mean_y) ** 2 for b in y)
    xy = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    xz = sum((a - mean_x) * (c - mean_z) for a, c in zip(x, z, strict=True))
    yz = sum((b - mean_y) * (c - mean_z) for b, c in zip(y, z, strict=True))
    scale = xx * yy - xy * xy
    if scale <= 1e-9:
        return 0.0
    return max(0.0, (xx * yz - xy * xz) / scale / max(rests))


def _besides(lines: _Lines, costs: FittedCosts) -> dict[str, Figure]:
    """Seconds of a whole request that prefill, stores and decoding do not explain, growing with the
    prompt."""
    left = []
    for request in lines.reading.requests:
        done, total, tokens = request.prefill_s, request.total_s, request.generated_tokens
        if done is None or total is None or not tokens or not lines._alone(request):
            continue
        start, end = request.cached_tokens or 0, request.prompt_tokens or 0
        stored = sum(
            costs.store_s(s.tokens, round((s.size_mib or 0) * 2**20), True)
            for s in request.stores
            if s.reason != "evict"
        )
        stored += costs.store_s(0, lines.skipped_bytes(request, evict=False), False)
        model = costs.prefill_s(start, end) + costs.decode_s(1, end, tokens) + stored
        left.append((float(end), total - model))
    if len(left) < 3:
        return {}
    fixed, rate = _straight(left)
    spread = median(abs(y - fixed - rate * x) for x, y in left)
    many = len(left)
    return {"besides_s": Figure(fixed, spread, many), "besides_token_s": Figure(rate, spread, many)}


def relative_spread(samples: Iterable[float]) -> float:
    """Median relative deviation from the median."""
    values = list(samples)
    middle = median(values)
    return median(abs(v - middle) for v in values) / middle if middle else 0.0
