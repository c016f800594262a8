"""INPUT -> sources -> blocks: files, standard input, rotated sets, directories; packed or not, UTF-8, UTF-16.

Nothing here knows what a line means. `find_sources` settles what is read and in which order, `iter_blocks`
gives the bytes as blocks cut at line ends. A path that stands inside a log is never opened.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from parser.errors import InputError
from parser.unpack import Pipe, Source, first_bytes, lines_of, stored, unreadable

__all__ = [
    "Block",
    "Source",
    "find_sources",
    "is_trace",
    "iter_blocks",
    "nothing_found",
    "read_all",
    "sha256",
]

STDIN: Final = "-"
BLOCK_BYTES: Final = 4 << 20
PIPE_BYTES: Final = 4 << 20  # a pipe that ends within this can be read twice

_PACKED: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_REFUSED: Final = {
    b"\xfd7zXZ": ("an xz archive", "unpack it first: xz -dk FILE"),
    b"BZh": ("a bzip2 archive", "unpack it first: bunzip2 -k FILE"),
    b"PK\x03\x04": ("a zip archive", "unpack it first: unzip FILE"),
    b"GGUF": ("a model file", "name the log that ds4-server wrote to stderr"),
    b"\x7fELF": ("a program", "name the log that ds4-server wrote to stderr"),
    b"%PDF": ("a PDF document", "copy its log lines into a text file"),
    b"\x89PNG": ("an image", "paste the log as text: a picture of a log cannot be read"),
}
_SERVER_TEXT: Final = re.compile(
    rb"ds4-(?:server|agent): |\bctx=\d+\.\.\d+:\d+|kv cache (?:miss|stored|hit|evicted)|KV disk cache "
)
_TRACE_HEAD: Final = re.compile(rb"\s*===== request \d+ \d{4}-\d\d-\d\d ")
_ROTATED: Final = re.compile(
    r"(?P<base>.+?)(?:[.-](?P<date>\d{4}-?\d\d-?\d\d(?:[-_T]?\d{2,6})?))?(?:\.(?P<number>\d{1,4}))?"
    r"(?:\.gz|\.zst|\.xz|\.bz2|\.zip)?"
)


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of one source: `data` is UTF-8 (bad bytes are kept), the last block may lack its line end.

    `offset` is the place of its first byte in the unpacked, UTF-8 source; `line` is the 1-based number of its
    first line, `lines` how many it holds (both 0 where lines were not counted).
    """

    source: int
    data: bytes
    offset: int
    line: int
    lines: int


def find_sources(inputs: Sequence[str | os.PathLike[str] | Source]) -> list[Source]:
    """What INPUT names, in reading order: rotated sets oldest first, a directory's logs by name.

    Sources that were found before stay as they are (a pipe can be looked at only once).
    Raises InputError for a path that is missing, unreadable, empty, binary, or a directory without logs.
    """
    if not inputs:
        hint = "name a log file, a directory, or - for stdin"
        raise InputError("E-INPUT-NONE", "no input is named", hint=hint)
    found = [one for one in inputs if isinstance(one, Source)]
    for path in _in_order([os.fspath(one) for one in inputs if not isinstance(one, Source)]):
        if path and path != STDIN and Path(path).is_dir():
            found.extend(_logs_of(Path(path), len(found)))
        else:
            found.append(_look(path, len(found)))
    return found


def iter_blocks(
    source: Source,
    *,
    block_bytes: int = BLOCK_BYTES,
    max_bytes: int | None = None,
    count_lines: bool = True,
) -> Iterator[Block]:
    """The source as blocks of about `block_bytes`, cut at line ends; memory holds one block and one line.

    `max_bytes` bounds the unpacked bytes (default: none for a plain file, 4 GiB and a ratio of 300 for a
    packed one). Raises InputError beyond it, for a line above 256 MiB, and for damaged packed data.
    """
    offset, line = 0, int(count_lines)
    for data in lines_of(source, block_bytes, max_bytes):
        if offset == 0 and data.startswith(codecs.BOM_UTF8):
            offset, data = len(codecs.BOM_UTF8), data[len(codecs.BOM_UTF8) :]
        lines = data.count(b"\n") + (not data.endswith(b"\n")) if count_lines else 0
        yield Block(source.index, data, offset, line, lines)
        offset, line = offset + len(data), line + lines


