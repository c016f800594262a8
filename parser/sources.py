"""INPUT -> bytes: files, standard input, rotated sets, directories; plain, gzip, zstd; UTF-8 and UTF-16.

Nothing here knows what a line means. `find_sources` settles what is read and in which order, `iter_blocks` gives
its unpacked bytes as blocks cut at line ends. A path that stands inside a log is never opened.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from parser.errors import InputError

STDIN: Final = "-"
BLOCK_BYTES: Final = 4 << 20
HEAD_BYTES: Final = 256 << 10  # what is looked at to tell packing, encoding and kind
PIPE_BYTES: Final = 4 << 20  # a pipe that ends within this can be read twice
MAX_LINE_BYTES: Final = 256 << 20
MAX_UNPACKED_BYTES: Final = 4 << 30  # default for packed input; plain files are as long as they are
BOMB_RATIO: Final = 300  # a packed log of real traffic shrinks to between 1/8 and 1/60
BOMB_BYTES: Final = 64 << 20  # below this a ratio says nothing

_PACKED: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_REFUSED: Final = {
    b"\xfd7zXZ": ("an xz archive", "unpack it first: xz -dk FILE"),
    b"BZh": ("a bzip2 archive", "unpack it first: bunzip2 -k FILE"),
    b"PK\x03\x04": ("a zip archive", "unpack it first: unzip FILE"),
    b"GGUF": ("a model file", "name the log that ds4-server wrote to stderr"),
    b"KVC": ("a disk-cache file", "name the log that ds4-server wrote to stderr"),
    b"\x7fELF": ("a program", "name the log that ds4-server wrote to stderr"),
    b"%PDF": ("a PDF document", "copy its log lines into a text file"),
    b"\x89PNG": ("an image", "paste the log as text: a picture of a log cannot be read"),
}
_SERVER_TEXT: Final = re.compile(
    rb"ds4-(?:server|agent): |\bctx=\d+\.\.\d+:\d+|kv cache (?:miss|stored|hit|evicted|skipped)\b|KV disk cache "
)
_TRACE_HEAD: Final = re.compile(rb"^===== request \d+ \d{4}-", re.MULTILINE)
_ROTATED: Final = re.compile(
    r"(?P<base>.+?)(?:[.-](?P<date>\d{4}-?\d\d-?\d\d(?:[-_T]?\d{2,6})?))?(?:\.(?P<number>\d{1,4}))?"
    r"(?P<pack>\.gz|\.zst)?"
)


@dataclass(slots=True)
class _Pipe:
    """Standard input or a named pipe: its first bytes are kept, the rest passes once."""

    stream: BinaryIO
    head: bytes
    ended: bool
    spent: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """One input. `index` is its place in reading order and the `source` of its lines and events.

    `name` is what errors and reports show; `path` is None for standard input. `packing` is "plain", "gzip" or
    "zstd"; `encoding` is "utf-8", "utf-16-le" or "utf-16-be". `size` (bytes as stored) and `mtime` (Unix seconds)
    are None for pipes. `head` is the unpacked, UTF-8 start of the input (at most 256 KiB), for looking at.
    """

    index: int
    name: str
    path: Path | None
    packing: str
    encoding: str
    size: int | None
    mtime: float | None
    head: bytes
    pipe: _Pipe | None = None

    @property
    def is_trace(self) -> bool:
        """True where the head is that of a `--trace` file, not of a log."""
        found = _TRACE_HEAD.search(self.head)
        return found is not None and not self.head[: found.start()].strip()


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of one source: `data` is UTF-8 (bad bytes are kept) and ends with a line end, but for the last.

    `offset` is the place of its first byte in the unpacked, UTF-8 source; `line` is the 1-based number of its first
    line, `lines` how many it holds (0 and 0 where `count_lines` was off).
    """

    source: int
    data: bytes
    offset: int
    line: int
    lines: int


