"""`ds4scope events`: the same records in every format, from either lane, harmless wherever they go."""

import csv
import io
import json
import re
from pathlib import Path

import polars as pl
import pytest

from ds4scope.cli import main

ROOT = Path(__file__).parents[2]
LOG = ROOT / "fixtures/captures/a-steal-sequential-1k/server.log"
HOSTILE = (
    "0915 10:00:01 ds4-server: tool calls ctx=1..2:1 n=1 ids=[=cmd|x] names=[\u202e\x1b[31m]\n"
    "0915 10:00:01 ds4-server: kv cache hit text tokens=5 text=6 quant=2 load=1.0 ms file=@SUM(A1)|<b>\x9b2J\u2028\n"
    "0915 10:00:01 ds4-server: words that no rule knows \u200b\x07 `x` | <script>\n"
    "0915 10:00:02 ds4-server: prompt start\n" * 3
)


def run(capfdbinary, *words):
    status = main(["events", *map(str, words)])
    captured = capfdbinary.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def hostile(tmp_path):
    path = tmp_path / "hostile.log"
    path.write_text(HOSTILE)
    return path


def test_one_object_a_line_in_file_order(capfdbinary):
    status, out, _ = run(capfdbinary, LOG, "--format", "ndjson")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (status, len(rows)) == (0, 182)
    assert [row["line"] for row in rows] == list(range(1, 183))
    assert rows[10] == {
        "line": 11, "offset": 1124, "stamp": "1130 17:52:18", "kind": "kv_stored", "tokens": 1086, "trimmed": 179,
        "reason": "cold", "key": "token-text", "size_mib": 37.1, "save_ms": 5.9,
    }  # fmt: skip
    assert list(rows[9]) == [
        "line",
        "offset",
        "stamp",
        "kind",
        "api",
        "span_start",
        "span_end",
        "span_tokens",
        "flags",
    ]


@pytest.mark.parametrize("format_", ["ndjson", "json", "csv", "table", "markdown"])
@pytest.mark.parametrize(
    "case",
    [
        "captures/m-tty-colours/server.log",
        "captures/i-tools-2026-05/server.log",
        "cases/050-extra-finish-fields/input.md",
    ],
)
def test_both_lanes_give_the_same_bytes(capfdbinary, format_, case):
    outputs = {
        run(capfdbinary, ROOT / "fixtures" / case, "--format", format_, "--lane", lane)[1]
        for lane in ("auto", "fast", "lark")
    }
    assert len(outputs) == 1


def test_every_format_holds_the_same_records(capfdbinary, tmp_path):
    rows = [json.loads(line) for line in run(capfdbinary, LOG, "--format", "ndjson")[1].splitlines()]
    document = json.loads(run(capfdbinary, LOG, "--format", "json")[1])
    assert document == {"schema": 1, "events": rows}
    table = list(csv.DictReader(io.StringIO(run(capfdbinary, LOG, "--format", "csv")[1].decode())))
    assert [(int(row["line"]), row["kind"], row["tokens"]) for row in table] == [
        (row["line"], row["kind"], str(row.get("tokens", ""))) for row in rows
    ]
    packed = tmp_path / "events.parquet"
    assert main(["events", str(LOG), "--format", "parquet", "-o", str(packed)]) == 0
    frame = pl.read_parquet(packed)
    assert frame["line"].to_list() == [row["line"] for row in rows]
    assert frame["elapsed_s"].to_list() == [row.get("elapsed_s") for row in rows]
    assert frame["flags"].to_list() == [row.get("flags") for row in rows]


def test_fields_of_forks_stand_under_extra(capfdbinary):
    rows = [
        json.loads(line)
        for line in run(
            capfdbinary, ROOT / "fixtures/cases/050-extra-finish-fields/input.md", "--format", "ndjson"
        )[1].splitlines()
    ]
    (finish,) = (row for row in rows if row["kind"] == "finish")
    assert finish["extra"] == {
        "decode": "6.83 t/s",
        "decode_sec": "28.991",
        "total": "177.350s",
        "total_tps": "1.12 t/s",
    }


