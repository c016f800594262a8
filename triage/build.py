"""Build a `View` from a `Reading`: episodes with their events, predecessors, speeds, stalls."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import median
from typing import Final

from parser.clock import Clock
from parser.event import Event
from parser.reading import Reading
from parser.request import Request
from triage.episodes import Episode, total_s
from triage.hearsay import notes
from triage.links import previous_of
from triage.pace import gaps_of
from triage.stitch import stitched
from triage.thresholds import Thresholds
from triage.view import COMMON, RARE, View

#: up to so many events everything is kept as objects
SHORT: Final = 20_000
#: a prefill shorter than this says little about the machine's speed (a small suffix is slow by nature)
_RATE_TOKENS: Final = 512
#: so many decode steps are looked at
_STEPS: Final = 2000
_SYNC = re.compile(r"\bsync start=(\d+) prompt=(\d+) suffix=(\d+)")
_SECONDS = re.compile(r"^(\d+(?:\.\d+)?)s?$")


def view_of(reading: Reading, limits: Thresholds, stretch: Stretch | None = None) -> View:
    """The input as the mechanisms see it. Costs time in proportion to the rare events, not to the lines.

    `stretch` says what of a long log came before this piece of it, and which of its events wait for the next.
    """
    stretch = stretch or Stretch()
    view = View(reading, limits, earlier=stretch.earlier)
    short = sum(reading.counts.values()) <= SHORT and not stretch.partial
    rows = _rows(reading, short, stretch)
    for event in rows:
        view.events.setdefault(event.kind, []).append(event)
    _tell_time(view, rows)
    _outsiders(view, short)
    notes(view)
    _episodes(view, rows, short)
    _fork_starts(view)
    _measure(view)
    _decode_steps(view)
    view.gaps = gaps_of(view)
    return view


@dataclass(slots=True)
class Stretch:
    """A piece of a long log: rows and events of the pieces before, events that belong to the next piece."""

    partial: bool = False
    earlier: list[Request] = field(default_factory=list)
    carried: list[Event] = field(default_factory=list)
    without: set[int] = field(default_factory=set)
    rows: list[Event] = field(
        default_factory=list
    )  # the rare events of this piece, where they were taken already


def _rows(reading: Reading, short: bool, stretch: Stretch) -> list[Event]:
    log = reading.events
    if log is None:
        return list(stretch.carried)
    rows = list(stretch.rows or log.rows(*(RARE + COMMON if short else RARE)))
    if not short and log.counts.get("finish"):
        from triage.pace_columns import odd_finishes

        rows += odd_finishes(log)
    rows = [*stretch.carried, *(e for e in rows if e.seq not in stretch.without)]
    return sorted(rows, key=lambda e: e.seq)


def _tell_time(view: View, rows: list[Event]) -> None:
    clock, last = Clock(view.reading.stamps.year), None
    for event in sorted(rows, key=lambda e: e.seq):
        if last is not None and (event.source, event.excerpt) != last:
            clock.forget_order()
        last = (event.source, event.excerpt)
        seconds = clock.seconds(event.stamp)
        if seconds is not None:
            view.when[event.seq] = seconds


def _outsiders(view: View, short: bool) -> None:
    """Lines of the engine and of other programs that say something of a failure or of the model.

    What a report's reader took for a remark behind such a line (`(mapped 83104 MiB …)`) is put back.
    """
    log = view.reading.events
    if log is None:
        return
    if not short and view.reading.counts.get("foreign", 0) > SHORT:
        return  # read by `engine_lines` of the parser's column, if at all
    remarks = {h.line: h.text for h in view.reading.hearsay if h.kind == "comment"}
    view.engine = [
        replace(e, text=f"{e.text} {remarks[e.line]}") if e.line in remarks and e.text else e
        for e in log.rows("foreign", "unknown", "startup")
        if e.text
    ]


def _decode_steps(view: View) -> None:
    """Decode steps with their stream counts, as many as show the picture."""
    log = view.reading.events
    if log is not None and view.reading.counts.get("decode_batch"):
        view.steps = list(islice(log.rows("decode_batch"), _STEPS))


def _episodes(view: View, rows: list[Event], short: bool) -> None:
    by_seq = {event.seq: event for event in rows}
    finishes = {e.seq: e for e in rows if e.kind == "finish"}
    by_number = view.by_number
    loose = [
        e
        for e in rows
        if e.kind in ("tool_repair", "stream_error", "tool_calls", "checkpoint", "vision_cache")
    ]
    kept: list[Episode] = []
    for index, request in enumerate(view.requests):
        own = [by_seq[seq] for seq in dict.fromkeys(request.events) if seq in by_seq]
        for event in own:
            if event.seq in finishes and event.get("flags"):
                view.finish_flags[request.request] = tuple(event.get("flags"))
        for event in own:
            view.talk[event.seq] = request.conversation
        if not (short or _eventful(own) or request.error or request.client_gone):
            continue
        episode = Episode(request, own)
        kept.append(episode)
        for event in own:
            view.owner[event.seq] = episode
        _look_back(view, episode, index, loose, by_number)
    view.episodes = stitched(kept, view)


def _eventful(own: list[Event]) -> bool:
    """More than checkpoints written on the way."""
    return any(e.kind != "kv_stored" or e.get("reason") == "evict" for e in own)


def _seq(event: Event) -> int:
    return event.seq


def _look_back(
    view: View, episode: Episode, index: int, loose: list[Event], by_number: dict[int, Request]
) -> None:
    """Predecessor in the slot, and the lines between it and this request."""
    earlier = view.requests[max(0, index - 16) : index]
    first = min((e.seq for e in episode.events), default=None)
    if first is None:
        return
    near = bisect_left(loose, first, key=_seq)
    episode.before = [e for e in loose[max(0, near - 24) : near] if e.seq >= first - 400]
    episode.previous = previous_of(episode, earlier, by_number, view.finish_flags)
    before = episode.previous
    if before is not None and before.request is not None:
        mate = by_number[before.request]
        since = max((s for s in mate.events), default=first) if mate.events else first
        start = min(mate.events, default=since)
        episode.before = [e for e in episode.before if e.seq >= start or e.get("span_end") == before.prompt]
    if episode.previous is None:
        episode.previous = previous_of(episode, earlier, by_number, view.finish_flags)


def _fork_starts(view: View) -> None:
    """S where only a fork's own line tells it (`… sync start=0 prompt=6137 suffix=6137`)."""
    for event in view.engine:
        found = _SYNC.search(event.text)
        if found is None:
            continue
        start, prompt = int(found[1]), int(found[2])
        for episode in reversed(view.episodes):
            if episode.prompt == prompt and episode.start is None:
                episode.start_override = start
                episode.take(())
                break