def find_sources(inputs: Sequence[str | os.PathLike[str]]) -> list[Source]:
    """What INPUT names, in reading order: rotated sets oldest first, a directory's logs by name.

    Raises InputError for a path that is missing, unreadable, empty, binary, or a directory without logs.
    """
    if not inputs:
        raise InputError(
            "E-INPUT-NONE", "no input is named", hint="name a log file, a directory, or - for stdin"
        )
    found: list[Source] = []
    for path in _in_order([os.fspath(one) for one in inputs]):
        if path != STDIN and os.path.isdir(path):
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

    `max_bytes` bounds the unpacked bytes (default: none for a plain file, 4 GiB and a ratio of 300 for a packed
    one). Raises InputError beyond it, for a line above 256 MiB, and for damaged packed data.
    """
    offset, line = (3 if _has_bom(source) else 0), 1
    for data in _cut_at_lines(_decoded(source, block_bytes, max_bytes), source):
        lines = data.count(b"\n") + (not data.endswith(b"\n")) if count_lines else 0
        yield Block(source.index, data, offset, line if count_lines else 0, lines)
        offset, line = offset + len(data), line + lines


def read_all(source: Source, *, max_bytes: int | None = None) -> bytes:
    """The whole source, unpacked, as UTF-8 bytes (for reports, which are short)."""
    return b"".join(block.data for block in iter_blocks(source, max_bytes=max_bytes, count_lines=False))


def sha256(source: Source) -> str | None:
    """SHA-256 (hex) of the input as stored, as `sha256sum` prints it; None for a pipe that was too long to keep."""
    if source.pipe is not None:
        return hashlib.sha256(source.pipe.head).hexdigest() if source.pipe.ended else None
    with _open(source) as raw:
        return hashlib.file_digest(raw, "sha256").hexdigest()


def nothing_found(sources: Sequence[Source]) -> InputError:
    """The error for inputs in which no line is ds4-server's: a log of another program, or prose."""
    names = ", ".join(source.name for source in sources)
    return InputError(
        "E-INPUT-FOREIGN",
        "nothing in it was printed by ds4-server",
        path=names,
        hint="name the file that holds ds4-server's stderr (its lines read `MMDD HH:MM:SS ds4-server: …`)",
    )


# -- which files, and in which order ---------------------------------------------------------------------------


def _in_order(paths: list[str]) -> list[str]:
    """Parts of one rotated set stand together, oldest first; everything else keeps its place."""
    sets: dict[str, list[str]] = {}
    for path in dict.fromkeys(paths):
        sets.setdefault(_base(path), []).append(path)
    return [path for members in sets.values() for path in sorted(members, key=_age)]


def _base(path: str) -> str:
    match = _ROTATED.fullmatch(os.path.basename(path))
    return os.path.join(os.path.dirname(path), match["base"]) if match else path


def _age(path: str) -> tuple[int, str, int]:
    """Sort key, oldest first: dated parts by date, then `.9` … `.1`, then the file still written to."""
    match = _ROTATED.fullmatch(os.path.basename(path))
    if match is None:
        return (2, "", 0)
    if match["date"]:
        return (0, re.sub(r"\D", "", match["date"]), -int(match["number"] or 0))
    return (1, "", -int(match["number"])) if match["number"] else (2, "", 0)


def _logs_of(folder: Path, first: int) -> list[Source]:
    """The files directly in a directory that hold lines of ds4-server; trace files and hidden ones are left out."""
    found: list[Source] = []
    for path in _in_order(sorted(os.fspath(one) for one in _listed(folder) if not one.name.startswith("."))):
        if not Path(path).is_file():
            continue
        try:
            source = _look(path, first + len(found))
        except InputError:
            continue  # empty, binary or unreadable: not a log; the error below tells when nothing is left
        if _SERVER_TEXT.search(source.head) and not source.is_trace and not _is_records(source):
            found.append(source)
    if not found:
        raise InputError(
            "E-INPUT-NO-LOGS",
            "no file in this directory holds lines of ds4-server",
            path=os.fspath(folder),
            hint="name the log itself, or the directory it stands in (sub-directories are not searched)",
        )
    return found


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise _unreadable(os.fspath(folder), error) from None


def _is_records(source: Source) -> bool:
    """True for JSON lines that are not journald's: requests of a client, truth tables, exports of ours."""
    return source.head.lstrip()[:1] in (b"{", b"[") and source.name.endswith((".json", ".jsonl", ".ndjson"))


# -- looking at one input --------------------------------------------------------------------------------------


def _look(path: str, index: int) -> Source:
    if path == STDIN:
        return _sniffed(_plain(index, "<stdin>", None, None, None, _pipe(sys.stdin.buffer)))
    try:
        info = os.stat(path)
    except FileNotFoundError:
        raise InputError(
            "E-INPUT-MISSING", "no such file", path=path, hint="check the name; - reads standard input"
        ) from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if stat.S_ISREG(info.st_mode):
        return _sniffed(_plain(index, path, Path(path), info.st_size, info.st_mtime, None))
    try:
        pipe = _pipe(open(path, "rb"))
    except OSError as error:
        raise _unreadable(path, error) from None
    return _sniffed(_plain(index, path, None, None, None, pipe))


