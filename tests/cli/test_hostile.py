"""Inputs and surroundings that would break a careless tool: said in words, with the documented status, inert."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from ds4scope.cli import main
from ds4scope.output import opened
from parser.errors import InputError, UsageError
from parser.sources import find_sources

LOG = Path(__file__).parents[2] / "fixtures" / "captures" / "a-steal-sequential-1k" / "server.log"
EVIL = "a\x1b[31m\u202e<b>.log"


def run(capfdbinary, *words) -> tuple[int, bytes, str]:
    status = main([str(word) for word in words])
    sys.stdout.flush()
    out, err = capfdbinary.readouterr()
    return status, out, err.decode()


def test_names_in_errors_and_json_steer_no_terminal(capfdbinary, tmp_path):
    status, _, err = run(capfdbinary, "events", tmp_path / EVIL)
    assert status == 3 and "\x1b" not in err and "\u202e" not in err and "\\e[31m" in err
    evil = tmp_path / EVIL
    evil.write_bytes(LOG.read_bytes())
    status, out, _ = run(capfdbinary, "sweep", "-j", "1", "--policies", "lru", "--format", "json", evil)
    assert status == 0 and "\u202e" not in out.decode() and EVIL in json.loads(out)["rows"][0]["log"]


@pytest.mark.parametrize(
    "words",
    [["events"], ["redact"], ["workload"], ["sweep", "-j", "1", "--policies", "lru"]],
    ids=lambda w: w[0],
)
def test_the_input_is_never_written_over(capfdbinary, tmp_path, words):
    log = tmp_path / "server.log"
    log.write_bytes(LOG.read_bytes())
    status, _, err = run(capfdbinary, *words, log, "-o", tmp_path / "." / "server.log")
    assert status == 2 and "E-USAGE-OVERWRITE" in err
    assert log.read_bytes() == LOG.read_bytes()


@pytest.mark.parametrize("words", [["events"], ["redact"], ["workload"]], ids=lambda w: w[0])
@pytest.mark.parametrize("place", ["", "no/such/folder/x", "."])
def test_an_output_that_cannot_be_written_is_wrong_usage(capfdbinary, tmp_path, words, place):
    target = tmp_path / place if place else ""
    status, _, err = run(capfdbinary, *words, LOG, "-o", target)
    assert status == 2 and "E-USAGE-OUTPUT" in err and not list(tmp_path.glob("*.part"))


def test_a_device_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with opened(str(pipe)) as out:
        out.write(b"rows")
    assert os.read(end, 10) == b"rows" and pipe.is_fifo()
    os.close(end)


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="the system has no full device")
@pytest.mark.parametrize("words", [["events"], ["events", "--format", "parquet"], ["redact"], ["workload"]])
def test_a_full_disk_is_no_defect(capfdbinary, words):
    status, _, err = run(capfdbinary, *words, LOG, "-o", "/dev/full")
    assert status == 2 and "E-USAGE-OUTPUT" in err and "No space left" in err


def test_what_is_printed_is_utf8_whatever_the_locale_says(monkeypatch):
    data = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(data, encoding="ascii"))
    assert main(["replay", str(LOG)]) == 0
    assert "─" in data.getvalue().decode()


def test_closed_streams_are_said_or_left_alone(capfdbinary, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    status, _, err = run(capfdbinary, "events", "-")
    assert status == 3 and "standard input is closed" in err
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["events", str(LOG)]) == 2


def test_an_empty_name_is_not_the_present_folder(capfdbinary, monkeypatch, tmp_path):
    (tmp_path / "server.log").write_bytes(LOG.read_bytes())
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capfdbinary, "events", "")
    assert status == 3 and "E-INPUT-MISSING" in err and not out


def test_one_file_under_two_names_is_read_once(tmp_path):
    log, link = tmp_path / "server.log", tmp_path / "current.log"
    log.write_bytes(LOG.read_bytes())
    link.symlink_to(log)
    assert len(find_sources([str(tmp_path)])) == 1
    assert len(find_sources([str(log), str(tmp_path / "x" / ".." / "server.log"), str(link)])) == 1


@pytest.mark.parametrize("name", ["server.log.1.xz", "server.log.2.gz"])
def test_a_part_of_a_rotated_set_is_not_left_out_silently(tmp_path, name):
    (tmp_path / "server.log").write_bytes(LOG.read_bytes())
    (tmp_path / "notes.xz").write_bytes(b"\xfd7zXZ\0")
    assert len(find_sources([str(tmp_path)])) == 1
    (tmp_path / name).write_bytes(b"\xfd7zXZ\0" if name.endswith("xz") else b"\x1f\x8b\x08\0cut")
    with pytest.raises(InputError, match=name):
        find_sources([str(tmp_path)])


@pytest.mark.parametrize("command", ["events", "requests", "triage", "replay", "doctor"])
def test_a_window_with_nothing_in_it_is_said(capfdbinary, command):
    status, _, err = run(capfdbinary, command, LOG, "--since", "1231 00:00")
    assert status == 3 and "E-INPUT-WINDOW" in err and "1130 17:5" in err


@pytest.mark.parametrize("bound", ["25:61", "9999", "0000", "1332 10:00"])
def test_a_bound_that_no_clock_shows_is_no_stamp(capfdbinary, bound):
    status, _, err = run(capfdbinary, "events", LOG, "--since", bound)
    assert status == 2 and "E-USAGE-STAMP" in err


@pytest.mark.parametrize("year", ["-5", "0", "99999"])
def test_a_year_that_no_log_has_is_wrong_usage(capfdbinary, year):
    status, _, err = run(capfdbinary, "requests", LOG, "--year", year)
    assert status == 2 and "E-USAGE-YEAR" in err


def test_doctor_says_nothing_of_a_log_that_is_not_the_servers(capfdbinary, tmp_path):
    log = tmp_path / "nginx.log"
    log.write_text("127.0.0.1 GET / 200\n" * 100)
    status, out, err = run(capfdbinary, "doctor", log)
    assert status == 3 and "E-INPUT-FOREIGN" in err and not out


def test_a_number_of_slots_that_no_machine_holds_is_not_believed(capfdbinary, tmp_path):
    log = tmp_path / "server.log"
    log.write_bytes(
        LOG.read_bytes().replace(b"sessions=2", b"sessions=99999999").replace(b" 2 res", b" 99999999 res")
    )
    status, out, _ = run(capfdbinary, "requests", "--format", "ndjson", log)
    rows = [json.loads(line) for line in out.splitlines()]
    assert status == 0 and len(rows) == 16 and {row["slot"] for row in rows} <= set(range(16))
    with pytest.raises(UsageError, match="99999999"):
        from parser.reading import read
        from replay.study import study_of

        study_of(read([str(LOG)])).run(slots=99999999)


@pytest.mark.parametrize(
    "usage",
    [
        '{"prompt_tokens":"x","completion_tokens":{}}',
        '{"prompt_tokens":[1],"prompt_tokens_details":"s"}',
        '{"cache_read_input_tokens":"9","input_tokens":-2}',
        '{"input_tokens":1.5,"input_tokens_details":[1],"output_tokens":true}',
    ],
)
def test_usage_of_the_wrong_types_is_unknown(capfdbinary, tmp_path, usage):
    from parser.beside import usage_numbers

    clients = tmp_path / "client.jsonl"
    clients.write_text(f'{{"usage":{usage}}}\n')
    status, _, err = run(capfdbinary, "triage", LOG, "--client", clients)
    assert status == 0 and not err
    numbers = usage_numbers({"usage": json.loads(usage)})
    assert all(one is None or (type(one) is int and one >= 0) for one in numbers)


def test_a_workload_whose_prompt_is_null_is_said_where(capfdbinary, tmp_path):
    file = tmp_path / "w.json"
    assert run(capfdbinary, "workload", LOG, "-o", file)[0] == 0
    workload = json.loads(file.read_bytes())
    workload["requests"][1]["prompt"] = None
    file.write_text(json.dumps(workload))
    status, _, err = run(capfdbinary, "replay", file)
    assert (
        status in (2, 3)
        and "E-INTERNAL" not in err
        and "prompt" in err
        and str(file) in err.replace("\n", "")
    )


def test_numbers_of_a_trace_that_no_server_prints_stay_unknown(tmp_path):
    from parser.reading import read

    trace = LOG.with_name("trace.txt").read_bytes()
    bad = trace.replace(b"live_tokens_before: ", b"live_tokens_before: -7").replace(
        b"2026-11-30", b"0000-00-00"
    )
    file = tmp_path / "trace.txt"
    file.write_bytes(bad)
    reading = read([str(LOG)], traces=[str(file)])
    assert len(reading.requests) == 16 and reading.stamps.year != 0
    assert all((row.live_before or 0) >= 0 for row in reading.requests)


def test_redact_keeps_nothing_of_a_very_long_line():
    from parser.pseudonym import Pseudonyms
    from parser.redact import Redactor

    line = b"zebra " * 20_000
    out = Redactor(Pseudonyms(b"k" * 32), report=False).line(line)
    assert len(out) >= len(line) - (32 << 10) and out.endswith(b"xxxxx ") and b"zebra" not in out


def test_of_a_very_long_line_a_bounded_text_is_kept(capfdbinary, tmp_path):
    from parser.textlines import MAX_TEXT

    log = tmp_path / "server.log"
    log.write_bytes(LOG.read_bytes() + b"ds4: " + b"1" * 1_000_000 + b"\n")
    status, out, _ = run(capfdbinary, "events", "--format", "ndjson", log)
    assert status == 0 and len(json.loads(out.splitlines()[-1])["message"]) <= MAX_TEXT


def test_spans_that_run_backwards_can_be_replayed(capfdbinary, tmp_path):
    import re

    log = tmp_path / "server.log"
    log.write_bytes(re.sub(rb"ctx=(\d+)\.\.(\d+):", rb"ctx=\2..\1:", LOG.read_bytes()))
    status, _, err = run(capfdbinary, "replay", "--format", "json", log)
    assert status in (0, 3) and "E-INTERNAL" not in err
