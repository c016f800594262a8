"""Level of detail: what happened within each cell, at any zoom, without looking at each request.

Everything that adds up (seconds of a phase, counts) is kept as a running sum over the spans of a lane; a
cell is the difference of two sums, so a frame costs one binary search and one gather a lane, whatever it
covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import polars as pl

#: Seconds: waiting for disk, prefill (reused share, computed share, of unknown shares), decode, hidden by the
#: filter.
SECONDS: Final = ("io", "cached", "fresh", "unknown", "decode", "hidden")
COUNTS: Final = ("evicts", "losses", "restores", "rewinds", "failures", "changes", "shown")
_FLAGS: Final = ("evict", "loss", "restore", "rewind", "failed")
_BLOCK: Final = 64


@dataclass(frozen=True, slots=True)
class Cells:
    """A row of cells, one value each. Sums over the cell: seconds of the phases, counts, `begun` spans. At
    its end: `span` (-1: none yet) and its `row` in the table, `held` (the slot still holds its state),
    `keep` (passes the filter), conv, sure. `live` is the highest live length within the cell (None: not
    known)."""

    io: list[float]
    cached: list[float]
    fresh: list[float]
    unknown: list[float]
    decode: list[float]
    hidden: list[float]
    evicts: list[int]
    losses: list[int]
    restores: list[int]
    rewinds: list[int]
    failures: list[int]
    changes: list[int]
    shown: list[int]
    begun: list[int]
    span: list[int]
    row: list[int]
    held: list[bool]
    keep: list[bool]
    conv: list[int]
    sure: list[int]
    live: list[float | None]

    def __len__(self) -> int:
        return len(self.span)


@dataclass(frozen=True, slots=True)
class Instant:
    """A lane at one instant: the request that holds it (`row` of the table, None: nobody), what it is doing
    (io, prefill, decode, idle, empty) and its live tokens (None: not known)."""

    row: int | None
    phase: str
    live: float | None
    sure: int


class LaneIndex:
    """The spans of one lane, in order, not overlapping, with running sums.

    `spans` columns: row, begin <= start <= prefilled <= end <= until <= next begin (axis units), prompt,
    cached, generated, live_after, conv, sure, flags evict/loss/restore/rewind/failed/keep (bool).
    """

    def __init__(self, spans: pl.DataFrame) -> None:
        self.spans = spans.with_columns(_phases()).with_columns(_sums())
        self._begin = spans["begin"]
        self._peaks = Peaks(spans["live_after"].fill_null(0))

    def __len__(self) -> int:
        return len(self._begin)

    def instant(self, x: float) -> Instant:
        """The lane just before `x`."""
        span = self._before([x]).row(0, named=True) if len(self) else {"index": -1, "held": False}
        if span["index"] < 0 or not span["held"]:
            return Instant(None, "empty", None, 0)
        return Instant(span["row"], _phase(span, x), span["live"], span["sure"])

    def last_begin(self, x: float) -> float | None:
        """When the last span that began before `x` began; None where none did."""
        count = int(self._begin.search_sorted(x, side="left"))
        return float(self._begin[count - 1]) if count else None

    def cells(self, edges: Sequence[float]) -> Cells:
        """What lies between each two neighbouring `edges` (ascending)."""
        if not len(self):
            return _nothing(len(edges) - 1)
        at = self._before(edges).to_dict(as_series=False)
        index, live = at["index"], at["live"][1:]
        for cell, peak in self._peaks.within(index).items():
            live[cell] = max(peak, live[cell] or 0.0)
        sums = {name: _differences(at[name]) for name in SECONDS + COUNTS}
        ends = {name: at[name][1:] for name in ("row", "held", "keep", "conv", "sure")}
        return Cells(**sums, **ends, begun=_differences(index), span=index[1:], live=live)

    def _before(self, points: Sequence[float]) -> pl.DataFrame:
        """One row a point: the span that began last before it (`index`, -1 none), sums up to there."""
        x = pl.Series("x", points, dtype=pl.Float64)
        count = self._begin.search_sorted(x, side="left").to_list()
        taken = self.spans[[max(n - 1, 0) for n in count]]
        index = pl.Series("index", [n - 1 for n in count], dtype=pl.Int64)
        return (
            taken.hstack([index, x])
            .lazy()
            .with_columns(_ELAPSED)
            .with_columns(_PARTIAL)
            .select(_POINT)
            .collect()
        )


def _differences(sums: list[Any]) -> list[Any]:
    return [after - before for before, after in pairwise(sums)]


def _phase(span: dict[str, Any], x: float) -> str:
    """io, prefill, decode or idle just before `x`."""
    if x <= span["start"] and span["start"] > span["begin"]:
        return "io"
    if x <= span["prefilled"] and span["prefilled"] > span["start"]:
        return "prefill"
    return "decode" if x <= span["end"] else "idle"


def _nothing(size: int) -> Cells:
    """A lane that nobody ever sat in."""
    zero, none, nobody = [0.0] * size, [0] * size, [-1] * size
    sums: dict[str, Any] = dict.fromkeys(SECONDS, zero) | dict.fromkeys((*COUNTS, "begun", "sure"), none)
    at_end: dict[str, Any] = {"held": [False] * size, "keep": [True] * size, "live": [None] * size}
    return Cells(**sums, **at_end, span=nobody, row=nobody, conv=nobody)


def _phases() -> list[pl.Expr]:
    """Length of each phase of a span; `cached_d` is the share of the prefill that stands for reuse."""
    prefill = pl.col("prefilled") - pl.col("start")
    share = (pl.col("cached") / pl.col("prompt")).fill_nan(0).clip(0, 1)
    return [
        (pl.col("start") - pl.col("begin")).alias("io_d"),
        (prefill * share).fill_null(0).alias("cached_d"),
        (prefill * (1 - share)).fill_null(0).alias("fresh_d"),
        pl.when(share.is_null()).then(prefill).otherwise(0.0).alias("unknown_d"),
        (pl.col("end") - pl.col("prefilled")).alias("decode_d"),
    ]


def _sums() -> list[pl.Expr]:
    """Running sums: seconds before the span (its own part depends on the point), counts with it."""
    keep = pl.col("keep")
    lengths = [pl.col(f"{name}_d") for name in SECONDS[:-1]]
    seconds = [length * keep for length in lengths] + [pl.sum_horizontal(lengths) * ~keep]
    change = (pl.col("conv") != pl.col("conv").shift(1)).fill_null(True)
    counts = [*(pl.col(flag) & keep for flag in _FLAGS), change, keep]
    return [
        *(
            value.cum_sum().shift(1, fill_value=0.0).alias(name)
            for name, value in zip(SECONDS, seconds, strict=True)
        ),
        *(value.cast(pl.Int64).cum_sum().alias(name) for name, value in zip(COUNTS, counts, strict=True)),
    ]


def _elapsed() -> list[pl.Expr]:
    """Seconds of each phase between the span's begin and the point `x`."""
    x = pl.col("x")
    prefill = (x - pl.col("start")).clip(0, pl.col("prefilled") - pl.col("start"))
    return [
        (x - pl.col("begin")).clip(0, pl.col("io_d")).alias("io_p"),
        pl.min_horizontal(prefill, pl.col("cached_d")).alias("cached_p"),
        (prefill - pl.col("cached_d")).clip(0, pl.col("fresh_d")).alias("fresh_p"),
        pl.min_horizontal(prefill, pl.col("unknown_d")).alias("unknown_p"),
        (x - pl.col("prefilled")).clip(0, pl.col("decode_d")).alias("decode_p"),
    ]


