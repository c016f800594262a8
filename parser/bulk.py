"""Chunk and decoding lines of a block as columns: reduced to one `Progress` a request, never objects.

A line is given to the request whose numbers it bears, where they tell one (`parser.lifetimes`); the lines of
all other requests go through the joiner one by one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import merge
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from parser.event import Event
from parser.eventlog import EventLog
from parser.lifetimes import Lifetimes, steady
from parser.opens import Open
from parser.request import Progress

if TYPE_CHECKING:
    import polars as pl

#: bulk lines of a block below which columns do not pay
FEW = 2_000
#: lines without a known start, in one block, that go one by one
STRAY = 4_000
_DAY = 86_400.0

#: What a block's bulk lines say of one request, by column.
Reduced = tuple[Any, ...]
_CHUNK_COLUMNS: Final = (
    "chunks", "first_done", "first_s", "last_done", "total", "last_s", "avg_tps", "last_chunk", "chunk_second",
    "low_second", "low_s", "high_second", "high_s",
)  # fmt: skip
_DECODE_COLUMNS: Final = ("decodes", "decoded", "decode_s", "decode_tps", "last_decode", "decode_second")


def is_bulky(block: EventLog, before: str | None) -> bool:
    """Are there enough chunk and decoding lines for columns, and stamps that run on from `before`?"""
    many = block.counts.get("prefill_chunk", 0) + block.counts.get("decoding", 0) > FEW
    return many and steady(before, block.stamp_column())


@dataclass(slots=True)
class Seen:
    """The last line of a request up to a place in the log, and its progress there."""

    last: int
    progress: Progress


class Bulk:
    """The bulk lines of one block, given to requests by the seq of their `prompt start`."""

    def __init__(self, block: EventLog, carried: Iterable[Open], *, serial: bool) -> None:
        self.block = block
        self._lives = Lifetimes(block, carried, serial=serial)
        self._single: list[pl.DataFrame] = []
        keyed = self._keyed(block)
        assigned = [self._assigned(frame, by) for frame, by in keyed]
        self._told_apart(assigned)
        self._chunks, self._decodes = (
            self._kept(one, by) for one, (_, by) in zip(assigned, keyed, strict=True)
        )
        both = _reduced_chunks(self._chunks).join(
            _reduced_decodes(self._decodes), on="start", how="full", coalesce=True
        )
        columns = both.select("start", *_CHUNK_COLUMNS, *_DECODE_COLUMNS)
        self.by_start: dict[int, Reduced] = {row[0]: row[1:] for row in columns.iter_rows()}

    def events(self) -> Iterator[Event]:
        """All events that are not bulk, and the bulk lines that nothing assigns, in file order; of the batch
        lines, which are no request's, the first and the last: a run may begin or end with them."""
        singles = [self.block.picked(_kind(frame), frame["seq"]) for frame in self._single]
        batches = self.block.frame("decode_batch")["seq"]
        ends = self.block.picked("decode_batch", batches.head(1).append(batches.tail(1)))
        return merge(self.block.rows(), ends, *singles, key=attrgetter("seq"))

    def seen(self, opened: Open, seq: int) -> Seen:
        """What was seen of an open request by the line `seq`."""
        seen = Seen(opened.last, opened.progress)
        for lines, field in ((self._chunks_of, "last_done"), (self._decodes_of, "decoded")):
            seqs, counts = lines.get(opened.place, ((), ()))
            if at := bisect_left(seqs, seq):
                seen.last = max(seen.last, seqs[at - 1])
                seen.progress = replace(seen.progress, **{field: counts[at - 1]})
        return seen

    @cached_property
    def _chunks_of(self) -> dict[int, tuple[list[int], list[int]]]:
        return _by_start(self._chunks, "done")

    @cached_property
    def _decodes_of(self) -> dict[int, tuple[list[int], list[int]]]:
        return _by_start(self._decodes, "gen")

    # -- columns ---------------------------------------------------------------------------------------

    def _keyed(self, block: EventLog) -> list[tuple[pl.DataFrame, list[str]]]:
        """Prefill chunks and decoding lines with the numbers that name their request; the others go one by one."""
        import polars as pl

        span = pl.col("span_start", "span_end", "span_tokens")
        whole = ~pl.any_horizontal(span.is_null()) & pl.col("stamp").is_not_null()
        chunks, decodes = block.frame("prefill_chunk"), block.frame("decoding")
        prefill = chunks.filter(whole & (pl.col("phase") == "prefill") & pl.col("done").is_not_null())
        decoding = decodes.filter(whole & pl.col("gen").is_not_null())
        for every, plain in ((chunks, prefill), (decodes, decoding)):
            if len(plain) < len(every):
                rest = every.join(plain.select("seq"), on="seq", how="anti")
                self._lives.contested.update(self._prompts(rest))
                self._single.append(rest)
        by_span = {"p": pl.col("span_end"), "c": pl.col("span_start"), "n": pl.col("span_tokens")}
        return [
            (prefill.with_columns(**by_span), ["p", "c", "n"]),
            (decoding.with_columns(p=pl.col("span_end") - pl.col("gen")), ["p"]),
        ]

    def _prompts(self, lines: pl.DataFrame) -> list[int]:
        """Each P that lines without all their numbers may have; one without any goes to whatever is open."""
        import polars as pl

        if lines.select(pl.col("span_start", "span_end").is_null().any()).row(0) != (False, False):
            return [life.span[1] for life in self._lives.all]
        counts = [0] if "gen" not in lines.columns else [0, *lines["gen"].drop_nulls().unique()]
        return [end - count for end in lines["span_end"].unique() for count in counts]

    def _assigned(self, keyed: pl.DataFrame, by: list[str]) -> pl.DataFrame:
        """Lines with the seq of their request's start in `start`, null where none is sure."""
        import polars as pl

        rows = [(life.start, *life.span, life.end) for life in self._lives.clear]
        names = ("start", "c", "p", "n", "end")
        starts = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64), orient="row")
        starts = starts.with_columns(seq=pl.col("start")).select("seq", "start", "end", *by)
        found = keyed.join_asof(
            starts.sort("seq"), on="seq", by=by, strategy="backward", check_sortedness=False
        )
        return found.with_columns(start=pl.when(pl.col("seq") < pl.col("end")).then("start"))

    def _told_apart(self, assigned: list[pl.DataFrame]) -> None:
        """A request of which one line is not told by its numbers has none that is."""
        known = {life.span[1] for life in self._lives.all}
        for found in assigned:
            lost = found.filter(found["start"].is_null())["p"].unique()
            self._lives.contested.update(known.intersection(lost))

    def _kept(self, found: pl.DataFrame, by: list[str]) -> pl.DataFrame:
        """The lines that are told by their numbers; the others are put aside."""
        import polars as pl

        sure = pl.col("start").is_not_null() & ~pl.col("p").is_in(list(self._lives.contested))
        lost = found.filter(~sure)
        if len(lost):
            self._single.append(self._thinned(lost, by))
        return found.filter(sure)

    def _thinned(self, lost: pl.DataFrame, by: list[str]) -> pl.DataFrame:
        """Lines without a start go one by one; of very many (a log of chunk lines alone) first and last."""
        import polars as pl

        if len(lost) <= STRAY:
            return lost
        known = pl.col("p").is_in(list(self._lives.contested))
        ends = lost.filter(~known).group_by(by, maintain_order=True)
        few = pl.concat([ends.first(), ends.last()]).select(lost.columns).unique("seq")
        return pl.concat([lost.filter(known), few]).sort("seq")


