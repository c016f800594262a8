"""Chunk and decoding lines of a block as columns: reduced to one `Progress` a request, never objects.

Each line is given to the last `prompt start` of its span (a decode line to the last one of its P). Where two
requests with one P are open at once, and where no start is known, lines go through the joiner one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from parser.event import Event
from parser.eventlog import EventLog
from parser.opens import Open
from parser.request import Progress

if TYPE_CHECKING:
    import polars as pl

#: bulk lines of a block below which columns do not pay
FEW = 2_000
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Reduced:
    """What a block's bulk lines say of one request.

    `low`/`high` are (second of the day, elapsed) of the lines that bound its start from below and above;
    `last` is the seq of the last line, `last_s` its second of the day.
    """

    progress: Progress
    last: int
    last_s: float | None
    low: tuple[float, float] | None = None
    high: tuple[float, float] | None = None


def is_bulky(block: EventLog) -> bool:
    """Are there enough chunk and decoding lines for columns?"""
    return block.counts.get("prefill_chunk", 0) + block.counts.get("decoding", 0) > FEW


class Bulk:
    """The bulk lines of one block, given to requests by the seq of their `prompt start`."""

    def __init__(self, block: EventLog, carried: Iterable[Open]) -> None:
        self.block = block
        self.by_start: dict[int, list[Reduced]] = {}
        spans = [(o.place, *(o.span or (-1, o.row.prompt_tokens or -1, -1))) for o in carried]
        starts = _spans(block.frame("prompt_start"))
        self._starts = sorted(spans) + starts
        self._contested = contested(self._starts, _spans(block.frame("finish")))
        self._single: list[pl.DataFrame] = []
        self._chunks(block.frame("prefill_chunk"))
        self._decodes(block.frame("decoding"))

    def events(self) -> Iterator[Event]:
        """All events that are not bulk, and the bulk lines that nothing assigns, in file order."""
        singles = [_events(frame) for frame in self._single]
        return merge(self.block.rows(), *singles, key=attrgetter("seq"))

    def around(self, seq: int) -> list[tuple[int, int, int]]:
        """(C, P, position reached) of the chunk lines near `seq`; decode lines as (-1, P, position)."""
        near: list[tuple[int, int, int, int]] = []
        for frame, count in ((self._chunk_frame, "done"), (self._decode_frame, "gen")):
            at = int(frame["seq"].search_sorted(seq)) if len(frame) else 0
            part = frame.slice(max(0, at - 40), 80)
            rows = part.select("seq", "span_start", "span_end", count).iter_rows()
            near.extend(_reached(row, count) for row in rows)
        near.sort(key=lambda one: abs(one[0] - seq))
        return [one[1:] for one in near]

    # -- columns ---------------------------------------------------------------------------------------

    def _chunks(self, frame: pl.DataFrame) -> None:
        import polars as pl

        self._chunk_frame = frame
        plain = frame.filter(
            (pl.col("phase") == "prefill") & pl.col("span_start").is_not_null() & pl.col("done").is_not_null()
        )
        self._rest(frame, plain)
        keyed = plain.with_columns(p=pl.col("span_end"), c=pl.col("span_start"))
        self._reduce(self._assigned(keyed, by=["p", "c"]), ["done", "total", "avg_tps"])

    def _decodes(self, frame: pl.DataFrame) -> None:
        import polars as pl

        self._decode_frame = frame
        plain = frame.filter(pl.col("span_end").is_not_null() & pl.col("gen").is_not_null())
        self._rest(frame, plain)
        keyed = plain.with_columns(p=pl.col("span_end") - pl.col("gen"))
        self._reduce(self._assigned(keyed, by=["p"]), ["gen", "avg_tps"])

    def _rest(self, frame: pl.DataFrame, plain: pl.DataFrame) -> None:
        if len(plain) < len(frame):
            self._single.append(frame.join(plain.select("seq"), on="seq", how="anti"))

    def _assigned(self, keyed: pl.DataFrame, by: list[str]) -> pl.DataFrame:
        """Lines with the seq of their request's start in `start`; the others are put aside."""
        import polars as pl

        starts = pl.DataFrame(
            self._starts,
            schema={"start": pl.Int64, "c": pl.Int64, "p": pl.Int64, "n": pl.Int64},
            orient="row",
        ).with_columns(seq=pl.col("start"))
        starts = starts.filter(~pl.col("p").is_in(list(self._contested))).select("seq", "start", *by)
        found = keyed.join_asof(
            starts.sort("seq"), on="seq", by=by, strategy="backward", check_sortedness=False
        )
        lost = found.filter(pl.col("start").is_null())
        if len(lost):
            open_p = pl.col("p").is_in(list(self._contested))
            ends = lost.filter(~open_p).group_by(by, maintain_order=True)
            few = pl.concat([ends.first(), ends.last()]).select(lost.columns).unique("seq")
            kept = pl.concat([lost.filter(open_p), few]).sort("seq")
            self._single.append(
                kept.select(
                    self._chunk_frame.columns if "done" in kept.columns else self._decode_frame.columns
                )
            )
        return found.filter(pl.col("start").is_not_null())

    def _reduce(self, found: pl.DataFrame, names: list[str]) -> None:
        import polars as pl

        clock = pl.col("stamp").str.slice(-8)
        second = (
            clock.str.slice(0, 2).cast(pl.Int32, strict=False) * 3600
            + clock.str.slice(3, 2).cast(pl.Int32, strict=False) * 60
            + clock.str.slice(6, 2).cast(pl.Int32, strict=False)
        )
        slack = pl.col("s") - pl.col("elapsed_s")
        chunk = names[0] == "done"
        grouped = (
            found.with_columns(s=second)
            .group_by("start", maintain_order=True)
            .agg(
                pl.len().alias("lines"),
                pl.col("seq").last().alias("last"),
                pl.col("s").last().alias("last_s"),
                pl.col(names[0]).first().alias("first_value"),
                pl.col("elapsed_s").first().alias("first_elapsed"),
                pl.col("elapsed_s").last().alias("last_elapsed"),
                *(pl.col(name).last().alias(f"last_{name}") for name in names),
                *(
                    pl.col(name).get(index()).alias(f"{side}_{name}")
                    for side, index in (("low", slack.arg_max), ("high", slack.arg_min))
                    for name in ("s", "elapsed_s")
                    if chunk
                ),
            )
        )
        for row in grouped.iter_rows(named=True):
            self.by_start.setdefault(row["start"], []).append(_of_chunks(row) if chunk else _of_decodes(row))