def _partial() -> list[pl.Expr]:
    keep = pl.col("keep")
    parts = [pl.col(f"{name}_p") for name in SECONDS[:-1]]
    seconds = [pl.col(name) + part * keep for name, part in zip(SECONDS, parts, strict=False)]
    return [*seconds, pl.col("hidden") + pl.sum_horizontal(parts) * ~keep]


def _live() -> pl.Expr:
    """Live tokens: C after the load, up to P in prefill, up to P + gen in decode, then `live_after`."""
    cached, prompt = pl.col("cached").fill_null(0), pl.col("prompt")
    done = ((pl.col("x") - pl.col("start")) / (pl.col("prefilled") - pl.col("start"))).fill_nan(1).clip(0, 1)
    said = (pl.col("decode_p") / pl.col("decode_d")).fill_nan(0).clip(0, 1) * pl.col("generated").fill_null(0)
    over = pl.col("x") >= pl.col("end")
    return pl.when(over).then(pl.col("live_after")).otherwise(cached + (prompt - cached) * done + said)


def _point() -> list[pl.Expr]:
    """What is known at a point; nothing before the first span, no live tokens once the slot was emptied."""
    somebody = pl.col("index") >= 0
    held = (somebody & (pl.col("x") <= pl.col("until"))).alias("held")
    emptied = pl.when(somebody & (pl.col("x") > pl.col("until"))).then(0.0)
    live = emptied.when(somebody).then(_live()).alias("live")
    sums = [pl.when(somebody).then(pl.col(name)).otherwise(0).alias(name) for name in SECONDS + COUNTS]
    return [
        pl.col("index", "row", "begin", "start", "prefilled", "end", "conv", "sure", "keep"),
        held,
        live,
        *sums,
    ]


_ELAPSED: Final = _elapsed()
_PARTIAL: Final = _partial()
_POINT: Final = _point()


class Peaks:
    """The highest of many values within a range: blocks of 64, and blocks of blocks."""

    def __init__(self, values: pl.Series) -> None:
        self._levels = [values]
        while len(self._levels[-1]) > _BLOCK:
            self._levels.append(_block_peaks(self._levels[-1]))

    def within(self, index: Sequence[int]) -> dict[int, float]:
        """cell -> highest value of the spans index[cell] .. index[cell+1]-1 that end in it; others absent.

        Where a window covers very many spans, whole blocks are taken: a peak may come from a neighbour cell.
        """
        level, size = 0, 1
        while (index[-1] - index[0]) // size > 16 * len(index) and level + 1 < len(self._levels):
            level, size = level + 1, size * _BLOCK
        low = max(index[0], 0) // size
        values = self._levels[level].slice(low, index[-1] // size - low + 1).to_list()
        found = {}
        for cell, (first, last) in enumerate(pairwise(index)):
            if last > max(first, 0):
                begin = max(first, 0) // size - low
                found[cell] = float(max(values[begin : max(begin + 1, last // size - low)]))
        return found


def _block_peaks(values: pl.Series) -> pl.Series:
    frame = pl.DataFrame({"value": values}).with_row_index("i")
    blocks = frame.group_by(pl.col("i") // _BLOCK, maintain_order=True).agg(pl.col("value").max())
    return blocks["value"]