def _by_start(lines: pl.DataFrame, count: str) -> dict[int, tuple[list[int], list[int]]]:
    """The seq and the count of each line, by request."""
    import polars as pl

    every = lines.group_by("start").agg(pl.col("seq"), pl.col(count).alias("count"))
    return {start: (seqs, counts) for start, seqs, counts in every.iter_rows()}


def _second() -> pl.Expr:
    """Second of the day of the stamp."""
    import polars as pl

    clock = pl.col("stamp").str.slice(-8)
    hours, minutes, seconds = (clock.str.slice(at, 2).cast(pl.Int32, strict=False) for at in (0, 3, 6))
    return hours * 3600 + minutes * 60 + seconds


def _reduced_chunks(found: pl.DataFrame) -> pl.DataFrame:
    """One row a request; `low_*` and `high_*` are the lines that bound its start from below and above."""
    import polars as pl

    slack = pl.col("s") - pl.col("elapsed_s")
    return (
        found.with_columns(s=_second())
        .group_by("start", maintain_order=True)
        .agg(
            chunks=pl.len(), first_done=pl.col("done").first(), first_s=pl.col("elapsed_s").first(),
            last_done=pl.col("done").last(), total=pl.col("total").last(), last_s=pl.col("elapsed_s").last(),
            avg_tps=pl.col("avg_tps").last(), last_chunk=pl.col("seq").last(), chunk_second=pl.col("s").last(),
            low_second=pl.col("s").get(slack.arg_max(), null_on_oob=True),
            low_s=pl.col("elapsed_s").get(slack.arg_max(), null_on_oob=True),
            high_second=pl.col("s").get(slack.arg_min(), null_on_oob=True),
            high_s=pl.col("elapsed_s").get(slack.arg_min(), null_on_oob=True),
        )
    )  # fmt: skip


