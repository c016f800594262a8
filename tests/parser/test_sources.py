"""Whatever INPUT names becomes the same bytes in bounded blocks, or a clear error with exit status 3."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from parser.errors import InputError
from parser.sources import find_sources, is_trace, iter_blocks, read_all, sha256

LOG = b"".join(
    b"0915 10:%02d:%02d ds4-server: chat ctx=0..%d:%d prompt start\n" % (n // 60 % 60, n % 60, n, n)
    for n in range(1, 400)
)


def only(path, **options):
    (source,) = find_sources([path])
    return read_all(source, **options)


def error_of(path, **options):
    with pytest.raises(InputError) as caught:
        only(path, **options)
    error = caught.value
    assert error.exit_code == 3 and error.hint and error.path
    assert str(path) in str(error)
    return error


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "server.log"
    path.write_bytes(LOG)
    return path


class Pipe:
    """Standard input that holds `data`."""

    def __init__(self, data):
        self.buffer = io.BytesIO(data)


@pytest.mark.parametrize(
    "pack",
    [
        lambda data: data,
        gzip.compress,
        lambda data: gzip.compress(data[:5000]) + gzip.compress(data[5000:]),  # two members
        zstandard.compress,
        lambda data: zstandard.compress(data[:5000]) + zstandard.compress(data[5000:]),  # two frames
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.decode().encode("utf-16"),
        lambda data: b"\xfe\xff" + data.decode().encode("utf-16-be"),
        lambda data: data.decode().encode("utf-16-le"),  # without a byte-order mark
        lambda data: gzip.compress(data.decode().encode("utf-16")),
    ],
    ids=[
        "plain",
        "gz",
        "gz-members",
        "zst",
        "zst-frames",
        "bom",
        "utf16",
        "utf16be",
        "utf16-no-bom",
        "gz-utf16",
    ],
)
def test_every_packing_and_encoding_gives_the_same_bytes(tmp_path, monkeypatch, pack):
    path = tmp_path / "any-name"  # told by content, not by name
    path.write_bytes(pack(LOG))
    assert only(path) == LOG
    monkeypatch.setattr(sys, "stdin", Pipe(pack(LOG)))
    assert only("-") == LOG


def test_a_named_pipe_is_read(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    if os.fork() == 0:
        path.write_bytes(LOG)
        os._exit(0)
    assert only(path) == LOG


@given(
    st.lists(
        st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"") + b"\n"), min_size=1, max_size=60
    ),
    st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")),
    st.integers(1, 200),
)
def test_blocks_end_at_lines_and_join_to_the_input(tmp_path_factory, lines, cut_line, block_bytes):
    data = b"ds4-server: \n" + b"".join(lines) + cut_line
    path = tmp_path_factory.mktemp("blocks") / "server.log"
    path.write_bytes(data)
    (source,) = find_sources([path])
    blocks = list(iter_blocks(source, block_bytes=block_bytes))
    assert b"".join(block.data for block in blocks) == data
    assert all(block.data.endswith(b"\n") for block in blocks[:-1])
    for block in blocks:
        assert block.line == data[: block.offset].count(b"\n") + 1
        assert data[block.offset :].startswith(block.data)
    assert sum(block.lines for block in blocks) == data.count(b"\n") + (not data.endswith(b"\n"))


def test_bad_bytes_nul_and_carriage_returns_are_kept(tmp_path):
    data = b"\0\0\0\0" + LOG[:200] + b"\xff\xfe\x80 broken\r\n" + LOG
    path = tmp_path / "server.log"
    path.write_bytes(data)
    assert only(path) == data


def test_a_log_truncated_in_place_begins_with_zeros(tmp_path):
    path = tmp_path / "server.log"
    path.write_bytes(b"\0" * 1_000_000 + LOG)
    assert only(path).lstrip(b"\0") == LOG


def test_a_very_long_line_is_one_line(tmp_path):
    path = tmp_path / "server.log"
    path.write_bytes(LOG + b"x" * 9_000_000 + b"\n" + LOG)
    (source,) = find_sources([path])
    longest = max(iter_blocks(source), key=lambda block: len(block.data))
    assert b"x" * 9_000_000 in longest.data
    assert sum(block.lines for block in iter_blocks(source)) == 2 * 399 + 1


def test_rotated_sets_are_read_oldest_first(tmp_path):
    names = ["server.log", "server.log.1", "server.log.2.gz", "server.log.10.gz", "other.log"]
    for name in names:
        data = LOG + name.encode() + b"\n"
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    found = find_sources([tmp_path / name for name in names])
    assert [os.path.basename(source.name) for source in found] == [
        "server.log.10.gz", "server.log.2.gz", "server.log.1", "server.log", "other.log",
    ]  # fmt: skip
    assert [source.index for source in found] == [0, 1, 2, 3, 4]


def test_dated_sets_are_read_by_date(tmp_path):
    for name in ["a.log", "a.log-20260902", "a.log-20260901.zst"]:
        (tmp_path / name).write_bytes(zstandard.compress(LOG) if name.endswith("zst") else LOG)
    found = [os.path.basename(source.name) for source in find_sources([tmp_path])]
    assert found == ["a.log-20260901.zst", "a.log-20260902", "a.log"]


def test_a_directory_gives_its_logs_and_nothing_else(log, tmp_path):
    (tmp_path / "trace.txt").write_text(
        "\n===== request 1 2026-09-15 10:00:01 =====\nkind: chat\nds4-server: x\n"
    )
    (tmp_path / "client.jsonl").write_text('{"text": "ds4-server: x ctx=0..1:1"}\n')
    (tmp_path / "notes.txt").write_text("nothing of interest\n")
    (tmp_path / ".hidden.log").write_bytes(LOG)
    (tmp_path / "empty.log").write_bytes(b"")
    (tmp_path / "model.gguf").write_bytes(b"GGUF\0\0\0ds4-server: ")
    (tmp_path / "deeper").mkdir()
    assert [source.path for source in find_sources([tmp_path])] == [log]


def test_a_trace_is_told_from_a_log(tmp_path, log):
    trace = tmp_path / "trace.txt"
    trace.write_text("\n===== request 1 2026-09-15 10:00:01 =====\nkind: chat\n")
    assert is_trace(find_sources([trace])[0])
    assert not is_trace(find_sources([log])[0])


def test_sha256_is_that_of_the_stored_bytes(log, monkeypatch):
    assert sha256(find_sources([log])[0]) == hashlib.sha256(LOG).hexdigest()
    monkeypatch.setattr(sys, "stdin", Pipe(gzip.compress(LOG, mtime=0)))
    assert sha256(find_sources(["-"])[0]) == hashlib.sha256(gzip.compress(LOG, mtime=0)).hexdigest()


def test_a_long_pipe_passes_once(monkeypatch):
    monkeypatch.setattr(sys, "stdin", Pipe(LOG * 500))
    (source,) = find_sources(["-"])
    assert read_all(source) == LOG * 500
    assert sha256(source) is None
    with pytest.raises(InputError, match="read already"):
        read_all(source)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "E-INPUT-EMPTY"),
        (b"\n \n\0\0", "E-INPUT-EMPTY"),
        (gzip.compress(b"", mtime=0), "E-INPUT-EMPTY"),
        (bytes(range(256)) * 50, "E-INPUT-BINARY"),
        (b"GGUF\x03\0\0\0", "E-INPUT-BINARY"),
        (b"\x7fELF" + bytes(64), "E-INPUT-BINARY"),
        (b"PK\x03\x04", "E-INPUT-BINARY"),
        (gzip.compress(LOG, mtime=0)[:-20], "E-INPUT-DAMAGED"),
        (gzip.compress(LOG, mtime=0)[:200] + b"garbage" * 20, "E-INPUT-DAMAGED"),
        (zstandard.compress(LOG)[:100] + b"garbage" * 20, "E-INPUT-DAMAGED"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path, data, code):
    path = tmp_path / "input"
    path.write_bytes(data)
    assert error_of(path).code == code


def test_missing_files_and_directories_without_logs_are_refused(tmp_path):
    assert error_of(tmp_path / "nowhere.log").code == "E-INPUT-MISSING"
    assert error_of(tmp_path).code == "E-INPUT-NO-LOGS"
    assert error_of("bad\0name").code == "E-INPUT-UNREADABLE"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_are_refused(log):
    log.chmod(0)
    assert error_of(log).code == "E-INPUT-UNREADABLE"


def test_a_bomb_is_refused_and_named(tmp_path):
    path = tmp_path / "bomb.log.gz"
    with gzip.open(path, "wb", compresslevel=9) as bomb:
        for _ in range(80):
            bomb.write(b"ds4-server: " + b"a" * 1_048_564 + b"\n")
    error = error_of(path)
    assert error.code == "E-INPUT-TOO-LONG" and "--max-bytes" in error.hint
    assert len(only(path, max_bytes=200_000_000)) > 64 << 20  # asked for, it is read


def test_a_bomb_of_zeros_is_refused(tmp_path):
    path = tmp_path / "zeros.gz"
    with gzip.open(path, "wb", compresslevel=1) as bomb:
        for _ in range(80):
            bomb.write(bytes(1 << 20))
    assert error_of(path).code == "E-INPUT-TOO-LONG"


def test_max_bytes_bounds_plain_input_as_well(log):
    assert error_of(log, max_bytes=1000).code == "E-INPUT-TOO-LONG"
    assert only(log, max_bytes=len(LOG)) == LOG