def _spans(frame: pl.DataFrame) -> list[tuple[int, int, int, int]]:
    """(seq, C, P, n) of lines with a whole span, in file order."""
    rows = frame.select("seq", "span_start", "span_end", "span_tokens").drop_nulls()
    return [(seq, start, end, tokens) for seq, start, end, tokens in rows.iter_rows()]


def contested(
    starts: Iterable[tuple[int, int, int, int]], ends: Iterable[tuple[int, int, int, int]]
) -> set[int]:
    """P of requests that were open at once with another of that P: spans do not tell their lines apart."""
    found: set[int] = set()
    running: dict[int, int] = {}
    both = merge(((*one, True) for one in starts), ((*one, False) for one in ends), key=lambda one: one[0])
    for _, _, prompt, _, begins in both:
        count = max(0, running.get(prompt, 0) + (1 if begins else -1))
        running[prompt] = count
        if count > 1:
            found.add(prompt)
    return found


def _reached(row: tuple[int, int, int, int], count: str) -> tuple[int, int, int, int]:
    seq, start, end, value = row
    if count == "done":
        return seq, start or 0, end or 0, (start or 0) + (value or 0)
    return seq, -1, (end or 0) - (value or 0), end or 0


def _of_chunks(row: dict[str, Any]) -> Reduced:
    progress = Progress(
        chunks=row["lines"], first_done=row["first_value"], first_s=row["first_elapsed"],
        last_done=row["last_done"], total=row["last_total"], last_s=row["last_elapsed"],
        avg_tps=row["last_avg_tps"],
    )  # fmt: skip
    return Reduced(progress, row["last"], row["last_s"], _pair(row, "low"), _pair(row, "high"))


def _of_decodes(row: dict[str, Any]) -> Reduced:
    progress = Progress(
        decodes=row["lines"], decoded=row["last_gen"], decode_s=row["last_elapsed"],
        decode_tps=row["last_avg_tps"],
    )  # fmt: skip
    return Reduced(progress, row["last"], row["last_s"])


def _pair(row: dict[str, Any], side: str) -> tuple[float, float] | None:
    second, elapsed = row[f"{side}_s"], row[f"{side}_elapsed_s"]
    return None if second is None or elapsed is None else (float(second), float(elapsed))


def _events(frame: pl.DataFrame) -> Iterator[Event]:
    """Rows of a bulk frame as events."""
    kind = "prefill_chunk" if "done" in frame.columns else "decoding"
    return EventLog([], {kind: frame}).rows(kind)


def absorb(opened: Open, reduced: Reduced, start_second: float | None) -> None:
    """Add what columns say to an open request. `start_second`: second of the day of its `prompt start`."""
    opened.progress = _merged(opened.progress, reduced.progress)
    opened.last = max(opened.last, reduced.last)
    if start_second is None or opened.started_at is None:
        return
    for pair in (reduced.low, reduced.high):
        if pair is not None:
            opened.seen.append((opened.started_at + _ahead(pair[0], start_second), pair[1]))
    if reduced.last_s is not None:
        opened.last_at = max(
            opened.last_at or opened.started_at, opened.started_at + _ahead(reduced.last_s, start_second)
        )


def _ahead(second: float, start: float) -> float:
    """Seconds from one time of day to another, over midnight if need be."""
    return (second - start + _DAY / 2) % _DAY - _DAY / 2


def _merged(was: Progress, more: Progress) -> Progress:
    if was.chunks == 0 and was.decodes == 0:
        return more
    first = was if was.first_done is not None else more
    last = more if more.chunks else was
    told = more if more.decodes else was
    return Progress(
        was.chunks + more.chunks, first.first_done, first.first_s, last.last_done, last.total, last.last_s,
        last.avg_tps, was.decodes + more.decodes, told.decoded, told.decode_s, told.decode_tps,
    )  # fmt: skip