def _reduced_decodes(found: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    return (
        found.with_columns(s=_second())
        .group_by("start", maintain_order=True)
        .agg(
            decodes=pl.len(), decoded=pl.col("gen").last(), decode_s=pl.col("elapsed_s").last(),
            decode_tps=pl.col("avg_tps").last(), last_decode=pl.col("seq").last(),
            decode_second=pl.col("s").last(),
        )
    )  # fmt: skip


def _kind(frame: pl.DataFrame) -> str:
    return "prefill_chunk" if "done" in frame.columns else "decoding"


def absorb(opened: Open, reduced: Reduced) -> None:
    """Add what columns say to an open request."""
    chunks, decodes = reduced[:7], reduced[13:17]
    opened.progress = _merged(opened.progress, chunks, decodes)
    last, second = max((reduced[7] or 0, reduced[8]), (reduced[17] or 0, reduced[18]), key=lambda one: one[0])
    later, opened.last = last > opened.last, max(opened.last, last)
    start = opened.start_second
    if start is None or opened.started_at is None:
        return
    for at, elapsed in (reduced[9:11], reduced[11:13]):
        if at is not None and elapsed is not None:
            opened.bound(opened.started_at + _ahead(at, start), elapsed)
    if later and second is not None:
        opened.last_at = opened.started_at + _ahead(second, start)


def _ahead(second: float, start: float) -> float:
    """Seconds from one time of day to another, over midnight if need be."""
    return (second - start + _DAY / 2) % _DAY - _DAY / 2


def _merged(was: Progress, chunks: tuple[Any, ...], decodes: tuple[Any, ...]) -> Progress:
    """`chunks`: number, first done, its seconds, last done, total, seconds, t/s; `decodes`: number, gen, …"""
    if chunks[0] is None:
        chunks = (was.chunks, was.first_done, was.first_s, was.last_done, was.total, was.last_s, was.avg_tps)
    elif was.chunks:
        chunks = (was.chunks + chunks[0], was.first_done, was.first_s, *chunks[3:])
    if decodes[0] is None:
        decodes = (was.decodes, was.decoded, was.decode_s, was.decode_tps)
    elif was.decodes:
        decodes = (was.decodes + decodes[0], *decodes[1:])
    return Progress(*chunks, *decodes)