def _plain(
    index: int, name: str, path: Path | None, size: int | None, mtime: float | None, pipe: _Pipe | None
) -> Source:
    return Source(index, name, path, "plain", "utf-8", size, mtime, b"", pipe)


def _pipe(stream: BinaryIO) -> _Pipe:
    parts, wanted = [], PIPE_BYTES
    while wanted > 0 and (part := stream.read(wanted)):
        parts.append(part)
        wanted -= len(part)
    return _Pipe(stream, b"".join(parts), wanted > 0)


def _sniffed(source: Source) -> Source:
    """The source with packing, encoding and head filled in; raises for what cannot be a log."""
    stored = _first(source)
    if not stored:
        raise InputError(
            "E-INPUT-EMPTY", "the input is empty", path=source.name, hint="was stderr redirected to the file?"
        )
    packing = next((name for magic, name in _PACKED.items() if stored.startswith(magic)), "plain")
    refused = next((why for magic, why in _REFUSED.items() if stored.startswith(magic)), None)
    if refused:
        raise InputError(
            "E-INPUT-BINARY", f"this is {refused[0]}, not a log", path=source.name, hint=refused[1]
        )
    source = _with(source, packing=packing)
    unpacked = _first(source) if packing != "plain" else stored
    source = _with(source, encoding=_encoding(unpacked))
    head = _head_text(unpacked, source.encoding)
    if not unpacked or _is_binary(head):
        raise InputError(
            "E-INPUT-BINARY" if unpacked else "E-INPUT-EMPTY",
            "binary data, not a log" if unpacked else "the input is empty",
            path=source.name,
            hint="name the file that holds ds4-server's stderr",
        )
    return _with(source, head=head)


def _with(source: Source, *, packing: str = "", encoding: str = "", head: bytes = b"") -> Source:
    """A copy with some fields filled in (dataclasses.replace would import `copy` and re-check all of them)."""
    return Source(
        source.index, source.name, source.path, packing or source.packing, encoding or source.encoding,
        source.size, source.mtime, head or source.head, source.pipe,
    )  # fmt: skip


def _first(source: Source) -> bytes:
    """The first bytes (unpacked, not decoded); NULs that a truncated-in-place log begins with are skipped."""
    with _open(source, looking=True) as raw, _unpacked(raw, source) as stream:
        try:
            head = stream.read(HEAD_BYTES)
            while head and not head.strip(b"\0") and (more := stream.read(HEAD_BYTES)):
                head = head[-2:] + more
        except (OSError, EOFError, ValueError) as error:
            raise _unreadable(source.name, error) from None
    return head


