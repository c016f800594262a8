"""Chunk and decoding lines as columns and one by one: the same requests (two ways, one result)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import parser.bulk
import parser.conversations
import parser.guess
import parser.sources
from parser.clock import Clock
from parser.reading import read, read_segments

CAPTURES = Path(__file__).parents[2] / "fixtures" / "captures"
LOGS = [
    CAPTURES / name / "server.log"
    for name in (
        "d-3conv-2slots",
        "i-openai-tools",
        "h-sigterm-busy",
        "j-errors",
        "m-tty-colours",
        "matrix/W1/aug-2-600",
    )
]


def everything(requests):
    return [
        (r.as_dict(), r.progress, r.end_s, r.live_after, r.events, r.continues, r.previous_in_slot)
        for r in requests
    ]


@pytest.fixture
def columns(monkeypatch):
    def force(few: int) -> None:
        monkeypatch.setattr(parser.bulk, "FEW", few)

    return force


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.parent.name)
def test_columns_and_single_lines_give_the_same_requests(log, columns):
    columns(10**9)
    single = everything(read([str(log)]).requests)
    columns(-1)
    assert everything(read([str(log)]).requests) == single


def parallel(seed: int) -> str:
    """Many requests at once, some with one span: what columns must leave to single lines."""
    rng = random.Random(seed)
    lines, streams = [], []
    for _ in range(12):
        at, prompt = rng.randrange(30), rng.choice((900, 901, 1500))
        cached, gen = rng.choice((0, 700)), rng.randrange(10, 160)
        span = f"{cached}..{prompt}:{prompt - cached}"
        mine = [(at, f"chat ctx={span} prompt start")]
        for done in range(100, prompt - cached, 100):
            chunk = f"{done}/{prompt - cached} (9.0%) chunk=9.00 t/s avg=9.00 t/s {done / 100:.3f}s"
            mine += [(at + done / 100, f"chat ctx={span} prefill chunk {chunk}")]
        ready = at + (prompt - cached) / 100
        mine.append((ready, f"chat ctx={span} prompt done {ready - at:.3f}s"))
        for made in [*range(50, gen, 50), gen]:
            last = (made - 1) // 50 * 50
            mine.append(
                (
                    ready + made / 10,
                    f"chat ctx={prompt + last}..{prompt + made}:{made - last} gen={made} decoding chunk=9.00 t/s avg=9.00 t/s {made / 10:.3f}s",
                )
            )
        mine.append((ready + gen / 10, f"chat ctx={span} gen={gen} finish=stop {ready + gen / 10 - at:.3f}s"))
        streams.append(mine)
    every = ((at, n, m, text) for n, mine in enumerate(streams) for m, (at, text) in enumerate(mine))
    for at, _, _, text in sorted(every):
        lines.append(f"0915 10:{int(at) // 60:02d}:{int(at) % 60:02d} ds4-server: {text}")
    return "\n".join(lines[rng.randrange(10) :]) + "\n"


@pytest.mark.parametrize("seed", range(12))
def test_equal_spans_at_once(seed, columns, tmp_path):
    log = tmp_path / "server.log"
    log.write_text(parallel(seed))
    columns(10**9)
    single = read([str(log)]).requests
    columns(-1)
    assert everything(read([str(log)]).requests) == everything(single)
    assert sum(r.finish == "stop" for r in single) == log.read_text().count("finish=")
    assert all(r.progress.decoded == r.generated_tokens for r in single if r.finish)


def _cut_right(lines: list[str], at: int, other: int) -> None:
    lines[at] = lines[at][: other % (len(lines[at]) + 1)]


def _cut_left(lines: list[str], at: int, other: int) -> None:
    lines[at] = lines[at][other % (len(lines[at]) + 1) :]


def _repeat(lines: list[str], at: int, other: int) -> None:
    lines.insert(max(0, at + other % 41 - 20), lines[at])


def _move(lines: list[str], at: int, other: int) -> None:
    lines.insert(max(0, at + other % 41 - 20), lines.pop(at))


def _lose(lines: list[str], at: int, other: int) -> None:
    del lines[at : at + 1 + other % 12]


def _lose_one_of_a_kind(lines: list[str], at: int, other: int) -> None:
    words = ("prompt start", "prompt done", "finish=", "prefill chunk", "decoding", "batch")
    word = words[other % len(words)]
    alike = [number for number, line in enumerate(lines) if word in line]
    del lines[alike[at % len(alike)] if alike else at]


HARM = (_cut_right, _cut_left, _repeat, _move, _lose, _lose_one_of_a_kind)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    log=st.sampled_from([*LOGS, *range(20)]),
    start=st.integers(0, 400),
    length=st.integers(20, 250),
    harm=st.lists(
        st.tuples(st.sampled_from(HARM), st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=12
    ),
    block_bytes=st.sampled_from([2048, 4096, 1 << 22]),
)
def test_a_damaged_log_gives_the_same_both_ways(log, start, length, harm, block_bytes, tmp_path):
    """Lines lost, cut, moved, doubled: whatever is left, columns and single lines make the same of it."""
    text = parallel(log) if isinstance(log, int) else log.read_text()
    lines = text.splitlines()
    start %= len(lines)
    lines = lines[start : start + length]
    for do, at, other in harm:
        if lines:
            do(lines, at % len(lines), other)
    path = tmp_path / "server.log"
    path.write_text("0915 09:59:59 ds4-server: listening on http://127.0.0.1:8000\n" * (start % 2))
    with path.open("a") as out:
        out.write("\n".join([*lines, "0915 10:00:01 ds4-server: the last line"]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        defaults = {**parser.sources.iter_blocks.__kwdefaults__, "block_bytes": block_bytes}
        patch.setattr(parser.sources.iter_blocks, "__kwdefaults__", defaults)
        patch.setattr(parser.bulk, "FEW", 10**9)
        single = everything(read([str(path)]).requests)
        patch.setattr(parser.bulk, "FEW", -1)
        assert everything(read([str(path)]).requests) == single


@pytest.mark.parametrize("few", [-1, 10**9], ids=["columns", "lines"])
def test_segments_give_the_rows_of_the_whole(few, columns, monkeypatch, tmp_path):
    """Small blocks and small windows: rows leave early, and are the same."""
    monkeypatch.setattr(parser.guess, "_HOLD", 16)
    monkeypatch.setattr(parser.guess, "_KEEP", 6)
    monkeypatch.setattr(parser.conversations, "_AHEAD", 8)
    columns(few)
    log = tmp_path / "server.log"
    text = (CAPTURES / "i-openai-tools" / "server.log").read_text()
    log.write_text(text * 3)
    whole = everything(read([str(log)]).requests)
    monkeypatch.setattr(
        parser.sources.iter_blocks,
        "__kwdefaults__",
        {**parser.sources.iter_blocks.__kwdefaults__, "block_bytes": 4096},
    )
    parts = [segment.requests for segment in read_segments([str(log)])]
    assert len(parts) > 10 and sum(bool(part) for part in parts) > 2
    assert everything([row for part in parts for row in part]) == whole


def test_a_request_of_which_nothing_is_heard_does_not_hold_back_the_others(monkeypatch, tmp_path):
    import parser.join

    monkeypatch.setattr(parser.join, "_QUIET_LINES", 200)
    monkeypatch.setattr(parser.guess, "_HOLD", 20)
    monkeypatch.setattr(parser.guess, "_KEEP", 10)
    start = "0915 10:00:00 ds4-server: batched mode enabled resident_sessions=2 prefill_quantum=2048 mixed_prefill_quantum=128 decode_coalesce_us=2000\n"
    start += "0915 10:00:00 ds4-server: listening on http://127.0.0.1:8000\n0915 10:00:01 ds4-server: chat ctx=0..9999:9999 prompt start\n"
    body = []
    for number in range(400):
        head, length = f"0915 {11 + number // 60:02d}:{number % 60:02d}:00 ds4-server: ", 100 + number * 10
        cached = length - 5 if number else 0
        body += [
            f"{head}chat ctx={cached}..{length}:{length - cached} prompt start",
            f"{head}chat ctx={cached}..{length}:{length - cached} gen=5 finish=stop 1.000s",
        ]
    log = tmp_path / "server.log"
    log.write_text(start + "\n".join(body) + "\n")
    monkeypatch.setattr(
        parser.sources.iter_blocks,
        "__kwdefaults__",
        {**parser.sources.iter_blocks.__kwdefaults__, "block_bytes": 4096},
    )
    sizes = [len(segment.requests) for segment in read_segments([str(log)])]
    assert sum(sizes) == 401 and sizes[-1] < 200


def test_stamps_of_the_whole_input():
    reading = read([str(LOGS[0])], year=2026)
    assert (reading.stamps.first, reading.stamps.last, reading.stamps.year_from) == (
        "1130 17:53:54",
        "1130 17:54:02",
        "declared",
    )
    assert reading.stamps.seconds == Clock().seconds("1130 17:53:54") + 8
