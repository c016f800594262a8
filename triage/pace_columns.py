"""Pace over columns: the few requests of a long log in which the stamps or the printed seconds jump."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from parser.event import Event
from parser.eventlog import EventLog
from triage.thresholds import Thresholds

#: rows taken to objects at most; more jumps than that are a log of nothing else
_MOST: Final = 50_000


def suspects(log: EventLog, limits: Thresholds) -> list[Event]:
    """All rows of the requests in which two neighbours jump, as events (`triage.pace` judges the pairs)."""
    found: list[Event] = []
    if log.counts.get("prefill_chunk"):
        key = pl.struct("span_start", "span_end", "span_tokens").hash()
        found += _suspects(log.frame("prefill_chunk"), "prefill_chunk", key, "done", limits)
    if log.counts.get("decoding"):
        found += _suspects(
            log.frame("decoding"), "decoding", pl.col("span_end") - pl.col("gen"), "gen", limits
        )
    return found


def odd_finishes(log: EventLog) -> list[Event]:
    """Finish lines that tell of a fault: errors, an open think block, a call never closed, an empty turn."""
    frame = log.frame("finish")
    flags = pl.col("flags") if "flags" in frame.columns else pl.lit(None, dtype=pl.List(pl.String))
    has = {
        name: flags.list.contains(name).fill_null(False) for name in ("THINKING", "DSML_START", "DSML_END")
    }
    empty = (pl.col("gen") <= 16).fill_null(False) & (pl.col("finish") == "stop").fill_null(False)
    odd = (pl.col("finish") == "error").fill_null(False) | has["THINKING"] | empty
    odd = odd | (has["DSML_START"] & ~has["DSML_END"])
    return [_event(row, "finish") for row in frame.filter(odd).iter_rows(named=True)]


def _suspects(
    frame: pl.DataFrame, kind: str, key: pl.Expr, counter: str, limits: Thresholds
) -> Iterator[Event]:
    """The clock went on without the printed seconds, or one piece took far longer a token than the others."""
    slim = frame.select(key.alias("_key"), "stamp", "elapsed_s", pl.col(counter).alias("_count"))
    pairs = slim.sort("_key", maintain_order=True).select(
        "_key", "stamp", _before=pl.col("stamp").shift(1), _same=pl.col("_key") == pl.col("_key").shift(1),
        _printed=pl.col("elapsed_s").diff(), _more=pl.col("_count").diff(),
    )  # fmt: skip
    moved = pairs.filter(pl.col("_same") & (pl.col("_more") > 0) & (pl.col("_printed") >= 0))
    odd = pl.concat([_slept(moved, limits), _stalled(moved, limits)]).unique()
    if odd.is_empty():
        return
    rows = frame.with_columns(key.alias("_key")).join(odd, on="_key", how="semi").head(_MOST)
    for row in rows.iter_rows(named=True):
        yield _event(row, kind)


def _slept(moved: pl.DataFrame, limits: Thresholds) -> pl.DataFrame:
    """Keys of pairs between which the clock went on without the printed seconds."""
    minute = pl.col("stamp").str.head(-3) != pl.col("_before").str.head(-3)
    far = moved.filter(minute) if limits.suspended_s >= 60 else moved  # stamps are read only where it matters
    wall = _seconds("stamp") - _seconds("_before")
    return far.filter((wall - pl.col("_printed") >= limits.suspended_s).fill_null(False)).select("_key")


def _stalled(moved: pl.DataFrame, limits: Thresholds) -> pl.DataFrame:
    """Keys of pairs that took far longer a token than the others, of their request or of all."""
    slow = moved.filter(pl.col("_printed") >= limits.stall_s)
    if slow.is_empty():
        return slow.select("_key")
    rate = (pl.col("_printed") / pl.col("_more")).alias("_rate")
    rated = moved.select("_key", rate)
    usual = rated["_rate"].median()
    own = (
        rated.join(slow.select("_key").unique(), on="_key", how="semi")
        .group_by("_key")
        .agg(pl.col("_rate").min().alias("_least"))
    )
    fast = pl.min_horizontal("_least", pl.lit(usual))
    return slow.join(own, on="_key").filter(rate >= limits.stall_factor * fast).select("_key")


def _seconds(stamp: str) -> pl.Expr:
    """Seconds of a stamp, good enough to find jumps (months of 31 days); the clock judges the pairs later."""
    text = pl.col(stamp)
    clock = text.str.slice(-8)
    part = [clock.str.slice(at, 2).cast(pl.Int64, strict=False) for at in (0, 3, 6)]
    month, day = (text.str.slice(at, 2).cast(pl.Int64, strict=False) for at in (0, 2))
    days = pl.when(text.str.len_chars() > 9).then(month * 31 + day).otherwise(0)
    return days * 86_400 + part[0] * 3600 + part[1] * 60 + part[2]


def _event(row: dict[str, Any], kind: str) -> Event:
    fields = {name: value for name, value in row.items() if value is not None and not name.startswith("_")}
    place = [fields.pop(name, None) for name in ("seq", "line", "offset", "stamp")]
    return Event(
        place[0], place[1], place[2], row.get("_length") or 0, row.get("_source") or 0, place[3], kind,
        row.get("_rule") or "", fields, {}, row.get("_text") or "",
    )  # fmt: skip
