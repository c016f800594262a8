"""What this device takes for prefill, decode, save and load: for what-if, and for `benchmarks/mlx.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final

import numpy as np

from replay.backends.resident import Engine
from replay.config import ServerConfig
from replay.costs import Figure, FittedCosts
from replay.models.model import IMAGE_ROW, Tokens
from replay.models.weights import mix

CHUNK: Final = 4096
STEPS: Final = 16


@dataclass(slots=True)
class Measured:
    """Seconds. `prefill`: (position, tokens, s) a chunk; `decode`: (depth, batch, s a step); `save` and
    `load`: (tokens, bytes, s). `prefill_cpu_s`: processor seconds of all chunks, which other work on the
    machine does not stretch as it does the clock's."""

    prefill: list[tuple[int, int, float]] = field(default_factory=list)
    prefill_cpu_s: float = 0.0
    decode: list[tuple[int, int, float]] = field(default_factory=list)
    save: list[tuple[int, int, float]] = field(default_factory=list)
    load: list[tuple[int, int, float]] = field(default_factory=list)

    @property
    def prefill_tps(self) -> float:
        """Tokens a second over the whole depth."""
        return sum(tokens for _, tokens, _ in self.prefill) / sum(s for _, _, s in self.prefill)


def measure(engine: Engine, folder: Path, depth: int, stops: int = 4) -> Measured:
    """Prefill `depth` tokens in chunks; at `stops` depths decode alone and in pairs, save and load."""
    out, session, text = Measured(), engine.new(), _text(depth + STEPS * 8)
    session.extend(text[:STEPS])  # first use of every kernel
    session.reset()
    every = max(1, depth // stops)
    while session.length < depth:
        at, until = session.length, min(depth, session.length + CHUNK)
        spent = process_time()
        seconds = _timed(partial(session.extend, text[at:until]))
        out.prefill_cpu_s += process_time() - spent
        out.prefill.append((at, until - at, seconds))
        if until // every > at // every or until == depth:
            _stop(out, engine, session.fork(), folder / "measured.safetensors", text)
    return out


def _text(count: int) -> Tokens:
    return mix(np.arange(count, dtype=np.uint64)) & ~IMAGE_ROW


def _timed(act: Callable[[], object]) -> float:
    began = perf_counter()
    act()
    return perf_counter() - began


def _stop(out: Measured, engine: Engine, session: Any, path: Path, text: Tokens) -> None:
    at = session.length
    pair = [session, session.fork()]
    for batch in (1, 2):
        steps = [_timed(partial(_step, engine, pair[:batch], text)) for _ in range(STEPS)]
        out.decode.append((at, batch, median(steps)))
    size = 0
    for _ in range(3):
        size = engine.save(session, path)
    out.save.append((session.length, size, _timed(lambda: engine.save(session, path))))
    out.load.append((session.length, size, _timed(lambda: engine.load(path))))


def _step(engine: Engine, residents: list[Any], text: Tokens) -> None:
    engine.decode(residents, [text[resident.length] for resident in residents])


def costs(measured: Measured, config: ServerConfig) -> FittedCosts:
    """The measurement as a cost model. Files: by the tokens in them, put on the bytes that the server's files
    have (R4.4), since the small model's are smaller."""
    prefill = [(at + tokens / 2, seconds / tokens) for at, tokens, seconds in measured.prefill]
    alone = [(depth, seconds) for depth, batch, seconds in measured.decode if batch == 1]
    pairs = [seconds for _, batch, seconds in measured.decode if batch == 2]
    token, slope = _line(prefill)
    step, step_slope = _line(alone)
    share = median(two / one - 1 for two, (_, one) in zip(pairs, alone, strict=True))
    save = _line([(config.file_bytes(tokens), seconds) for tokens, _, seconds in measured.save])
    load = _line([(config.file_bytes(tokens), seconds) for tokens, _, seconds in measured.load])
    values = {
        "token_s": token, "token_slope_s": slope, "step_s": step, "step_slope_s": step_slope,
        "batch_share": max(0.0, share), "store_fixed_s": save[0], "store_byte_s": save[1],
        "load_fixed_s": load[0], "load_byte_s": load[1],
    }  # fmt: skip
    return FittedCosts(**{name: Figure(value, origin="device") for name, value in values.items()})


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least squares, neither part below 0."""
    x, y = np.array([p[0] for p in points]), np.array([p[1] for p in points])
    if len(set(x.tolist())) < 2:
        return float(np.median(y)), 0.0
    slope, start = np.polyfit(x, y, 1)
    if slope < 0:
        return float(np.median(y)), 0.0
    if start < 0:
        return 0.0, float((x @ y) / (x @ x))
    return float(start), float(slope)
