"""Chunk and decoding lines of a block as columns: reduced to one `Progress` a request, never objects.

Each line is given to the last `prompt start` of its span (a decode line to the last one of its P). Where two
requests with one P are open at once, and where no start is known, lines go through the joiner one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from parser.event import Event
from parser.eventlog import EventLog
from parser.opens import Open
from parser.request import Progress

if TYPE_CHECKING:
    import polars as pl

#: bulk lines of a block below which columns do not pay
FEW = 2_000
#: lines without a known start, in one block, that go one by one
STRAY = 4_000
_DAY = 86_400.0
_NEVER: Final = (1 << 62) - 1


#: (seq, C, P, n) of a line with a span.
Span4 = tuple[int, int, int, int]
#: What a block's bulk lines say of one request, by column.
Reduced = tuple[Any, ...]
_CHUNK_COLUMNS: Final = (
    "chunks", "first_done", "first_s", "last_done", "total", "last_s", "avg_tps", "last_chunk", "chunk_second",
    "low_second", "low_s", "high_second", "high_s",
)  # fmt: skip
_DECODE_COLUMNS: Final = ("decodes", "decoded", "decode_s", "decode_tps", "last_decode", "decode_second")


def is_bulky(block: EventLog) -> bool:
    """Are there enough chunk and decoding lines for columns?"""
    return block.counts.get("prefill_chunk", 0) + block.counts.get("decoding", 0) > FEW


class Bulk:
    """The bulk lines of one block, given to requests by the seq of their `prompt start`."""

    def __init__(self, block: EventLog, carried: Iterable[Open]) -> None:
        self.block = block
        spans = [(o.place, *(o.span or (-1, o.row.prompt_tokens or -1, -1))) for o in carried]
        starts = _spans(block.frame("prompt_start"))
        self._starts = sorted(spans) + starts
        self._single: list[pl.DataFrame] = []
        self._chunk_frame, self._decode_frame = block.frame("prefill_chunk"), block.frame("decoding")
        ends = _spans(block.frame("finish"))
        self._ends = finished_at(self._starts, ends)
        self._contested = contested(self._starts, ends) | self._running()
        self._contested |= _retried(block)
        chunks, decodes = self._chunks(self._chunk_frame), self._decodes(self._decode_frame)
        both = chunks.join(decodes, on="start", how="full", coalesce=True)
        columns = both.select("start", *_CHUNK_COLUMNS, *_DECODE_COLUMNS)
        self.by_start: dict[int, Reduced] = {row[0]: row[1:] for row in columns.iter_rows()}

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

    def _running(self) -> set[int]:
        """P of lines that stand before the first start of that P: two of them may run at once."""
        import polars as pl

        seen = pl.concat(
            [
                self._chunk_frame.select("seq", p=pl.col("span_end")),
                self._decode_frame.select("seq", p=pl.col("span_end") - pl.col("gen")),
            ]
        )
        firsts = {prompt: seq for seq, _, prompt, _ in reversed(self._starts)}
        early = seen.group_by("p").agg(pl.col("seq").min()).iter_rows()
        return {prompt for prompt, seq in early if prompt in firsts and seq < firsts[prompt]}

    def _chunks(self, frame: pl.DataFrame) -> pl.DataFrame:
        import polars as pl

        plain = frame.filter(
            (pl.col("phase") == "prefill") & pl.col("span_start").is_not_null() & pl.col("done").is_not_null()
        )
        self._rest(frame, plain)
        keyed = plain.with_columns(p=pl.col("span_end"), c=pl.col("span_start"))
        return _reduced_chunks(self._assigned(keyed, by=["p", "c"]))

    def _decodes(self, frame: pl.DataFrame) -> pl.DataFrame:
        import polars as pl

        plain = frame.filter(pl.col("span_end").is_not_null() & pl.col("gen").is_not_null())
        self._rest(frame, plain)
        keyed = plain.with_columns(p=pl.col("span_end") - pl.col("gen"))
        return _reduced_decodes(self._assigned(keyed, by=["p"]))

    def _rest(self, frame: pl.DataFrame, plain: pl.DataFrame) -> None:
        if len(plain) < len(frame):
            self._single.append(frame.join(plain.select("seq"), on="seq", how="anti"))

    def _assigned(self, keyed: pl.DataFrame, by: list[str]) -> pl.DataFrame:
        """Lines with the seq of their request's start in `start`; the others are put aside."""
        import polars as pl

        names = ("start", "c", "p", "n", "end")
        rows = [
            (*start, self._ends.get(start[0])) for start in self._starts if start[2] not in self._contested
        ]
        starts = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64), orient="row")
        starts = starts.with_columns(seq=pl.col("start")).select("seq", "start", "end", *by)
        found = keyed.join_asof(
            starts.sort("seq"), on="seq", by=by, strategy="backward", check_sortedness=False
        )
        # a line behind the finish line of its request is not its own
        found = found.with_columns(
            start=pl.when(pl.col("seq") < pl.col("end").fill_null(_NEVER)).then("start")
        )
        lost = found.filter(pl.col("start").is_null())
        if len(lost):
            columns = [name for name in keyed.columns if name not in ("p", "c")]
            self._single.append(self._thinned(lost, by).select(columns))
        return found.filter(pl.col("start").is_not_null())

    def _thinned(self, lost: pl.DataFrame, by: list[str]) -> pl.DataFrame:
        """Lines without a start go one by one; of very many (a log of chunk lines alone) first and last."""
        import polars as pl

        if len(lost) <= STRAY:
            return lost
        open_p = pl.col("p").is_in(list(self._contested))
        ends = lost.filter(~open_p).group_by(by, maintain_order=True)
        few = pl.concat([ends.first(), ends.last()]).select(lost.columns).unique("seq")
        return pl.concat([lost.filter(open_p), few]).sort("seq")


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


