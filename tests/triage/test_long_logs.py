"""Long logs: stretch by stretch gives what the whole gives; columns find the same jumps as rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from parser.events import read_events
from parser.reading import read, read_segments
from triage import long, pace
from triage.pace_columns import odd_finishes, suspects
from triage.thresholds import Thresholds
from triage.triage import triage

CAPTURES = Path(__file__).parents[2] / "fixtures" / "captures"


def logs() -> list[str]:
    return [
        str(CAPTURES / name / "server.log")
        for name in ("a-steal-sequential-1k", "i-openai-tools", "j-errors")
    ]


@pytest.mark.parametrize("log", logs(), ids=lambda p: Path(p).parent.name)
def test_one_piece_is_the_whole(log):
    whole, piece = triage(read([log])), long.triage_inputs([log])
    assert [f.mechanism for f in whole.findings] == [f.mechanism for f in piece.findings]
    assert whole.totals == piece.totals


@pytest.mark.parametrize("log", logs(), ids=lambda p: Path(p).parent.name)
def test_stretches_keep_every_event_and_request(log, monkeypatch, tmp_path):
    """Cut into many stretches, counts and sums stay; a pattern may be seen in each of them."""
    twice = tmp_path / "twice.log"
    text = Path(log).read_text()
    twice.write_text(text * 6)
    monkeypatch.setattr(long, "WHOLE", 5)
    monkeypatch.setattr(long, "read_segments", lambda inputs, **o: _small(inputs, **o))
    cut = long.triage_inputs([str(twice)])
    whole = triage(read([str(twice)]))
    assert cut.events == whole.events
    for name in ("requests", "live_misses", "prefilled_tokens", "reused_tokens", "stored_mib"):
        assert cut.totals.get(name) == pytest.approx(whole.totals.get(name), rel=1e-6), name
    assert cut.findings[0].mechanism == whole.findings[0].mechanism


def _small(inputs, **options):
    """Segments of the reader; small logs come in one, which is enough for one stretch."""
    yield from read_segments(inputs, **options)


JUMPS = """
0709 02:11:00 ds4-server: chat ctx=0..30000:30000 prefill chunk 4096/30000 (13.7%) chunk=300.00 t/s avg=300.00 t/s 13.653s
0709 02:11:14 ds4-server: chat ctx=0..30000:30000 prefill chunk 8192/30000 (27.3%) chunk=300.00 t/s avg=300.00 t/s 27.306s
0709 03:05:10 ds4-server: chat ctx=0..30000:30000 prefill chunk 12288/30000 (41.0%) chunk=300.00 t/s avg=300.00 t/s 40.960s
0709 03:15:10 ds4-server: chat ctx=0..30000:30000 prefill chunk 16384/30000 (54.6%) chunk=6.83 t/s avg=25.56 t/s 640.960s
0709 03:15:20 ds4-server: chat ctx=40210..40260:50 gen=350 TOOLS decoding chunk=24.90 t/s avg=24.95 t/s 14.028s
0709 03:45:20 ds4-server: chat ctx=40260..40310:50 gen=400 TOOLS decoding chunk=24.72 t/s avg=24.92 t/s 16.051s
0709 03:46:00 ds4-server: chat ctx=100..150:50 gen=50 decoding chunk=24.72 t/s avg=24.92 t/s 2.051s
0709 09:46:00 ds4-server: chat ctx=100..150:50 gen=50 decoding chunk=24.72 t/s avg=24.92 t/s 2.051s
0709 09:46:01 ds4-server: chat ctx=9..20:11 gen=2 TOOLS finish=stop 3.0s
0709 09:46:02 ds4-server: chat ctx=9..20:11 gen=200 TOOLS finish=stop 3.0s
0709 09:46:02 ds4-server: chat ctx=9..20:11 gen=200 TOOLS THINKING finish=length 3.0s
"""


def test_columns_and_rows_find_the_same_jumps(tmp_path):
    path = tmp_path / "server.log"
    path.write_text(JUMPS.lstrip() * 3)
    (log,) = read_events([str(path)])
    rows = list(log.rows("prefill_chunk", "decoding"))
    picked = sorted(suspects(log, Thresholds()), key=lambda e: e.seq)
    by_rows = {(g.first.seq, g.second.seq) for g in pace.pairs(rows, 60.0)}
    by_columns = {(g.first.seq, g.second.seq) for g in pace.pairs(picked, 60.0)}
    assert by_rows == by_columns
    assert len(by_rows) == 9
    assert {e.kind for e in picked} == {"prefill_chunk", "decoding"}


def test_odd_finishes_are_found_in_columns(tmp_path):
    path = tmp_path / "server.log"
    path.write_text(JUMPS.lstrip())
    (log,) = read_events([str(path)])
    assert [(e.get("gen"), e.get("finish")) for e in odd_finishes(log)] == [(2, "stop"), (200, "length")]
