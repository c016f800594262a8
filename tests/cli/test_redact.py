"""`ds4scope redact`: nothing private is left, every number is, and what is left reads the same."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ds4scope.cli import main
from parser.pseudonym import Pseudonyms
from parser.reading import read
from parser.redact import redact

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOGS = sorted(FIXTURES.glob("captures/*/server.log"))
CASES = sorted(FIXTURES.glob("cases/*/input.*"))
KEY = b"a key of the tests"
#: Fields that hold what a person, a client or a model wrote.
PRIVATE = {"file", "dir", "ids", "names", "error", "snippet", "host", "reason_text"}


def redacted(text, *, report=False, key=KEY):
    return b"".join(redact([text.encode()], key, report=report)).decode()


def plain(events):
    """Events without their private fields, in the order of the input."""
    return [
        (e.kind, e.rule, e.line, e.stamp, {k: v for k, v in e.fields.items() if k not in PRIVATE})
        for e in events.rows(*events.counts)
    ]


def rows(requests):
    return [
        (r.line, r.prompt_tokens, r.cached_tokens, r.source, r.slot, r.slot_confidence, r.conversation, r.live_before,
         r.common, r.evicted_live_tokens, r.disk_hit_tokens, r.generated_tokens, r.finish, r.prefill_s, r.total_s,
         r.start_s, r.lines, r.stores)
        for r in requests
    ]  # fmt: skip


@pytest.fixture
def copy(tmp_path):
    """Runs the command on a file; gives the path of what it wrote."""

    def run(path):
        out = tmp_path / f"out{path.suffix}"
        assert main(["redact", str(path), "-o", str(out), "--key", "secret"]) == 0
        return out

    return run


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_a_redacted_log_gives_the_same_events_and_requests(path, copy):
    before, after = read([str(path)]), read([str(copy(path))])
    assert plain(after.events) == plain(before.events)
    assert rows(after.requests) == rows(before.requests)
    assert after.server == before.server or after.server.profile == before.server.profile


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name)
def test_a_redacted_report_gives_the_same_events(path, copy):
    before, after = read([str(path)]), read([str(copy(path))])
    assert plain(after.events) == plain(before.events)
    assert rows(after.requests) == rows(before.requests)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name)
def test_a_redacted_report_gives_the_same_findings(path, copy, capsys):
    def findings(which):
        assert main(["triage", str(which), "--format", "json"]) in (0, 3)
        out = capsys.readouterr().out
        found = json.loads(out)["findings"] if out.strip() else []
        for one in found:
            one["quantities"].pop("file", None)  # a name, which has a stand-in
        return [(one["mechanism"], one["rank"], one["lines"], one["quantities"]) for one in found]

    assert findings(copy(path)) == findings(path)


@pytest.mark.parametrize("path", LOGS + CASES, ids=lambda path: path.parent.name)
def test_hashes_ids_paths_and_names_are_gone(path, copy):
    before, after = path.read_text(errors="replace"), copy(path).read_text(errors="replace")
    private = set(re.findall(r"(?=[0-9]*[a-f])[0-9a-f]{16,64}", before))
    for found in re.findall(r"\b(?:ids|names)=\[([^\]]*)", before):
        private |= {one for one in found.split(",") if len(one) > 4}
    for found in re.findall(r"(?:file=|KV disk cache |session to )(/[^\n]*?)(?: \(budget|\x1b|\n|$)", before):
        private |= {part for part in re.split(r"[/ ]", found) if len(part) > 5}
    assert [one for one in private if one in after] == []


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_every_number_outside_of_private_text_is_kept(path, copy):
    def numbers(text):
        text = re.sub(r"file[= ]\S+|\[[^\]]*\]|KV disk cache .*? \(|session to .*", "", text)
        return re.findall(r"\d+(?:\.\d+)?", text)

    assert numbers(copy(path).read_text()) == numbers(path.read_text())


def test_line_ends_and_lengths_of_the_input_are_kept(tmp_path):
    log = LOGS[0].read_bytes()
    for data in (
        log,
        log.rstrip(b"\n"),
        log.replace(b"\n", b"\r\n"),
        b"\n\n" + log,
        log.replace(b"chat", b"ch\xffat"),
    ):
        out = b"".join(redact([data], KEY))
        assert out.count(b"\n") == data.count(b"\n") and out.endswith(b"\n") == data.endswith(b"\n")
        assert out.count(b"\r") == data.count(b"\r")


def test_blocks_give_the_same_as_the_whole():
    data = LOGS[0].read_bytes()
    lines = data.splitlines(keepends=True)
    assert b"".join(redact(lines, KEY)) == b"".join(redact([data], KEY))


def test_the_same_word_gets_the_same_stand_in_and_another_key_another():
    text = (
        "0915 10:00:05 ds4-server: kv cache hit text tokens=5 load=1.0 ms file=/home/ann/kv/"
        + "ab12" * 10
        + ".kv\n"
    )
    once, again, other = redacted(text), redacted(text + text), redacted(text, key=b"another key")
    assert again == once + once
    assert once != other
    assert "ann" not in once.split("file=")[1] and "ab12ab12" not in once
    assert re.fullmatch(r".*file=/p-\w{8}/p-\w{8}/kv/[0-9a-f]{40}\.kv\n", once)


def test_a_cut_hash_stays_the_beginning_of_the_whole_one():
    names = Pseudonyms(KEY)
    whole = "d974ebf9a6942658446dbf9019e4302c25777feb"
    for length in range(1, 41):
        assert names.hex(whole).startswith(names.hex(whole[:length]))
    assert names.path(f".../{whole[:8]}....kv") == f".../{names.hex(whole)[:8]}....kv"


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sets(st.integers(0, 2**32 - 1).map(lambda n: f"{n:08x}"), min_size=2, max_size=8))
def test_different_hashes_stay_different(hashes):
    names = Pseudonyms(KEY)
    assert len({names.hex(one) for one in hashes}) == len(hashes)


SECRETS = {
    "path": "0915 10:00:05 ds4-server: tracing session to /home/SECRET/SECRET dir/trace.txt",
    "kv dir": "0915 10:00:05 ds4-server: KV disk cache /Users/SECRET/my (SECRET) kv (budget=8 MiB, min=512)",
    "file": "0915 10:00:05 ds4-server: kv cache evicted reason=disk-cache-full tokens=5 hits=0 size=1.00 MiB"
            " file=/data/SECRET cache (old)/SECRET.kv",
    "errno": "0915 10:00:05 ds4-server: failed to create KV cache directory /SECRET/x: Permission denied",
    "load": "0915 10:00:05 ds4-server: kv cache load failed /SECRET/a b.kv: invalid header load=1.0 ms",
    "ids": "0915 10:00:05 ds4-server: tool calls ctx=0..9:9 n=1 raw_tool_text=1 ids=[call_SECRET1] names=[mcp__SECRET_x]",
    "cut list": "0915 10:00:05 ds4-server: tool calls ctx=0..9:9 n=2 ids=[call_1a2b3c4d] names=[SECRET_one,SECRET",
    "error": '0915 10:00:05 ds4-server: chat ctx=0..9:9 gen=7 finish=error error="SECRET failed at /SECRET" 1.0s',
    "snippet": "0915 10:00:05 ds4-server: chat ctx=0..9:9 TOOLS invalid tool call returned as assistant text finish=stop"
               " [text_len=9 saw_start=1 saw_end=0 text_snippet: SECRET\nSECRET\n0915 10:00:05 ds4-server: SECRET\nSECRET]",
    "dsml": "0915 10:00:05 ds4-server: chat ctx=0..9:9 TOOLS invalid tool call dsml_snippet: <SECRET>\n  SECRET\nSECRET",
    "syslog host": "Sep 15 10:00:01 SECRET-host ds4-server[41]: 0915 10:00:05 ds4-server: shutdown requested",
    "iso host": "2026-09-15T10:00:01+0200 SECRET.example.org ds4-server[41]: ds4-server: vision embedding cache hit",
    "engine host": "Sep 15 10:00:01 SECRET-host ds4: ds4: Linux rocm backend set oom_score_adj=1000",
    "container": "SECRET-1  | 0915 10:00:05 ds4-server: vision embedding cache hit",
    "tag": "[SECRET] 0915 10:00:05 ds4-server: vision embedding cache hit",
    "grep": "/home/SECRET/server.log:12:0915 10:00:05 ds4-server: vision embedding cache hit",
    "journald": json.dumps({"_HOSTNAME": "SECRET", "MESSAGE": "0915 10:00:05 ds4-server: tracing session to /SECRET"}),
    "model": "ds4: DSpark support model detected: /opt/SECRET/SECRET.gguf (stages=3 block=5)",
    "listening": "0915 10:00:05 ds4-server: listening on http://SECRET.lan:8000",
    "fork": "0915 10:00:05 ds4-server: tool parse recovered loose nested parameter name=SECRET by SECRET",
    "other program": "nginx: SECRET said SECRET to 10.0.0.1",
}  # fmt: skip


@pytest.mark.parametrize("what", SECRETS)
def test_nothing_private_is_left_in_a_log(what):
    text = LOGS[0].read_text() + SECRETS[what] + "\n" + LOGS[0].read_text()
    assert "SECRET" not in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "See https://SECRET.example.org/SECRET?x=1 and mail ann@SECRET.example.org or @SECRETperson.",
        "The cache is in `/home/SECRET/kv` and C:\\Users\\SECRET\\kv, run with --kv-disk-dir SECRET/kv -m SECRET.gguf.",
        "It answers 400 for toolu_SECRET1234, from 192.168.17.23.",
        "Sep 15 10:00:01 SECRET-host SECRETd[41]: SECRET said SECRET",
        "```\n===== request 9 2026-05-09 21:14:16 =====\nkind: chat\n\n--- raw request json ---\nSECRET\n"
        "--- generated text ---\nSECRET\n```",
        "```\n  27010 !=          live 33 \"SECRET\" | prompt 35 \"SECRET\"\n```",
    ],
)  # fmt: skip
def test_nothing_private_is_left_in_a_report(text):
    out = redacted(text, report=True)
    assert "SECRET" not in out and "192.168.17.23" not in out


def test_prose_and_figures_of_a_report_stay():
    text = (
        "Over 8 turns: 24–28 s/turn with `--batched-session 2` on an M4 Max; see #765 and antirez/ds4 main.\n"
    )
    assert redacted(text, report=True) == text


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=300))
def test_no_bytes_break_it(data):
    for report in (False, True):
        out = b"".join(redact([data], KEY, report=report))
        assert out.count(b"\n") == data.count(b"\n")


def test_it_reads_standard_input_and_writes_standard_output(monkeypatch):
    class Stream:
        def __init__(self, data=b""):
            self.buffer = io.BytesIO(data)

        def flush(self):
            pass

    out = Stream()
    monkeypatch.setattr(sys, "stdin", Stream(LOGS[0].read_bytes()))
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["redact", "-"]) == 0
    assert out.buffer.getvalue().count(b"\n") == LOGS[0].read_bytes().count(b"\n")


def test_the_input_is_never_overwritten(tmp_path, capsys):
    log = tmp_path / "server.log"
    log.write_bytes(LOGS[0].read_bytes())
    assert main(["redact", str(log), "-o", str(log)]) == 2
    assert "E-USAGE-OVERWRITE" in capsys.readouterr().err
    assert log.read_bytes() == LOGS[0].read_bytes()


def test_an_error_leaves_no_half_file(tmp_path, capsys):
    log = tmp_path / "server.log.gz"
    import gzip

    log.write_bytes(gzip.compress(LOGS[0].read_bytes())[:-100])
    assert main(["redact", str(log), "-o", str(tmp_path / "out.log")]) == 3
    assert "E-INPUT-DAMAGED" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["server.log.gz"]