def read_all(source: Source, *, max_bytes: int | None = None) -> bytes:
    """The whole source, unpacked, as UTF-8 bytes (for reports, which are short)."""
    return b"".join(block.data for block in iter_blocks(source, max_bytes=max_bytes, count_lines=False))


def sha256(source: Source) -> str | None:
    """SHA-256 (hex) of the input as stored, as `sha256sum` prints it; None for a pipe too long to keep."""
    if source.pipe is not None and not source.pipe.ended:
        return None
    digest = hashlib.sha256()
    with stored(source) as raw:
        while chunk := raw.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def is_trace(source: Source) -> bool:
    """True where the head is that of a `--trace` file, not of a log."""
    return _TRACE_HEAD.match(source.head) is not None


def nothing_found(names: Sequence[str]) -> InputError:
    """The error for inputs in which no line is ds4-server's: a log of another program, or prose."""
    return InputError(
        "E-INPUT-FOREIGN",
        "nothing in it was printed by ds4-server",
        path=", ".join(names),
        hint="name the file that holds ds4-server's stderr (its lines read `MMDD HH:MM:SS ds4-server: …`)",
    )


# -- which files, and in which order ------------------------------------------------------------------------


def _in_order(paths: list[str]) -> list[str]:
    """Parts of one rotated set stand together, oldest first; everything else keeps its place."""
    sets: dict[tuple[Path, str], list[str]] = {}
    for path in _once(paths):
        sets.setdefault(_set_of(path), []).append(path)
    return [path for members in sets.values() for path in sorted(members, key=_age)]


def _once(paths: list[str]) -> list[str]:
    """Each file once, whatever names it is given by (a link beside the log that it leads to)."""
    files: dict[str, str] = {}
    for path in paths:
        whole = path if path == STDIN or "\0" in path else os.path.realpath(path)
        files.setdefault(whole, path)
    return list(files.values())


def _set_of(path: str) -> tuple[Path, str]:
    """What the parts of one rotated set have in common."""
    match = _ROTATED.fullmatch(Path(path).name)
    return Path(path).parent, match["base"] if match else Path(path).name


def _age(path: str) -> tuple[int, str, int]:
    """Sort key, oldest first: dated parts by date, then `.9` … `.1`, then the file still written to."""
    match = _ROTATED.fullmatch(Path(path).name)
    if match is None:
        return (2, "", 0)
    if match["date"]:
        return (0, re.sub(r"\D", "", match["date"]), -int(match["number"] or 0))
    return (1, "", -int(match["number"])) if match["number"] else (2, "", 0)


def _logs_of(folder: Path, first: int) -> list[Source]:
    """The files right in a directory that hold lines of ds4-server; traces and hidden files are left out."""
    try:
        names = sorted(str(one) for one in folder.iterdir() if not one.name.startswith("."))
    except OSError as error:
        raise unreadable(str(folder), error) from None
    found: list[Source] = []
    refused: list[tuple[str, InputError]] = []
    for path in _in_order(names):
        try:
            source = _log_or_none(path, first + len(found))
        except InputError as error:
            refused.append((path, error))
            continue
        if source is not None:
            found.append(source)
    sets = {_set_of(source.name) for source in found}
    for path, why in refused:
        if _set_of(path) in sets or (not found and why.code == "E-INPUT-UNREADABLE"):
            raise why  # without this part the log is not whole; any other file is none of our business
    if not found:
        raise InputError(
            "E-INPUT-NO-LOGS",
            "no file in this directory holds lines of ds4-server",
            path=str(folder),
            hint="name the log itself, or the directory it stands in (sub-directories are not searched)",
        )
    return found


def _log_or_none(path: str, index: int) -> Source | None:
    """The source where it is a log. Raises InputError for what cannot be looked at."""
    if not Path(path).is_file():
        return None
    try:
        source = _look(path, index)
    except InputError as error:
        if error.code == "E-INPUT-EMPTY":
            return None
        raise
    return (
        source
        if _SERVER_TEXT.search(source.head) and not is_trace(source) and not _is_table(source)
        else None
    )


