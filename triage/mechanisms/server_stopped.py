"""server-stopped: a shutdown cut requests off (4.7)."""

from __future__ import annotations

from collections.abc import Iterator

from parser.event import Event
from parser.request import Request
from triage.episodes import total, total_s
from triage.evidence import event_sign, plural
from triage.figures import compact
from triage.mechanism import Mechanism, Sign
from triage.view import View

_CUT = ("shutdown requested", "decode interrupted")


def _cut_off(view: View, stop: Event) -> tuple[list[Event], list[Request]]:
    """Lines of requests that ended in error because of the stop, and requests that were still open at it."""
    run = view.run_at(stop)
    at = view.at(stop)
    lines = []
    for event in view.of("finish") + view.of("stream_error"):
        error = event.get("error")
        when = view.at(event)
        soon = at is None or when is None or abs(when - at) <= view.limits.stop_before_error_s
        ended = error in _CUT or (event.seq > stop.seq and (error or event.kind == "stream_error"))
        if ended and soon and view.run_at(event) == run:
            lines.append(event)
    still = [
        r for r in view.requests
        if r.run == run and r.finish is None and r.events and min(r.events) < stop.seq
        and not r.client_gone and r.prompt_tokens is not None and _open_at(r, stop)
    ]  # fmt: skip
    return lines, still


def _open_at(request: Request, stop: Event) -> bool:
    """No later request shows that it ended otherwise; its last line stands close before the stop."""
    return stop.seq - max(request.events) <= 60


def detect(view: View) -> Iterator[Sign]:
    """`shutdown requested` before or within seconds of errors."""
    lines: list[Event] = []
    still: list[Request] = []
    stops = view.of("shutdown", "requested")
    for stop in stops:
        cut, open_requests = _cut_off(view, stop)
        lines += cut
        shown = bool(cut) or (view.reading.kind == "log" and any(r.finish for r in view.requests))
        still += open_requests if shown else []
    persisted = view.of("shutdown", "persisting")
    only = bool(stops or persisted) and not view.requests and not view.of("live_miss")
    if not lines and not still and not only:
        return
    stores = [e for e in view.of("kv_stored") if e.get("reason") == "shutdown"]
    cut_requests = {view.owner[e.seq].request.request for e in lines if e.seq in view.owner} | {
        r.request for r in still
    }
    yield event_sign(
        f"the server was stopped; {plural(max(len(cut_requests), len({e.get('span_end') for e in lines})), 'request')} cut off"
        if lines or still
        else "the server was stopped in order; nothing was cut off",
        [*stops, *lines, *persisted, *stores],
        compact(
            {
                "requests_cut_off": len(cut_requests) or None,
                "persisted_tokens": total(e.get("tokens") for e in persisted)
                or total(e.get("tokens") for e in stores),
                "stored_mib": total_s(e.get("size_mib") for e in stores),
                "stops": len(stops),
            }
        ),
        episodes=[e for e in view.episodes if e.request.request in cut_requests],
        tokens=0,
        confidence=0.95 if lines else 0.7,
        severity="low" if only else None,
    )


MECHANISM = Mechanism(
    id="server-stopped",
    title="The server was stopped",
    family="client",
    grades=("log",),
    severity="medium",
    evidence="`shutdown requested, draining requests` before or within seconds of errors; `persisting …`, stores with reason=shutdown",
    not_if="the stop comes after all requests ended and nothing failed (an ordinary restart)",
    user="find out who sends the signal (supervisor, memory pressure)",
    server="nothing to do",
    detect=detect,
)
