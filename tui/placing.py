"""Where on the axis each request stands: by its stamps, made to fit with the order in its slot, or by order.

A log has stamps of one second; a request's start is known to within `error_s`. Requests of one slot follow
each other, so starts are moved within their errors until none begins before the one before it has ended.
"""

from __future__ import annotations

from typing import Final, Literal

import polars as pl

AxisChoice = Literal["auto", "time", "order"]

_TIMED_SHARE: Final = 0.6  # with fewer requests timed than this, the order of requests is the better axis
_BUSY: Final = 0.92  # share of its unit that a request fills on the order axis


def choose(requests: pl.DataFrame, wanted: AxisChoice) -> tuple[Literal["time", "order"], str]:
    """The axis, and in plain words why it is not time where time was not refused by the caller."""
    timed = requests["start_s"].drop_nulls()
    enough = len(requests) == 0 or len(timed) >= _TIMED_SHARE * len(requests)
    if wanted == "order":
        return "order", ""
    if not enough:
        return "order", "no clock in this log: requests in order, widths are not times"
    if len(timed) > 1 and timed.min() == timed.max() and requests["total_s"].sum() == 0:
        return "order", "all stamps are equal: requests in order, widths are not times"
    return "time", ""


def placed(requests: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Adds row, begin <= start <= prefilled <= end (axis units) and `timed` (False: a guessed time)."""
    table = requests.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    placed = table.with_columns(_by_time() if kind == "time" else _by_order()).with_columns(
        begin=pl.min_horizontal("begin", "start"),
        prefilled=pl.max_horizontal("prefilled", "start"),
        end=pl.max_horizontal("end", "prefilled", "start"),
        timed=pl.col("start_s").is_not_null(),
    )
    return placed if kind == "order" else _in_turn(placed)


def _in_turn(table: pl.DataFrame) -> pl.DataFrame:
    """Starts moved within their errors so that the requests of a slot do not overlap.

    With D the time that the requests before it in the slot took, "not before the last has ended" reads
    begin - D never falls: a running minimum from the end gives the latest begins, a running maximum the
    earliest ones. Where the errors leave no room (a slot that is guessed wrongly), times are kept.
    """
    taken = (pl.col("end") - pl.col("begin")).cum_sum().over("slot")
    before = taken - (pl.col("end") - pl.col("begin"))
    error = pl.col("error_s").fill_null(1.0).cast(pl.Float64)
    latest = pl.col("begin") + error - before
    wanted = pl.min_horizontal(pl.col("begin") - before, latest.cum_min(reverse=True).over("slot"))
    moved = wanted.cum_max().over("slot") + before - pl.col("begin")
    known = pl.col("slot").is_not_null() & (moved <= error + 1.0)
    shift = pl.when(known).then(moved.clip(-error, error + 1.0)).otherwise(0.0)
    return table.with_columns(
        (pl.col(name) + shift).alias(name) for name in ("begin", "start", "prefilled", "end")
    )


def _by_time() -> list[pl.Expr]:
    start = pl.col("start_s").fill_null(strategy="forward").fill_null(strategy="backward").fill_null(0.0)
    to_end = pl.col("end_s") - start
    whole = pl.coalesce("total_s", to_end, "prefill_s").fill_null(0.0).clip(0)
    return [
        (start - pl.col("load_s") - pl.col("save_s")).alias("begin"),
        start.alias("start"),
        (start + pl.coalesce("prefill_s", whole)).alias("prefilled"),
        (start + whole).alias("end"),
    ]


def _by_order() -> list[pl.Expr]:
    row = pl.col("row").cast(pl.Float64)
    moved = pl.col("evicted").fill_null(0) + pl.col("disk_hit").fill_null(0) > 0
    start = row + pl.when(moved).then(0.16).otherwise(0.04)
    share = (pl.col("prefill_s") / pl.col("total_s")).fill_nan(0.5).fill_null(0.5).clip(0.25, 0.75)
    return [
        row.alias("begin"),
        start.alias("start"),
        (start + share * (row + _BUSY - start)).alias("prefilled"),
        (row + _BUSY).alias("end"),
    ]
