"""The scene: what is drawn, without a terminal. Lanes of slots, the disk, flows and curves on one axis.

Pure: columns in (`tui.tables`), immutable indices out. `tui.picture` turns a window of it into characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Final

import polars as pl

from tui.axis import Axis
from tui.lod import LaneIndex
from tui.placing import AxisChoice, choose, placed
from tui.tables import DECODE, LOADING, PREFILL, SURE, Frozen

_UNPLACED_LANES: Final = 4


@dataclass(frozen=True, slots=True)
class Setting:
    """What the server was, as far as the log tells: slots, context tokens, disk budget (MiB), profile."""

    slots: int | None = None
    ctx: int | None = None
    budget_mib: float | None = None
    disk: bool | None = None
    profile: str | None = None
    origin: datetime | None = None
    dated: bool = False
    run_lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Lane:
    """One slot (`slot` is its number) or, with `slot` None, requests whose slot is not known."""

    name: str
    slot: int | None
    index: LaneIndex


@dataclass(frozen=True, slots=True)
class Sums:
    """Running sums over all requests by start: `at` sorted; reused, fresh tokens and misses up to each."""

    frame: pl.DataFrame

    def between(self, edges: Sequence[float]) -> dict[str, list[float]]:
        """By cell: sums over the requests that start in it; `known`: how many say their tokens."""
        return _differences(self.frame, edges, ("reused", "fresh", "misses", "begun", "known"))


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk lane: marks by time with running sums (MiB and counts by kind), and flows with their tracks.

    `floor_mib` is what must have been there before the log began, judged from what was deleted.
    """

    marks: pl.DataFrame
    flows: pl.DataFrame
    tracks: int
    floor_mib: float

    def between(self, edges: Sequence[float]) -> dict[str, list[float]]:
        """By cell: number of marks of each kind in it."""
        return _differences(self.marks, edges, ("k0", "k1", "k2", "k3", "k4"))

    def most_mib(self) -> float:
        """The most that was there at any time."""
        return self.floor_mib + (_number(self.marks["mib_sum"].max()) if len(self.marks) else 0.0)

    def mib(self, points: Sequence[float]) -> list[float]:
        """MiB known to be on disk at each point (at least: what was there before is known only in part)."""
        return [self.floor_mib + value for value in _up_to(self.marks, points, ("mib_sum",))["mib_sum"]]


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that can be drawn. `table`: one row a request in axis units; `restarts`: new processes."""

    axis: Axis
    setting: Setting
    table: pl.DataFrame
    lanes: tuple[Lane, ...]
    disk: Disk
    sums: Sums
    names: tuple[str, ...]
    restarts: tuple[float, ...] = ()
    #: the part of the axis that has been read; the rest is drawn as unread
    read_to: float = 0.0
    kept: int = 0
    live_scale: int = 1
    extra: dict[str, object] = field(default_factory=dict)


def build(
    frozen: Frozen,
    setting: Setting,
    *,
    axis: AxisChoice = "auto",
    keep: pl.Series | None = None,
    span: tuple[float, float] | None = None,
) -> Scene:
    """The scene of `frozen` columns. `keep` (bool a request) hides what a filter leaves out; `span` fixes the
    ends of a time axis where more of the log is still to be read."""
    chosen, why = choose(frozen.requests, axis)
    table = placed(frozen.requests, chosen)
    table = table.with_columns(keep=pl.lit(True) if keep is None else keep)
    lo, hi = _ends(table, chosen, span)
    lanes = _lanes(table, setting, hi)
    where = Axis(chosen, lo, hi, setting.origin, setting.dated, why)
    return Scene(
        axis=where,
        setting=setting,
        table=table,
        lanes=lanes,
        disk=_disk(frozen, table),
        sums=_sums(table),
        names=frozen.names,
        restarts=_restarts(table),
        read_to=_last(table, lo) if span else hi,
        kept=int(table["keep"].sum()),
        live_scale=fitting(setting.ctx, _highest(table)),
    )


def refilter(scene: Scene, frozen: Frozen, keep: pl.Series | None) -> Scene:
    """The same scene showing only the requests of `keep` (None: all)."""
    axis = scene.axis
    made = build(frozen, scene.setting, axis=axis.kind, keep=keep, span=(axis.lo, axis.hi))
    return replace(made, axis=axis, read_to=scene.read_to)


def _ends(table: pl.DataFrame, kind: str, span: tuple[float, float] | None) -> tuple[float, float]:
    if kind == "order":
        return 0.0, float(max(1, len(table)))
    if not len(table):
        return span or (0.0, 1.0)
    lo, last = _number(table["begin"].min()), _last(table, 1.0)
    if span:
        return min(lo, span[0]), max(last, span[1])
    return lo, last + max(0.01 * (last - lo), 0.01)  # so that what comes last can be seen


def _last(table: pl.DataFrame, otherwise: float) -> float:
    return _number(table["end"].max()) if len(table) else otherwise


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _highest(table: pl.DataFrame) -> float:
    """The longest live length that any request tells of."""
    names = ("live_after", "evicted", "prompt")
    return max(_number(table[name].max()) for name in names) if len(table) else 0.0


def fitting(limit: float | None, highest: float) -> int:
    """The full height of a curve: the limit, or a half, a quarter, … of it where the curve stays below
    that."""
    if not limit:
        return int(highest) or 1
    while limit >= 16 and highest <= limit / 2:
        limit /= 2
    return int(limit)


def _run_ends(table: pl.DataFrame) -> pl.DataFrame:
    """run -> when the next process begins (all slots are empty again): somewhere between their requests."""
    runs = table.group_by("run").agg(pl.col("begin").min(), pl.col("end").max()).sort("run")
    between = (pl.min_horizontal("end", pl.col("begin").shift(-1)) + pl.col("begin").shift(-1)) / 2
    return runs.select("run", free=between)


def _restarts(table: pl.DataFrame) -> tuple[float, ...]:
    return tuple(_run_ends(table)["free"].drop_nulls().to_list()) if len(table) else ()


def _lanes(table: pl.DataFrame, setting: Setting, hi: float) -> tuple[Lane, ...]:
    ends = _run_ends(table)
    known = table["slot"].drop_nulls().unique().sort().to_list()
    count = max([setting.slots or 0, *(slot + 1 for slot in known)], default=0)
    lanes = [
        Lane(f"slot {slot}", slot, _index(table.filter(pl.col("slot") == slot), ends, hi))
        for slot in range(count)
    ]
    adrift = table.filter(pl.col("slot").is_null())
    for number, rows in enumerate(_pack(adrift, "begin", "end", _UNPLACED_LANES)):
        name = "slot ?" if number == 0 else f"slot ?{number + 1}"
        spans = adrift[rows].with_columns(sure=pl.lit(SURE["ambiguous"], dtype=pl.Int8))
        lanes.append(Lane(name, None, _index(spans, ends, hi)))
    return tuple(lanes)


def _pack(frame: pl.DataFrame, begin: str, end: str, most: int) -> list[list[int]]:
    """Rows of `frame` on as few tracks as overlaps allow, at most `most`; the last takes the rest."""
    tracks: list[list[int]] = []
    free: list[float] = []
    for row, (start, stop) in enumerate(frame.select(begin, end).iter_rows()):
        track = next((number for number, at in enumerate(free) if at <= start), None)
        if track is None and len(tracks) < most:
            track = len(tracks)
            tracks.append([])
            free.append(start)
        track = len(tracks) - 1 if track is None else track
        tracks[track].append(row)
        free[track] = max(free[track], stop)
    return tracks


def _index(spans: pl.DataFrame, ends: pl.DataFrame, hi: float) -> LaneIndex:
    """Spans of one lane made non-overlapping: what a one-second clock blurs is cut where the next begins."""
    gone = pl.col("evicted").fill_null(0) > 0
    placed = (
        spans.join(ends, on="run", how="left")
        .sort("row")
        .with_columns(begin=pl.col("begin").cum_max())
        .with_columns(next=pl.min_horizontal(pl.col("begin").shift(-1), "free").fill_null(max(hi, 0) + 1e9))
        .with_columns(next=pl.max_horizontal("next", "begin"))
    )
    cut = [
        pl.col(name).clip(pl.col("begin"), pl.col("next")).alias(name)
        for name in ("start", "prefilled", "end")
    ]
    return LaneIndex(
        placed.with_columns(cut).select(
            *("row", "begin", "start", "prefilled", "end", "prompt", "cached", "generated", "live_after"),
            *("conv", "sure", "keep", "rewound", "failed", pl.col("next").alias("until")),
            evict=gone & pl.col("saved"),
            loss=gone & ~pl.col("saved"),
            restore=pl.col("disk_hit").fill_null(0) > 0,
            rewind=pl.col("rewound"),
        )
    )


def _sums(table: pl.DataFrame) -> Sums:
    kept = table.filter(pl.col("keep")).sort("start")
    return Sums(
        kept.select(
            at=pl.col("start"),
            reused=pl.col("cached").fill_null(0).cum_sum(),
            fresh=pl.col("fresh").fill_null(0).cum_sum(),
            misses=pl.col("miss").cast(pl.Int64).cum_sum(),
            begun=pl.int_range(1, pl.len() + 1),
            known=(pl.col("cached").is_not_null() & pl.col("fresh").is_not_null()).cast(pl.Int64).cum_sum(),
        )
    )


def _disk(frozen: Frozen, table: pl.DataFrame) -> Disk:
    marks = (
        frozen.marks.join(table, on="row", how="left", maintain_order="left")
        .with_columns(at=_mark_time())
        .sort("at", maintain_order=True)
    )
    kinds = [(pl.col("kind") == kind).cast(pl.Int64).cum_sum().alias(f"k{kind}") for kind in range(5)]
    summed = marks.select(
        "at", "row", "kind", "tokens", "mib", "conv", "slot", *kinds, mib_sum=pl.col("mib").cum_sum()
    )
    lowest = _number(summed["mib_sum"].min()) if len(summed) else 0.0
    flows = _flows(frozen.flows, table)
    return Disk(summed, flows, _number_of_tracks(flows), max(0.0, -lowest))


def _mark_time() -> pl.Expr:
    prefill = pl.col("start") + pl.col("share") * (pl.col("prefilled") - pl.col("start"))
    decode = pl.col("prefilled") + pl.col("share") * (pl.col("end") - pl.col("prefilled"))
    return (
        pl.when(pl.col("phase") == LOADING).then(pl.col("start"))
        .when(pl.col("phase") == PREFILL).then(prefill)
        .when(pl.col("phase") == DECODE).then(decode)
        .otherwise(pl.col("begin"))
    )  # fmt: skip


def _flows(flows: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """Flows with times: `left` when evicted, `back` when its conversation returned (null: not yet)."""
    when = table.select("row", pl.col("begin").alias("left"), pl.col("slot").alias("from_slot"), "saved")
    back = table.select("row", pl.col("start").alias("back"), pl.col("slot").alias("to_slot"))
    timed = (
        flows.join(when, left_on="from_row", right_on="row", how="left")
        .join(back, left_on="to_row", right_on="row", how="left")
        .sort("left", "from_row")
    )
    tracks = _pack(timed.with_columns(pl.col("back").fill_null(float("inf"))), "left", "back", 8)
    track_of = {row: track for track, rows in enumerate(tracks) for row in rows}
    return timed.with_columns(track=pl.Series([track_of[row] for row in range(len(timed))], dtype=pl.Int8))


def _number_of_tracks(flows: pl.DataFrame) -> int:
    return int(_number(flows["track"].max())) + 1 if len(flows) else 0


def _differences(frame: pl.DataFrame, edges: Sequence[float], names: Sequence[str]) -> dict[str, list[float]]:
    sums = _up_to(frame, edges, names)
    return {name: [after - before for before, after in pairwise(sums[name])] for name in names}


def _up_to(frame: pl.DataFrame, points: Sequence[float], names: Sequence[str]) -> dict[str, list[float]]:
    """The running sums `names` before each point (0 where nothing lies before it)."""
    if not len(frame):
        return {name: [0] * len(points) for name in names}
    count = frame["at"].search_sorted(pl.Series(points, dtype=pl.Float64), side="left").to_list()
    taken = frame[[max(n - 1, 0) for n in count], list(names)].to_dict(as_series=False)
    return {name: [value if n else 0 for value, n in zip(taken[name], count, strict=True)] for name in names}