def test_only_some_kinds(capfdbinary):
    out = run(capfdbinary, LOG, "--kind", "live_miss", "--kind", "kv_evicted", "--format", "ndjson")[1]
    assert {json.loads(line)["kind"] for line in out.splitlines()} == {"live_miss"}


def test_counts(capfdbinary):
    out = run(capfdbinary, LOG, "--count", "--format", "ndjson")[1]
    counts = {row["kind"]: row["events"] for row in map(json.loads, out.splitlines())}
    assert counts["live_miss"] == 15
    assert sum(counts.values()) == 182


def test_a_stretch(capfdbinary):
    out = run(capfdbinary, LOG, "--since", "17:52:22", "--until", "1130 17:52:22", "--format", "ndjson")[1]
    assert {json.loads(line)["stamp"] for line in out.splitlines()} == {"1130 17:52:22"}


def test_several_inputs_say_which(capfdbinary, hostile):
    rows = [json.loads(line) for line in run(capfdbinary, LOG, hostile, "--format", "ndjson")[1].splitlines()]
    assert {row["input"] for row in rows} == {str(LOG), str(hostile)}


@pytest.mark.parametrize("format_", ["ndjson", "json", "csv", "table", "markdown"])
def test_no_output_steers_a_terminal(capfdbinary, hostile, format_):
    text = run(capfdbinary, hostile, "--format", format_)[1].decode()
    assert not re.search("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]", text)


def test_no_cell_is_a_formula(capfdbinary, hostile):
    table = list(csv.reader(io.StringIO(run(capfdbinary, hostile, "--format", "csv")[1].decode())))
    cells = [cell for row in table for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t"))]
    assert "'@SUM(A1)|<b>\\x9b2J\\u{2028}" in cells


def test_negative_numbers_stay_numbers(capfdbinary, tmp_path):
    log = tmp_path / "server.log"
    log.write_text("0915 10:00:01 ds4-server: kv cache stored tokens=5 trimmed=-3 reason=cold\n" * 9)
    (row, *_) = csv.DictReader(io.StringIO(run(capfdbinary, log, "--format", "csv")[1].decode()))
    assert row["trimmed"] == "-3"


def test_markdown_cells_stay_cells(capfdbinary, hostile):
    lines = run(capfdbinary, hostile, "--format", "markdown")[1].decode().splitlines()
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert "<script>" not in "".join(lines)


def test_unknown_lines_are_kept_and_explained(capfdbinary, tmp_path):
    log = tmp_path / "server.log"
    log.write_text("0915 10:00:01 ds4-server: live kv cache miss live=5 prompt=x common=4\n" * 9)
    rows = [json.loads(line) for line in run(capfdbinary, log, "--format", "ndjson")[1].splitlines()]
    assert [(row["kind"], row["message"]) for row in rows] == [
        ("unknown", "live kv cache miss live=5 prompt=x common=4")
    ] * 9
    assert b"nearly live_miss__miss: INT expected" in run(capfdbinary, log)[1]


def test_a_log_of_another_program_is_said_to_be_one(capfdbinary, tmp_path):
    log = tmp_path / "nginx.log"
    log.write_text('127.0.0.1 - - [19/Aug/2026:09:31:14 +0200] "GET / HTTP/1.1" 200 612\n' * 50)
    status, out, err = run(capfdbinary, log, "--format", "ndjson")
    assert status == 3
    assert len(out.splitlines()) == 50
    assert b"nothing in it was printed by ds4-server" in err and b"E-INPUT-FOREIGN" in err


@pytest.mark.parametrize("words", [["missing.log"], ["x.log", "--since", "noon"]])
def test_errors_say_what_to_do(capfdbinary, words):
    status, out, err = run(capfdbinary, *words)
    assert status in (2, 3)
    assert (out, b"what to do" in err) == (b"", True)


def test_parquet_is_not_for_a_terminal(monkeypatch, capfdbinary):
    import os
    import pty

    master, slave = pty.openpty()
    monkeypatch.setattr("ds4scope.output.sys.stdout", os.fdopen(slave, "w"))
    status = main(["events", str(LOG), "--format", "parquet"])
    os.close(master)
    assert status == 2
