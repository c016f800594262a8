"""A KV directory is read by its 48-byte headers, whatever lies in it."""

import struct

import pytest

from parser.errors import InputError
from triage.kvdir import HEADER, read_directory

NAME = "0" * 39


def header(tokens=10240, hits=3, ctx=65536, reason=1, version=1, payload=100):
    return HEADER.pack(b"KVC", version, 2, reason, 0, 7, tokens, hits, ctx, 2, 1000, 2000, payload)


def test_fields_stand_where_the_server_writes_them():
    head = header()
    assert len(head) == 48
    assert struct.unpack_from("<I", head, 8) == (10240,)
    assert struct.unpack_from("<Q", head, 24) == (1000,)
    assert struct.unpack_from("<Q", head, 40) == (100,)


def test_only_checkpoints_are_counted(tmp_path):
    (tmp_path / f"{NAME}1.kv").write_bytes(header() + b"\0" * 200)
    (tmp_path / f"{NAME}2.kv").write_bytes(header(version=9) + b"\0" * 200)  # a version nobody reads
    (tmp_path / f"{NAME}3.kv").write_bytes(header() + b"\0" * 10)  # shorter than its header says
    (tmp_path / f"{NAME}4.kv").write_bytes(b"KVC")
    (tmp_path / "notes.kv").write_bytes(header() + b"\0" * 200)
    (tmp_path / f"{NAME}5.kv").symlink_to("/etc/passwd")
    found = read_directory(str(tmp_path))
    assert [c.valid for c in found] == [True, False, False]
    assert (found[0].tokens, found[0].hits, found[0].reason) == (10240, 3, "cold")


def test_a_directory_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot list"):
        read_directory(str(tmp_path / "nowhere"))