def _encoding(head: bytes) -> str:
    if head.startswith(codecs.BOM_UTF16_LE):
        return "utf-16-le"
    if head.startswith(codecs.BOM_UTF16_BE):
        return "utf-16-be"
    even, odd = head[0:4096:2].count(0), head[1:4096:2].count(0)
    half = max(1, min(len(head), 4096) // 2)
    if odd > 0.4 * half and even < 0.05 * half:
        return "utf-16-le"
    return "utf-16-be" if even > 0.4 * half and odd < 0.05 * half else "utf-8"


def _head_text(head: bytes, encoding: str) -> bytes:
    if encoding == "utf-8":
        return head.removeprefix(codecs.BOM_UTF8)
    return head.decode(encoding, "replace").lstrip("\ufeff").encode("utf-8", "replace")


def _is_binary(head: bytes) -> bool:
    """Mostly control bytes or broken UTF-8, and nothing of ds4-server among it. NULs alone prove nothing."""
    text = head.replace(b"\0", b"")
    if not text:
        return bool(head)
    if _SERVER_TEXT.search(text):
        return False
    control = len(text.translate(None, bytes(range(32, 256)) + b"\t\n\r\x1b\x08\x0c"))
    broken = text.decode("utf-8", "replace").count("\ufffd")
    return control + broken > 0.2 * len(text)


# -- bytes -----------------------------------------------------------------------------------------------------


class _Kept(io.RawIOBase):
    """The kept start of a pipe, then the rest of it."""

    def __init__(self, pipe: _Pipe) -> None:
        self._parts: list[BinaryIO] = [io.BytesIO(pipe.head)] + ([] if pipe.ended else [pipe.stream])

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while self._parts:
            data = self._parts[0].read(len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)
            self._parts.pop(0)
        return 0


def _open(source: Source, *, looking: bool = False) -> BinaryIO:
    if source.path is not None:
        try:
            return open(source.path, "rb", buffering=0)  # type: ignore[return-value]
        except OSError as error:
            raise _unreadable(source.name, error) from None
    pipe = source.pipe
    assert pipe is not None
    if looking or pipe.ended:
        return io.BytesIO(pipe.head)
    if pipe.spent:
        raise InputError(
            "E-INPUT-ONCE",
            "this pipe was read already",
            path=source.name,
            hint="save it to a file and name that",
        )
    pipe.spent = True
    return io.BufferedReader(_Kept(pipe), 1 << 20)


def _unpacked(raw: BinaryIO, source: Source) -> BinaryIO:
    if source.packing == "gzip":
        import gzip

        return gzip.GzipFile(fileobj=raw, mode="rb")
    if source.packing == "zstd":
        import zstandard

        return zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
    return raw


def _decoded(source: Source, block_bytes: int, max_bytes: int | None) -> Iterator[bytes]:
    chunks = _bounded(source, block_bytes, max_bytes)
    if source.encoding == "utf-8":
        first = next(chunks, b"")
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(source.encoding)("replace")
    first_text = decoder.decode(next(chunks, b"")).removeprefix("\ufeff")
    yield first_text.encode("utf-8", "replace")
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", True).encode("utf-8", "replace")


def _bounded(source: Source, block_bytes: int, max_bytes: int | None) -> Iterator[bytes]:
    packed = source.packing != "plain"
    limit = max_bytes if max_bytes is not None else (MAX_UNPACKED_BYTES if packed else None)
    total = 0
    with _open(source) as raw, _unpacked(raw, source) as stream:
        while chunk := _read(stream, block_bytes, source):
            total += len(chunk)
            if limit is not None and total > limit:
                raise _too_long(source, f"more than {limit} bytes")
            if (
                packed
                and max_bytes is None
                and total > BOMB_BYTES
                and _ratio(source, raw, total) > BOMB_RATIO
            ):
                raise _too_long(source, f"more than {BOMB_RATIO} times its packed size")
            yield chunk


def _ratio(source: Source, raw: BinaryIO, total: int) -> float:
    try:
        return total / max(1, raw.tell())
    except OSError:
        return 0.0 if source.size is None else total / max(1, source.size)


def _read(stream: BinaryIO, count: int, source: Source) -> bytes:
    try:
        return stream.read(count)
    except Exception as error:  # gzip, zlib and zstandard each raise their own
        if isinstance(error, (MemoryError, InputError)):
            raise
        raise InputError(
            "E-INPUT-DAMAGED",
            f"the {source.packing} data is damaged or cut short ({error})",
            path=source.name,
            hint="save what can be unpacked (gzip -dc FILE > part.log, or zstd -dc) and read that file",
        ) from None


def _cut_at_lines(chunks: Iterator[bytes], source: Source) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield b"".join((*held, chunk[:cut])) if held else chunk[:cut]
            held, size = [], 0
        if cut < len(chunk):
            held.append(chunk[cut:])
            size += len(chunk) - cut
        if size > MAX_LINE_BYTES:
            raise InputError(
                "E-INPUT-LINE", "a line is longer than 256 MiB", path=source.name, hint="this is hardly a log"
            )
    if held:
        yield b"".join(held)


def _has_bom(source: Source) -> bool:
    if source.encoding != "utf-8":
        return False
    with _open(source, looking=True) as raw, _unpacked(raw, source) as stream:
        return stream.read(3) == codecs.BOM_UTF8


def _too_long(source: Source, what: str) -> InputError:
    return InputError(
        "E-INPUT-TOO-LONG",
        f"unpacks to {what}",
        path=source.name,
        hint="if that is expected, allow it with --max-bytes N",
    )


def _unreadable(path: str, error: Exception) -> InputError:
    why = (
        error.strerror
        if isinstance(error, OSError) and error.strerror
        else str(error) or type(error).__name__
    )
    return InputError("E-INPUT-UNREADABLE", why, path=path, hint="check that it is a file that you may read")
