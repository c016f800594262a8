"""`ds4scope requests`: formats, keys, exit status."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from ds4scope.cli import main
from parser.request import Request

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOG = str(FIXTURES / "captures" / "a-steal-sequential-1k" / "server.log")
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "request.schema.json").read_text())


def run(capfdbinary, *args: str) -> tuple[int, str]:
    status = main(["requests", *args])
    return status, capfdbinary.readouterr().out.decode()


def test_ndjson_has_exactly_the_documented_keys(capfdbinary):
    status, out = run(capfdbinary, LOG, "--format", "ndjson")
    rows = [json.loads(line) for line in out.splitlines()]
    assert status == 0 and len(rows) == 16
    assert all(list(row) == SCHEMA["required"] for row in rows)
    assert Request.stable_names() == tuple(SCHEMA["required"])


def test_json_is_one_object(capfdbinary):
    _, out = run(capfdbinary, LOG, "--format", "json")
    document = json.loads(out)
    assert document["schema"] == 1 and len(document["requests"]) == 16


def test_csv_and_markdown_name_their_columns(capfdbinary):
    _, out = run(capfdbinary, LOG, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert tuple(rows[0]) == Request.stable_names() and rows[1]["source"] == "disk-text"
    _, out = run(capfdbinary, LOG, "--format", "markdown")
    assert out.startswith("| request | line |") and out.count("\n") == 18


def test_parquet_keeps_types(tmp_path, capfdbinary):
    import polars as pl

    target = tmp_path / "rows.parquet"
    run(capfdbinary, LOG, "--format", "parquet", "-o", str(target))
    frame = pl.read_parquet(target)
    assert frame["prompt_tokens"].dtype == pl.Int64 and frame["evict_stored"].dtype == pl.Boolean
    assert len(frame) == 16 and frame["cached_tokens"].to_list()[1] == 1086


def test_a_trace_makes_sources_exact(capfdbinary):
    _, out = run(
        capfdbinary,
        LOG.replace("a-steal-sequential", "b-steal-after-overlap"),
        "--format",
        "ndjson",
        "--trace",
        LOG.replace("a-steal-sequential", "b-steal-after-overlap").replace("server.log", "trace.txt"),
    )
    assert {json.loads(line)["source"] for line in out.splitlines()} == {"cold", "disk-text", "memory-token"}


def test_a_window_of_time(capfdbinary):
    _, out = run(capfdbinary, LOG, "--format", "ndjson", "--since", "1130 17:52:19")
    first = json.loads(out.splitlines()[0])
    assert len(out.splitlines()) < 16 and first["request"] == 1


def test_the_table_is_for_people(capfdbinary):
    _, out = run(capfdbinary, LOG)
    assert "disk-text" in out and "miss live=1338 common=1087" in out


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("Just prose about nothing in particular, and a second sentence.\n", 3),
        ("", 3),
        ("ds4-server: something new\n", 0),
    ],
)
def test_exit_status_says_whether_anything_could_be_read(tmp_path, capfdbinary, text, status):
    path = tmp_path / "input.log"
    path.write_text(text)
    assert main(["requests", str(path)]) == status
