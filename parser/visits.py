"""What slot inference knows of a request: what its slot held, what it leaves, when it sat there."""

from __future__ import annotations

from dataclasses import dataclass

from parser.opens import Open

#: costs of an explanation, about minus its log-odds; `FORCED` is an assignment the rules do not allow
SEQUENCE_RESET = 3.0  # finish=stop by a client stop sequence leaves an empty slot (R3.36)
NEAR = 4.0  # a speculative frontier or an interrupted decode: a few tokens beyond P + gen
UNKNOWN_LEFT = 1.5  # the occupant's end is not in the log: any length may be left
UNSEEN = 1.5  # a slot whose earlier content lies before the log
FORCED = 12.0


@dataclass(frozen=True, slots=True)
class Visit:
    """One request as slot inference sees it (event seq for times, tokens for lengths).

    `needs` is the live length its slot held (None: nothing says), 0 for an empty slot. `leaves` is the live
    length after it (None: unknown, somewhere in `reach`). `end` is the seq of its last line if it ended,
    None while nothing says that it did. `slot` is what an RT1 line says.
    """

    request: int
    begin: int
    last: int
    end: int | None
    needs: int | None
    common: int | None
    leaves: int | None
    reach: tuple[int, int] | None
    failed: bool
    stopped: bool  # finish=stop: a client stop sequence may have emptied the slot
    interrupted: bool
    cold: bool
    hit: bool  # reuses what its slot held
    speaks: tuple[str, ...]  # api and flags that a conversation keeps
    slot: int | None
    excerpt: int
    after: int | None = None  # the visit whose text a trace shows as the beginning of this one's


def visit_of(opened: Open, index: int, *, silent: bool, partial: bool, after: int | None = None) -> Visit:
    """`silent`: builds before 2026-05-14 print no miss line, so that its absence says nothing.

    `partial`: an excerpt, in which any line may have been left out.
    """
    row = opened.row
    ended = opened.finish_seq is not None or opened.dead
    return Visit(
        request=index, begin=opened.first, last=opened.last, end=opened.last if ended else None,
        needs=_needs(opened, silent or partial), common=row.common, leaves=row.live_after,
        reach=None if partial else _reach(opened),
        failed=not ended or opened.dead or opened.reset, stopped=row.finish == "stop",
        interrupted=row.error == "decode interrupted", cold=not row.cached_tokens,
        hit=bool(row.cached_tokens) and row.source not in ("cold", "disk-text"), speaks=_speaks(opened),
        slot=opened.episode.slot if opened.episode else None, excerpt=row.excerpt, after=after,
    )  # fmt: skip


def _needs(opened: Open, silent: bool) -> int | None:
    """Live length before: a miss or rewind names it, a hit is all of it; else the slot was empty."""
    row = opened.row
    if row.live_before is not None:
        return row.live_before
    if row.evicted_live_tokens is not None:
        return row.evicted_live_tokens
    if row.cached_tokens is None or opened.unprinted or silent:
        return None
    return 0 if row.source in ("cold", "disk-text") else row.cached_tokens


def _speaks(opened: Open) -> tuple[str, ...]:
    kept = [flag for flag in opened.row.flags if flag in ("RESPPROTO", "TOOLS")]
    return (opened.row.api or "", *kept)


def _reach(opened: Open) -> tuple[int, int] | None:
    """Where a request that did not end well may have left its slot: from C to P and what it decoded."""
    if opened.span is None:
        return None
    cached, prompt = max(0, opened.span[1] - opened.span[2]), opened.span[1]
    low = prompt if opened.done_seq is not None else cached
    return low, prompt + (opened.progress.decoded or 0) + (64 if opened.done_seq is not None else 0)


def left_cost(visit: Visit, needs: int | None) -> float:
    """How hard it is to believe that `visit` left `needs` tokens in its slot."""
    if needs is None:
        return 0.0
    if visit.leaves is not None and not visit.failed:
        return _ended_well(visit, visit.leaves, needs)
    if visit.leaves == needs:
        return 0.0
    if visit.reach is None:
        return UNKNOWN_LEFT
    if needs == visit.reach[0] or visit.reach[0] <= needs <= visit.reach[1]:
        return 0.5 if needs == visit.reach[0] else 1.0
    return 2.0 if needs == 0 else FORCED


def _ended_well(visit: Visit, left: int, needs: int) -> float:
    if needs == left:
        return 0.5 if visit.interrupted else 0.0
    if needs == 0:
        return SEQUENCE_RESET if visit.stopped else FORCED
    if 0 < needs - left <= 16:
        return 0.0 if visit.interrupted else NEAR
    return FORCED
