"""Chunk and decoding lines, reduced to what a request keeps of them: line by line, or as columns."""

from __future__ import annotations

from dataclasses import replace

from parser.event import Event
from parser.opens import Open


def with_chunk(opened: Open, event: Event, at: float | None) -> None:
    """PF2 of a prefill: count it, keep first and last place and time."""
    done, total, elapsed = event.get("done"), event.get("total"), event.get("elapsed_s")
    was = opened.progress
    first = (done, elapsed) if was.first_done is None else (was.first_done, was.first_s)
    opened.progress = replace(
        was, chunks=was.chunks + 1, first_done=first[0], first_s=first[1],
        last_done=done, total=total, last_s=elapsed, avg_tps=event.get("avg_tps"),
    )  # fmt: skip
    opened.last, opened.last_at = event.seq, at if at is not None else opened.last_at
    if at is not None and elapsed is not None:
        opened.bound(at, elapsed)


def with_decode(opened: Open, event: Event, at: float | None) -> None:
    """GN1: keep the last place and time."""
    opened.progress = replace(
        opened.progress, decodes=opened.progress.decodes + 1, decoded=event.get("gen"),
        decode_s=event.get("elapsed_s"), decode_tps=event.get("avg_tps"),
    )  # fmt: skip
    opened.last, opened.last_at = event.seq, at if at is not None else opened.last_at
