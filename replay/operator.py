"""What the operator did: restarts between the requests of a log, some of them while requests ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parser.reading import Reading, ServerRun
from parser.request import Request
from replay.arrivals import Arrivals
from replay.costs import FittedCosts
from replay.workload import Stop

_CUT_OFF = ("shutdown requested", "decode interrupted")


def stops(reading: Reading, times: Arrivals, costs: FittedCosts) -> tuple[Stop, ...]:
    """One stop between two server processes, and one at the end if the log shows it."""
    found = []
    for number, run in enumerate(reading.runs):
        last = number + 1 == len(reading.runs)
        if not last and not reading.runs[number + 1].started:
            continue
        first = next((r.request for r in reading.requests if r.run > run.run), None)
        cut = _cut_off(reading.requests, run, last=last)
        if cut:
            during = _during(reading, times, costs, cut[-1], clean=run.stopped)
            found.append(during if last else replace(during, before=first))
        elif first is not None and not last:
            found.append(Stop(before=first, clean=run.stopped))
        elif last and run.stopped:
            found.append(Stop())
    return tuple(found)


def cut_off(reading: Reading) -> frozenset[int]:
    """Indices of requests that a stop of the server cut off: their answers would have gone on."""
    found: set[int] = set()
    for number, run in enumerate(reading.runs):
        found |= set(_cut_off(reading.requests, run, last=number + 1 == len(reading.runs)))
    return frozenset(found)


def _cut_off(requests: Sequence[Request], run: ServerRun, *, last: bool) -> list[int]:
    """Indices of the requests that the stop cut off (at the end of a log they may just go on)."""
    found = []
    for index, request in enumerate(requests):
        open_end = request.line > 0 and request.finish is None and not request.client_gone
        unfinished = open_end and request.prompt_line is not None and not (last and not run.stopped)
        if request.run == run.run and (request.error in _CUT_OFF or unfinished):
            found.append(index)
    return found


def _during(reading: Reading, times: Arrivals, costs: FittedCosts, index: int, *, clean: bool) -> Stop:
    """So long after the request was sent that the last piece or token that its log shows is at hand."""
    request = reading.requests[index]
    start, arrival = times.start[index], times.arrival[index]
    waited = start - arrival if start is not None and arrival is not None else 0.0
    ran = times.spans.lasted[index]
    if request.prefill_s is None and request.progress.last_done:
        ran = _reached(request, costs, reading.runs[request.run].config.get("mixed_prefill_quantum", 128))
    return Stop(after=request.request, delay_s=round(max(0.0, waited + ran), 6), clean=clean)


def _reached(request: Request, costs: FittedCosts, quantum: int) -> float:
    """Seconds into its prefill when half of the last piece was evaluated; small pieces took turns with a
    decode step (R6.7)."""
    done, pieces = request.progress.last_done or 0, max(1, request.progress.chunks)
    start, piece = request.cached_tokens or 0, done / pieces
    seconds = costs.prefill_s(start, start + round(done - piece / 2))
    return seconds + (costs.decode_s(1, 0, pieces) if piece <= quantum else 0.0)