def _is_table(source: Source) -> bool:
    """True for JSON that is not journald's: requests of a client, truth tables, our own exports."""
    return source.name.endswith((".json", ".jsonl", ".ndjson")) and b'"MESSAGE"' not in source.head


# -- looking at one input -----------------------------------------------------------------------------------


def _look(path: str, index: int) -> Source:
    if path == STDIN:
        return _sniffed(Source(index, "<stdin>", pipe=_pipe(_stdin())))
    try:
        info = os.stat(path)  # noqa: PTH116 - to Path an empty name is this directory
        if stat.S_ISREG(info.st_mode):
            found = Source(index, path, path=Path(path), size=info.st_size, mtime=info.st_mtime)
        else:
            found = Source(index, path, pipe=_pipe(Path(path).open("rb")))  # noqa: SIM115 - read later
    except FileNotFoundError:
        hint = "check the name; - reads standard input"
        path = path or "(an empty name)"
        raise InputError("E-INPUT-MISSING", "no such file", path=path, hint=hint) from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    return _sniffed(found)


def _stdin() -> IO[bytes]:
    if sys.stdin is None:
        hint = "name a file, or redirect one: < FILE"
        raise InputError("E-INPUT-UNREADABLE", "standard input is closed", path="<stdin>", hint=hint)
    return sys.stdin.buffer


def _pipe(stream: IO[bytes]) -> Pipe:
    parts: list[bytes] = []
    wanted = PIPE_BYTES
    while wanted > 0 and (part := stream.read(wanted)):
        parts.append(part)
        wanted -= len(part)
    return Pipe(stream, b"".join(parts), ended=wanted > 0)


def _sniffed(source: Source) -> Source:
    """The source with packing, encoding and head filled in; raises for what cannot be a log."""
    head = first_bytes(source)
    for magic, (what, hint) in _REFUSED.items():
        if head.startswith(magic):
            raise InputError("E-INPUT-BINARY", f"this is {what}, not a log", path=source.name, hint=hint)
    packing = next((name for magic, name in _PACKED.items() if head.startswith(magic)), "plain")
    if packing != "plain":
        source = replace(source, packing=packing)
        head = first_bytes(source)
    if not head.strip(b"\0\r\n\t "):
        hint = "was stderr redirected to it? ds4-server logs to stderr"
        raise InputError("E-INPUT-EMPTY", "the input is empty", path=source.name, hint=hint)
    encoding = _encoding(head)
    text = _as_utf8(head, encoding)
    if _is_binary(text):
        hint = "name the file that holds ds4-server's stderr"
        raise InputError("E-INPUT-BINARY", "binary data, not a log", path=source.name, hint=hint)
    return replace(source, encoding=encoding, head=text)


def _encoding(head: bytes) -> str:
    """By byte-order mark, else by where the zero bytes of mostly-ASCII text stand."""
    if head.startswith(codecs.BOM_UTF16_LE):
        return "utf-16-le"
    if head.startswith(codecs.BOM_UTF16_BE):
        return "utf-16-be"
    look = head[:4096]
    half = max(1, len(look) // 2)
    even, odd = look[0::2].count(0) / half, look[1::2].count(0) / half
    if odd > 0.4 and even < 0.05:
        return "utf-16-le"
    return "utf-16-be" if even > 0.4 and odd < 0.05 else "utf-8"


def _as_utf8(head: bytes, encoding: str) -> bytes:
    if encoding == "utf-8":
        return head.removeprefix(codecs.BOM_UTF8)
    return head.decode(encoding, "replace").removeprefix("\ufeff").encode("utf-8", "replace")


def _is_binary(head: bytes) -> bool:
    """Mostly control bytes or broken UTF-8, and nothing of ds4-server among it. NULs alone prove nothing."""
    text = head.replace(b"\0", b"")
    if _SERVER_TEXT.search(text):
        return False
    control = len(text.translate(None, bytes(range(32, 256)) + b"\t\n\r\x1b\x08\x0c"))
    broken = text.decode("utf-8", "replace").count("\ufffd")
    return control + broken > 0.2 * len(text)
