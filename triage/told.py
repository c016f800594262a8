"""Told: a person's digests as a view of their own, so that the same mechanisms read them (mechanisms 2.2.6).

`stored 10240 continued`, `ctx=20480..171206:150726 prefill 801 s finish=error`, `live=… prompt=… common=…`
become events and requests that no log printed; every sign on them is hearsay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

from parser.clock import Clock
from parser.event import Event
from parser.hearsay import Hearsay
from parser.reading import Reading, ServerRun
from parser.request import Request

_KINDS: Final = {"stored": "kv_stored", "evicted": "kv_evicted", "hit": "kv_hit", "skipped": "kv_skipped"}
_RULES: Final = {"stored": "stored", "evicted": "evicted", "hit": "hit", "skipped": "other"}


class Told:
    """The events of digests, as an event log has them (all are rows; there are few)."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = list(events)
        self.counts = dict(Counter(e.kind for e in events))

    def rows(self, *kinds: str) -> Iterator[Event]:
        """Events of these kinds in the order of the report."""
        return (e for e in self._events if not kinds or e.kind in kinds)


def told(reading: Reading) -> Reading | None:
    """A reading of what the digests say; None where they say nothing that could be an event."""
    said = [h for h in reading.hearsay if h.kind in _KINDS or h.kind == "request" or _whole_miss(h)]
    said = [h for h, behind in zip_longest(said, said[1:]) if not _goes_on(h, behind)]
    if not said:
        return None
    events: list[Event] = []
    requests: list[Request] = []
    clock = Clock()
    for heard in said:
        _add(heard, events, requests, clock)
    last = len(events)
    run = ServerRun(0, 0, 0, 1, max((e.line for e in events), default=1), 0, last)
    found = Reading(reading.sources, "report", None, requests, [run], reading.server, [], {}, reading.stamps)
    found.events = Told(events)  # type: ignore[assignment]
    found.counts = found.events.counts  # type: ignore[union-attr]
    return found


def _whole_miss(heard: Hearsay) -> bool:
    """Three lengths that can be those of one miss: nothing common is longer than what it is common to."""
    lengths = [heard.fields.get(k) for k in ("common", "live", "prompt")]
    known = [length for length in lengths if length is not None]
    return heard.kind == "miss" and len(known) == len(lengths) and known[0] <= min(known[1:])


def _goes_on(heard: Hearsay, behind: Hearsay | None) -> bool:
    """A line of a request that the next line tells on: the start, or a chunk, of the same span."""
    span = [heard.fields.get(f"span_{k}") for k in ("start", "end", "tokens")]
    if behind is None or heard.kind != "request" or behind.kind != "request" or None in span:
        return False
    ended = any(heard.fields.get(k) is not None for k in ("prefill_s", "finish", "error"))
    return not ended and span == [behind.fields.get(f"span_{k}") for k in ("start", "end", "tokens")]


def _event(heard: Hearsay, events: list[Event], kind: str, rule: str, fields: dict[str, Any]) -> Event:
    event = Event(
        len(events),
        heard.line,
        0,
        0,
        0,
        heard.fields.get("stamp"),
        kind,
        rule,
        fields,
        {},
        heard.text,
        1,
        "prose",
    )
    events.append(event)
    return event


def _add(heard: Hearsay, events: list[Event], requests: list[Request], clock: Clock) -> None:
    fields = dict(heard.fields)
    if heard.kind == "request":
        _request(heard, fields, events, requests, clock)
    elif heard.kind == "miss":
        event = _event(heard, events, "live_miss", "miss", fields)
        number = len(requests) + 1
        requests.append(
            Request(
                number, heard.line, canonical_prompt_tokens=fields["prompt"], live_before=fields["live"],
                common=fields["common"], events=(event.seq,), lines=(heard.line,),
            )
        )  # fmt: skip
    else:
        event = _event(heard, events, _KINDS[heard.kind], _RULES[heard.kind], fields)
        if requests and heard.kind in ("hit", "stored"):
            requests[-1].events += (event.seq,)


def _request(
    heard: Hearsay, fields: dict[str, Any], events: list[Event], requests: list[Request], clock: Clock
) -> None:
    start, end, n = fields.get("span_start"), fields.get("span_end"), fields.get("span_tokens")
    if end is None:
        return
    if n is not None:
        start = end - n
    began = clock.seconds(fields.get("stamp"))
    ended = clock.seconds(fields.get("end_stamp"))
    opened = _event(
        heard,
        events,
        "prompt_start",
        "start",
        {k: fields.get(k) for k in ("span_start", "span_end", "span_tokens")},
    )
    own = [opened.seq]
    if fields.get("prefill_s") is not None:
        own.append(
            _event(
                heard, events, "prompt_done", "done", {"span_end": end, "elapsed_s": fields["prefill_s"]}
            ).seq
        )
    if fields.get("finish") or fields.get("error"):
        own.append(_event(heard, events, "finish", "finish", {**fields, "gen": fields.get("generated")}).seq)
    requests.append(
        Request(
            len(requests) + 1, heard.line, start_s=began, api="chat", prompt_tokens=end, cached_tokens=start,
            prefilled_tokens=end - start if start is not None else None, finish=fields.get("finish"),
            generated_tokens=fields.get("generated"), prefill_s=fields.get("prefill_s"), error=fields.get("error"),
            end_s=ended, events=tuple(own), lines=(heard.line,), client_gone=fields.get("error") is not None,
        )
    )  # fmt: skip
