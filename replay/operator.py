"""What the operator did: restarts between the requests of a log."""

from __future__ import annotations

from parser.reading import Reading
from replay.arrivals import Arrivals
from replay.workload import Stop


def stops(reading: Reading, times: Arrivals) -> tuple[Stop, ...]:
    """One stop between two server processes, and one at the end if the log shows it."""
    found = []
    for run, after in zip(reading.runs, reading.runs[1:], strict=False):
        first = next((r for r in reading.requests if r.run >= after.run), None)
        if first is not None and after.started:
            found.append(Stop(before=first.request, clean=run.stopped))
    if reading.runs and reading.runs[-1].stopped:
        found.append(Stop())
    return tuple(found)