def _spans(frame: pl.DataFrame) -> list[Span4]:
    """(seq, C, P, n) of lines with a whole span, in file order."""
    rows = frame.select("seq", "span_start", "span_end", "span_tokens").drop_nulls()
    return [(seq, start, end, tokens) for seq, start, end, tokens in rows.iter_rows()]


def contested(starts: Iterable[Span4], ends: Iterable[Span4]) -> set[int]:
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


def finished_at(starts: Iterable[Span4], ends: Iterable[Span4]) -> dict[int, int]:
    """seq of the finish line by seq of the start: the first of that span behind it, each for one start."""
    found: dict[int, int] = {}
    running: dict[tuple[int, int, int], list[int]] = {}
    both = merge(((*one, True) for one in starts), ((*one, False) for one in ends), key=lambda one: one[0])
    for seq, cached, prompt, new, begins in both:
        mine = running.setdefault((cached, prompt, new), [])
        if begins:
            mine.append(seq)
        elif mine:
            found[mine.pop(0)] = seq
    return found


def _retried(block: EventLog) -> set[int]:
    """P of requests whose decoding began anew (TC6): what they had decoded by then must be seen."""
    ends = (e.get("span_end") for e in block.rows("tool_repair") if e.rule == "continued")
    return {end for end in ends if end is not None}


def _reached(row: tuple[int, int, int, int], count: str) -> tuple[int, int, int, int]:
    seq, start, end, value = row
    if count == "done":
        return seq, start or 0, end or 0, (start or 0) + (value or 0)
    return seq, -1, (end or 0) - (value or 0), end or 0


def _events(frame: pl.DataFrame) -> Iterator[Event]:
    """Rows of a bulk frame as events."""
    kind = "prefill_chunk" if "done" in frame.columns else "decoding"
    return EventLog([], {kind: frame}).rows(kind)


def absorb(opened: Open, reduced: Reduced) -> None:
    """Add what columns say to an open request."""
    chunks, decodes = reduced[:7], reduced[13:17]
    opened.progress = _merged(opened.progress, chunks, decodes)
    opened.last = max(opened.last, reduced[7] or 0, reduced[17] or 0)
    start = opened.start_second
    if start is None or opened.started_at is None:
        return
    for second, elapsed in (reduced[9:11], reduced[11:13]):
        if second is not None and elapsed is not None:
            opened.seen.append((opened.started_at + _ahead(second, start), elapsed))
    last = reduced[18] if reduced[18] is not None else reduced[8]
    if last is not None:
        opened.last_at = max(opened.last_at or opened.started_at, opened.started_at + _ahead(last, start))


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
