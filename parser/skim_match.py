"""Which `prompt done` and which `finish` belong to which `prompt start`: by the span, in file order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import polars as pl

from parser.eventlog import EventLog
from parser.request import Progress, Request
from parser.skim_time import Days

#: start, end, tokens as printed
Span: TypeAlias = "tuple[int, int, int | None]"
_NONE: Final = Progress()
_SPAN: Final = ("span_start", "span_end", "span_tokens")


class Done(NamedTuple):
    """A `prompt done` line; seconds of prefill."""

    seq: int
    line: int
    elapsed_s: float | None


class Finish(NamedTuple):
    """A `finish` line: seconds since the log's first stamp, seconds that it states, tokens of the answer."""

    seq: int
    line: int
    at: float | None
    elapsed_s: float | None
    gen: int | None
    finish: str | None
    error: str | None
    flags: str


@dataclass(slots=True)
class Begun:
    """A `prompt start` line with its own ends, as far as they were seen."""

    seq: int
    line: int
    at: float | None
    api: str | None
    flags: str
    span: Span
    done: Done | None = None
    finish: Finish | None = None
    progress: Progress = _NONE


def matched(log: EventLog, days: Days, waiting: Sequence[Begun]) -> list[Begun]:
    """The starts of a stretch behind those that wait, each with its ends."""
    starts = _columns(log, "prompt_start", days, "line", "at", "api", "flags")
    begun = [*waiting, *map(Begun, *starts)]
    *columns, spans = _columns(log, "prompt_done", days, "line", "elapsed_s")
    dones = zip(spans, map(Done, *columns), strict=True)
    for start, done in _pairs([b for b in begun if b.done is None], dones):
        start.done = done
    *columns, spans = _columns(log, "finish", days, *Finish._fields[1:])
    for start, finish in _pairs(
        [b for b in begun if b.finish is None], zip(spans, map(Finish, *columns), strict=True)
    ):
        start.finish = finish
    _note_progress(log, [b for b in begun if b.done is None])
    return begun


def _columns(log: EventLog, kind: str, days: Days, *columns: str) -> list[list[Any]]:
    """`seq`, these columns, and last the span, of the lines of a kind that have one."""
    frame = log.frame(kind)
    whole = frame.filter(pl.col("span_start").is_not_null() & pl.col("span_end").is_not_null())
    if "at" in columns:
        whole = days.with_seconds(whole)
    if "flags" in columns:
        whole = whole.with_columns(pl.col("flags").list.join(" ").fill_null(""))
    said = [whole[name].to_list() for name in ("seq", *columns)]
    return [*said, list(zip(*(whole[name].to_list() for name in _SPAN), strict=True))]


def _pairs(starts: Iterable[Begun], ends: Iterable[tuple[Span, Any]]) -> Iterator[tuple[Begun, Any]]:
    """Each start with the end that belongs to it.

    Where starts and ends of a span are as many, they pair in order; else an end belongs to a start if it is the
    first behind it and before the next start of that span.
    """
    ends_of: dict[Span, list[Any]] = {}
    for span, end in ends:
        ends_of.setdefault(span, []).append(end)
    starts_of: dict[Span, list[Begun]] = {}
    for start in starts:
        starts_of.setdefault(start.span, []).append(start)
    for span, mine in starts_of.items():
        found = ends_of.get(span, ())
        if len(mine) == len(found) == 1 and mine[0].seq < found[0].seq:
            yield mine[0], found[0]
        elif len(mine) == len(found) and all(a.seq < b.seq for a, b in zip(mine, found, strict=True)):
            yield from zip(mine, found, strict=True)
        elif found:
            yield from _nearest(mine, found)


def _nearest(starts: Sequence[Begun], ends: Sequence[Any]) -> Iterator[tuple[Begun, Any]]:
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        end = next((e for e in ends if e.seq > start.seq), None)
        if end is not None and (following is None or end.seq < following.seq):
            yield start, end


def _note_progress(log: EventLog, unfinished: Sequence[Begun]) -> None:
    """How far the chunk lines show the prefills that no `prompt done` ends."""
    if not unfinished or not log.counts.get("prefill_chunk"):
        return
    spans = pl.DataFrame(
        [b.span for b in unfinished], schema=dict.fromkeys(_SPAN, pl.Int64), orient="row"
    ).unique()
    chunks = log.frame("prefill_chunk").join(spans, on=list(_SPAN), how="semi", nulls_equal=True)
    rows = chunks.sort("seq").select("seq", *_SPAN, "done", "total", "elapsed_s", "avg_tps").rows()
    by_span: dict[Span, list[Begun]] = {}
    for begun in unfinished:
        by_span.setdefault(begun.span, []).append(begun)
    for seq, start, end, tokens, *said in rows:
        own = next((b for b in reversed(by_span[start, end, tokens]) if b.seq < seq), None)
        if own is not None:
            own.progress = _advanced(own.progress, *said)


def _advanced(
    was: Progress, done: int | None, total: int | None, elapsed: float | None, average: float | None
) -> Progress:
    first = (done, elapsed) if was.first_done is None else (was.first_done, was.first_s)
    return Progress(was.chunks + 1, *first, done, total, elapsed, average)


def request_of(begun: Begun, number: int, run: int) -> Request:
    """The request as its own three lines tell it."""
    done, finish = begun.done, begun.finish
    start, prompt, said = begun.span
    tokens = prompt - start if said is None else said
    row = Request(
        number, begun.line, begun.at, 1.0, begun.api, _flags(begun.flags, finish.flags if finish else ""),
        prompt, None, prompt - tokens, tokens, run=run, lines=(begun.line,), events=(begun.seq,),
        progress=begun.progress, prompt_line=begun.line,
    )  # fmt: skip
    if done is not None:
        row.lines, row.events = (begun.line, done.line), (begun.seq, done.seq)
        row.prefill_s = done.elapsed_s
    if finish is not None:
        row.lines, row.events = (*row.lines, finish.line), (*row.events, finish.seq)
        row.end_s, row.total_s, row.finish, row.error = (
            finish.at,
            finish.elapsed_s,
            finish.finish,
            finish.error,
        )
        row.generated_tokens = finish.gen
        row.live_after = prompt + finish.gen if finish.gen is not None else None
        row.client_gone = finish.error in ("client stream write failed", "client disconnected")
    return row


@lru_cache(maxsize=4096)
def _flags(start: str, finish: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*start.split(), *finish.split())))