def _measure(view: View) -> None:
    """Prefill seconds that the log implies, running averages, and the log's own speed with its range."""
    slices = _last_slices(view)
    for episode in view.episodes:
        _measure_one(episode, slices)
    rates = _rates(view)
    if rates:
        ordered = sorted(rates)
        view.rate = median(ordered)
        view.rates = (ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10])


def _last_slices(view: View) -> dict[tuple[int | None, int | None], float]:
    """(P, gen) -> seconds of decoding, from the slices of a short input (a request whose start is not shown)."""
    log = view.reading.events
    if log is None or view.reading.counts.get("decoding", 0) > SHORT:
        return {}
    return {
        (e.get("span_end") - e.get("gen"), e.get("gen")): e.get("elapsed_s")
        for e in log.rows("decoding")
        if None not in (e.get("span_end"), e.get("gen"), e.get("elapsed_s"))
    }


def _measure_one(episode: Episode, slices: dict[tuple[int | None, int | None], float]) -> None:
    progress = episode.request.progress
    episode.running_tps, episode.last_chunk_s = progress.avg_tps, progress.last_s
    if episode.request.prefill_s is not None:
        return
    if (
        progress.last_s is not None
        and progress.total is not None
        and (progress.last_done or 0) >= progress.total
    ):
        episode.measured_s = progress.last_s
        return
    finish = next(iter(episode.of("finish")), None)
    decode = progress.decode_s if progress.decoded == episode.request.generated_tokens else None
    whole = episode.request.total_s
    if finish is not None:
        whole = whole if whole is not None else _extra_seconds(finish, "total")
        decode = _extra_seconds(finish, "decode_sec") or decode
    if decode is None and finish is not None:
        decode = slices.get((episode.request.prompt_tokens, episode.request.generated_tokens))
    if whole is not None and decode is not None and whole >= decode:
        episode.measured_s = round(whole - decode, 3)


def _extra_seconds(event: Event, name: str) -> float | None:
    """A fork's own field in seconds (`decode_sec=28.991`, `total=177.350s`)."""
    found = _SECONDS.match(event.extra.get(name, ""))
    return float(found[1]) if found else None


def _rates(view: View) -> list[float]:
    measured = {e.request.request: e.measured_s for e in view.episodes if e.measured_s}
    found = []
    for request in view.requests:
        seconds = request.prefill_s or measured.get(request.request)
        if seconds and (request.prefilled_tokens or 0) >= _RATE_TOKENS:
            found.append((request.prefilled_tokens or 0) / seconds)
        elif not seconds and request.progress.avg_tps and (request.progress.last_done or 0) >= _RATE_TOKENS:
            found.append(request.progress.avg_tps)
    return found


def prefill_seconds(view: View, requests: Iterable[Request] | None = None) -> float | None:
    """Seconds of prefill that the log states, summed; None where it states none."""
    measured = {e.request.request: e.measured_s for e in view.episodes}
    chosen = view.requests if requests is None else requests
    return total_s(r.prefill_s if r.prefill_s is not None else measured.get(r.request) for r in chosen)
