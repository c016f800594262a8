"""Inputs of any length: what fits is judged whole, a long log stretch by stretch in bounded memory, then merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from parser.collector import collector_paused
from parser.event import Event
from parser.eventlog import EventLog
from parser.inputs import is_long_log
from parser.reading import Asked, Reading, read_segments
from parser.request import Request
from triage.build import Stretch, view_of
from triage.details import details_of
from triage.history import History
from triage.merge import merged, merged_totals, slim
from triage.ranking import Judged, rank
from triage.report import Report, RuledOut
from triage.thresholds import Thresholds
from triage.totals import totals
from triage.triage import finding_of, first_stamps, input_of, judge, quoted, triage
from triage.unknowns import not_knowable, ruled_out
from triage.view import RARE, View

#: a log with no more requests than this is judged whole
WHOLE: Final = 4_000

#: rows of earlier stretches that are remembered (the last of each slot and of each conversation)
_REMEMBERED: Final = 1_000
_QUOTED: Final = 400
_SKIMMED: Final = (
    "slots where lengths do not settle them, and how far unfinished answers came: a log this long is skimmed by its "
    "numbers; a part of it (--since, --until) is read line by line"
)


def triage_inputs(
    inputs: Sequence[str],
    *,
    thresholds: Thresholds | None = None,
    counterfactuals: bool = False,
    **options: Any,
) -> Report:
    """Triage of files, `-` or a directory; `options` are those of `parser.reading.read_segments`."""
    limits = thresholds or Thresholds()
    asked = Asked(**{"inputs": tuple(inputs), **{k: v for k, v in options.items() if v}})
    if is_long_log(asked):
        return _skimmed(asked, limits)
    pieces = _pieces(read_segments(inputs, **options))
    first, final = next(pieces)
    if final:
        return triage(first, thresholds=limits, counterfactuals=counterfactuals)
    long = _Long(limits)
    long.add(first, final=False)
    for reading, last in pieces:
        long.add(reading, final=last)
    return long.report()


def _skimmed(asked: Asked, limits: Thresholds) -> Report:
    """A log of many megabytes: its requests by their numbers alone, which takes a third of the time."""
    from parser.skim import skim_segments

    long = _Long(limits)
    with collector_paused():  # what is judged lives on
        for piece in skim_segments(asked, WHOLE):
            long.add(piece.reading, final=True, rows=piece.rare)
    return long.report(skimmed=True)


def _pieces(segments: Iterator[Reading]) -> Iterator[tuple[Reading, bool]]:
    """Segments joined to readings of about `WHOLE` requests; the last one is marked."""
    held: list[Reading] = []
    for segment in segments:
        if held and sum(len(r.requests) for r in held) >= WHOLE:
            yield _joined(held), False
            held = []
        held.append(segment)
    yield _joined(held or [Reading()]), True


def _joined(readings: Sequence[Reading]) -> Reading:
    last = readings[-1]
    if len(readings) == 1:
        return last
    counts = Counter[str]()
    for reading in readings:
        counts.update(reading.counts)
    return replace(
        last,
        events=EventLog.joined([r.events for r in readings if r.events is not None]),
        requests=[request for r in readings for request in r.requests],
        counts=dict(counts),
        hearsay=[heard for r in readings for heard in r.hearsay],
        trace={k: v for r in readings for k, v in r.trace.items()},
        clients={k: v for r in readings for k, v in r.clients.items()},
    )


@dataclass
class _Long:
    """The stretches of a long log, judged and let go one by one."""

    limits: Thresholds
    judged: list[Judged] = field(default_factory=list)
    totals: list[dict[str, Any]] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    history: History = field(default_factory=History)
    stretch: Stretch = field(default_factory=lambda: Stretch(partial=True))
    texts: dict[int, str] = field(default_factory=dict)
    since: dict[int, str] = field(default_factory=dict)
    refuted: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    requests: int = 0
    last: Reading | None = None
    worst: tuple[float, Reading] | None = None

    def add(self, reading: Reading, *, final: bool, rows: list[Event] | None = None) -> None:
        """Judge one stretch; events of requests that are still open wait for the next (unless `final`)."""
        if rows is None:
            rows = list(reading.events.rows(*RARE)) if reading.events is not None else []
        waiting = [] if final else _waiting(reading, rows)
        self.stretch.rows = rows
        self.stretch.without = {event.seq for event in waiting}
        view = view_of(reading, self.limits, self.stretch)
        found = judge(view)
        self._keep(view, found)
        self.stretch = Stretch(True, _remembered([*self.stretch.earlier, *reading.requests]), waiting)
        self.requests += len(reading.requests)
        self.last = reading

    def _keep(self, view: View, found: Sequence[Judged]) -> None:
        self.judged += [slim(j) for j in found]
        stamps = first_stamps(view)
        self.since.update({line: stamps[line] for j in found for line in j.sign.lines[:4] if line in stamps})
        own = totals(view)
        self.totals.append(own)
        self.events.update(view.reading.counts)
        self.history.add(view.reading, view.of("live_miss"))
        if view.rate is not None:
            self.rates.append(view.rate)
        ranked = rank(found, view.rate)
        self.refuted.update({r.mechanism: r.because for r in ruled_out(view, ranked)})
        self.unknown.update(dict.fromkeys(not_knowable(view, ranked)))
        if len(self.texts) < _QUOTED:
            self.texts.update(quoted(view, [line for j in found for line in j.sign.lines[:6]]))
        cost = float(own.get("seconds_lost") or own["lost_to_cache_tokens"])
        if self.worst is None or cost > self.worst[0]:
            self.worst = (cost, replace(view.reading, events=None))

    def report(self, *, skimmed: bool = False) -> Report:
        """All stretches as one report; a skim says what it leaves open."""
        assert self.last is not None and self.worst is not None
        rate = sorted(self.rates)[len(self.rates) // 2] if self.rates else None
        ranked = rank(merged(self.judged, rate), rate)
        found = {j.id for j in ranked}
        refuted = tuple(RuledOut(name, why) for name, why in self.refuted.items() if name not in found)
        return Report(
            {**input_of(self.last), "requests": self.requests, "stretches": len(self.totals)},
            self.last.server, _totals(self.totals, self.last), dict(self.events),
            tuple(finding_of(j, number, ranked, self.since) for number, j in enumerate(ranked, start=1)),
            refuted, ((_SKIMMED,) if skimmed else ()) + tuple(self.unknown)[:12], dict(sorted(self.texts.items())),
            details_of(self.worst[1], self.history),
        )  # fmt: skip


def _totals(parts: Sequence[Mapping[str, Any]], last: Reading) -> dict[str, Any]:
    """Those of all stretches; the time from first to last stamp is the log's, pauses between stretches with it."""
    whole = merged_totals(parts)
    if len(parts) > 1 and last.stamps.seconds is not None:
        whole["span_seconds"] = round(last.stamps.seconds, 3)
    return whole


def _waiting(reading: Reading, rows: Sequence[Event]) -> list[Event]:
    """Rare events near the end that no request of this stretch has taken."""
    if not reading.requests:
        return []
    owned = {seq for request in reading.requests for seq in request.events}
    newest = max(owned, default=0)
    return [e for e in rows if e.seq not in owned and (e.seq > newest or newest - e.seq < 20_000)]


def _remembered(requests: Sequence[Request]) -> list[Request]:
    """The last request of each slot and of each conversation, the newest ones."""
    last: dict[tuple[int, object], Request] = {}
    for request in requests:
        last[(request.run, request.slot)] = request
        last[(request.run, request.conversation)] = request
    rows = {r.request: r for r in last.values()}
    return [rows[number] for number in sorted(rows)[-_REMEMBERED:]]
