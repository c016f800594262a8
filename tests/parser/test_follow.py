"""A log and its trace that grow while they are read: in the end they say what the whole files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from parser.follow import follow
from parser.reading import Asked, read

CAPTURE = Path(__file__).parents[2] / "fixtures" / "captures" / "a-steal-sequential-1k"
STEPS = 7


@pytest.fixture
def growing(tmp_path):
    """(log, trace, grow): `grow` appends the next piece of both; pieces end where they happen to end."""
    log, trace = tmp_path / "server.log", tmp_path / "trace.txt"
    pieces = {log: (CAPTURE / "server.log").read_bytes(), trace: (CAPTURE / "trace.txt").read_bytes()}
    for path in pieces:
        path.write_bytes(b"")
    at = iter(range(STEPS))

    def grow() -> bool:
        number = next(at, None)
        if number is None:
            return False
        for path in (trace, log):  # the trace record of a request is written before its last lines
            data = pieces[path]
            ahead = 200 if path == trace and number + 1 < STEPS else 0
            end = len(data) * (number + 1) // STEPS
            with path.open("ab") as file:
                file.write(data[path.stat().st_size : min(len(data), end + ahead * 100)])
        return True

    return log, trace, grow


def test_a_growing_trace_is_followed(growing):
    log, trace, grow = growing
    grow()
    asked = Asked((str(log),), (str(trace),))
    rows, records = {}, {}
    for step in follow(asked, grow):
        rows.update({r.request: r for r in step.reading.requests})
        records.update(step.reading.trace)
    whole = read([str(log)], traces=[str(trace)])
    assert len(whole.trace) > 10
    assert {n: r.id for n, r in records.items()} == {n: r.id for n, r in whole.trace.items()}
    assert [(r.source, r.common, r.conversation) for r in rows.values()] == [
        (r.source, r.common, r.conversation) for r in whole.requests
    ]
    assert {n: (r.parent, r.shared_bytes) for n, r in records.items()} == {
        n: (r.parent, r.shared_bytes) for n, r in whole.trace.items()
    }
