"""A KV directory by its headers only: 48 bytes a file (R4.2), never the text or the payload behind them."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from parser.errors import InputError

HEADER: Final = struct.Struct("<3sBBBBBIIIB3xQQQ")
REASONS: Final = ("unknown", "cold", "continued", "evict", "shutdown", "agent-system", "agent-session")
_NAME: Final = re.compile(r"[0-9a-f]{40}\.kv")
_QUANTS: Final = frozenset({2, 4, 5, 6, 8})
_ABI: Final = 2
#: files looked at; a directory with more is told so
MOST: Final = 100_000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One file: tokens, hits, sizes in bytes, times in epoch seconds. `valid` as R4.3 counts it."""

    tokens: int
    hits: int
    ctx: int
    quant: int
    model: int
    reason: str
    created: int
    last_used: int
    file_bytes: int
    valid: bool


def read_directory(path: str) -> list[Checkpoint]:
    """The checkpoints of a directory that the user named. Raises `InputError` if it cannot be listed."""
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(
            "E-KVDIR", f"cannot list: {error.strerror}", path=path, hint="give the --kv-disk-dir"
        ) from error
    named = [e for e in entries if _NAME.fullmatch(e.name) and e.is_file(follow_symlinks=False)]
    return list(_headers(named[:MOST]))


def _headers(entries: list[os.DirEntry[str]]) -> Iterator[Checkpoint]:
    for entry in entries:
        try:
            with Path(entry.path).open("rb", buffering=0) as file:  # a buffer would read on, into the text
                head = file.read(HEADER.size)
            size = entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # deleted by the running server between listing and reading
        if len(head) == HEADER.size:
            yield checkpoint(head, size)


def checkpoint(head: bytes, file_bytes: int) -> Checkpoint:
    """The header's fields; `head` has 48 bytes."""
    magic, version, quant, reason, _flags, model, tokens, hits, ctx, abi, created, used, payload = (
        HEADER.unpack(head)
    )
    valid = (
        (magic, version, abi) == (b"KVC", 1, _ABI)
        and tokens > 0
        and quant in _QUANTS
        and file_bytes >= HEADER.size + 4 + payload
    )
    name = REASONS[reason] if reason < len(REASONS) else "unknown"
    return Checkpoint(tokens, hits, ctx, quant, model, name, created, used, file_bytes, valid)
