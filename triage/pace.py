"""Pace: where the stamps or the printed seconds of one request jump (mechanisms 4.7).

Two neighbouring lines of one request and one kind (chunk to chunk, decoding to decoding, and on to
`prompt done` or `finish`) are compared: what the stamps moved by, what the printed seconds moved by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from parser.clock import Clock
from parser.event import Event
from triage.view import Gap, View

_Key = tuple[Any, ...]


def gaps_of(view: View) -> list[Gap]:
    """Pairs whose stamps or printed seconds moved by at least the thresholds' smaller one."""
    log = view.reading.events
    if log is None:
        return []
    least = min(view.limits.stall_s, view.limits.suspended_s)
    if log.counts.get("prefill_chunk", 0) + log.counts.get("decoding", 0) > 20_000:
        from triage.pace_columns import suspects

        rows = suspects(log, view.limits)
    else:
        rows = list(log.rows("prefill_chunk", "decoding"))
    starts: dict[_Key, list[int]] = {}
    for request in view.requests if rows else ():
        if request.prompt_line is not None:
            key = ("p", request.cached_tokens, request.prompt_tokens, request.prefilled_tokens)
            starts.setdefault(key, []).append(request.prompt_line)
    return pairs(sorted(rows + view.of("prompt_done"), key=lambda e: e.seq), least, starts)


def _key(event: Event) -> _Key | None:
    end = event.get("span_end")
    if event.kind == "decoding":
        return ("d", end - event.get("gen")) if end is not None and event.get("gen") is not None else None
    if end is None:
        return None
    return ("p", event.get("span_start"), end, event.get("span_tokens"))


def pairs(
    rows: Iterable[Event], least: float, starts: Mapping[_Key, Sequence[int]] | None = None
) -> list[Gap]:
    """Neighbouring rows of one request, where something moved by `least` seconds or more.

    `starts` are the lines at which a request with that span starts: two rows on both sides of one are
    two attempts.
    """
    clock, last, at = Clock(), dict[_Key, Event](), dict[int, float | None]()
    rates: dict[_Key, list[float]] = {}
    found: list[tuple[_Key, Gap]] = []
    for event in rows:
        key = _key(event)
        at[event.seq] = clock.seconds(event.stamp)
        if key is None:
            continue
        before = last.get(key)
        again = starts.get(key, ()) if starts else ()
        if (
            before is not None
            and _goes_on(before, event)
            and not any(before.line < n <= event.line for n in again)
        ):
            gap = _gap(before, event, at)
            if gap.tokens and gap.printed_s is not None:
                rates.setdefault(key, []).append(gap.printed_s / gap.tokens)
            if max(gap.wall_s or 0.0, gap.printed_s or 0.0) >= least:
                found.append((key, gap))
        elif key[0] == "p" and event.get("done") and event.get("elapsed_s"):
            rates.setdefault(key, []).append(event.get("elapsed_s") / event.get("done"))
        last[key] = event
    for key, gap in found:
        gap.usual_s = _usual(key, gap, rates)
    return [gap for _, gap in found]


def _goes_on(before: Event, event: Event) -> bool:
    """The printed seconds and the counter move forward: the same request, not another with its span."""
    earlier, later = before.get("elapsed_s"), event.get("elapsed_s")
    if earlier is None or later is None or later < earlier or before.kind == "prompt_done":
        return False
    if event.kind == "decoding":
        # the decode span starts at P + the tokens of the line before
        return bool(event.get("span_end") - event.get("span_start") == event.get("gen") - before.get("gen"))
    return event.kind == "prompt_done" or (event.get("done") or 0) > (before.get("done") or 0)


def _gap(before: Event, event: Event, at: dict[int, float | None]) -> Gap:
    first, second = at[before.seq], at[event.seq]
    name = "gen" if event.kind == "decoding" else "done"
    tokens = None
    if event.get(name) is not None and before.get(name) is not None:
        tokens = int(event.get(name)) - int(before.get(name))
    wall = second - first if first is not None and second is not None else None
    return Gap(before, event, wall, round(event.get("elapsed_s") - before.get("elapsed_s"), 3), tokens)


def _usual(key: _Key, gap: Gap, rates: dict[_Key, list[float]]) -> float | None:
    """Seconds per token of the neighbours: the other chunks of the request, else of other requests."""
    own = gap.printed_s / gap.tokens if gap.tokens and gap.printed_s is not None else None
    here = [rate for rate in rates.get(key, []) if rate != own and rate > 0]
    if not here:
        here = [rate for k, same in rates.items() if k[0] == key[0] and k != key for rate in same if rate > 0]
    return median(here) if here else None
