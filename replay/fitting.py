"""Fits cost figures to a log's chunk, decoding, store and load lines (`replay.samples`). Robust: medians
(`docs/fidelity.md`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from parser.reading import Reading
from replay.costs import TOKENISE_S, Figure, FittedCosts, completed
from replay.samples import Lines, Sample


def fit(reading: Reading) -> FittedCosts:
    """Costs of the machine that wrote the log."""
    if reading.events is None:
        return FittedCosts()
    lines = Lines(reading)
    found = _line("token_s", "token_slope_s", lines.prefill())
    if "token_s" in found:
        found |= _line("step_s", "step_slope_s", lines.decode(1))
        found |= _batches(lines, found)
        found |= _moved("store", lines.stores(completed(found)))
        found |= _staged(lines.staged(completed(found)))
        found |= _loads(lines.loads(), completed(found), lines.written())
        found |= _besides(lines, completed(found))
    return completed(found)


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


def _batches(lines: Lines, found: dict[str, Figure]) -> dict[str, Figure]:
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
    through = max(0.0, median([y / x for x, y in points if x] or [0.0]))
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


def _besides(lines: Lines, costs: FittedCosts) -> dict[str, Figure]:
    """Seconds of a whole request that prefill, stores and decoding do not explain, growing with the
    prompt."""
    left = []
    for request in lines.reading.requests:
        done, total, tokens = request.prefill_s, request.total_s, request.generated_tokens
        if done is None or total is None or not tokens or not lines.alone(request):
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
