"""One source -> its bytes: unpacked, as UTF-8, bounded, cut at line ends.

`parser.sources` settles what is read; here it is opened. A bomb, damaged data and endless lines end in a
clear error; memory holds one chunk and one line.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from parser.errors import InputError

HEAD_BYTES: Final = 256 << 10  # what is looked at to tell packing, encoding and kind
MAX_LINE_BYTES: Final = 256 << 20
MAX_UNPACKED_BYTES: Final = 4 << 30  # default for packed input; plain files are as long as they are
BOMB_RATIO: Final = 300  # a packed log of real traffic shrinks to between 1/8 and 1/60
BOMB_BYTES: Final = 64 << 20  # below this a ratio says nothing
NUL_BYTES: Final = (BOMB_BYTES, 1 << 30)  # zero bytes that packed and plain input may begin with


@dataclass(slots=True)
class Pipe:
    """Standard input or a named pipe: its first bytes are kept, the rest passes once."""

    stream: IO[bytes]
    head: bytes
    ended: bool
    spent: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """One input. `index` is its place in reading order and the `source` of its lines and events.

    `name` is what errors and reports show; `path` is None for standard input. `packing` is "plain", "gzip" or
    "zstd"; `encoding` is "utf-8", "utf-16-le" or "utf-16-be". `size` (bytes as stored) and `mtime` (Unix
    seconds) are None for pipes. `head` is the unpacked, UTF-8 start of the input (at most 256 KiB).
    """

    index: int
    name: str
    path: Path | None = None
    packing: str = "plain"
    encoding: str = "utf-8"
    size: int | None = None
    mtime: float | None = None
    head: bytes = b""
    pipe: Pipe | None = None


class _Kept(io.RawIOBase):
    """The kept start of a pipe, then the rest of it."""

    def __init__(self, pipe: Pipe) -> None:
        self._parts: list[IO[bytes]] = [io.BytesIO(pipe.head), pipe.stream]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while self._parts:
            data = self._parts[0].read(len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)
            self._parts.pop(0)
        return 0


class _Zstd(io.RawIOBase):
    """Frames of zstd, one after the other; unlike the library's reader it tells a frame that is cut."""

    FED = 4096  # packed bytes at a time: 4 KiB can grow to 128 MiB at most

    def __init__(self, raw: IO[bytes]) -> None:
        import zstandard

        self._raw, self._make = raw, zstandard.ZstdDecompressor().decompressobj
        self._frame: Any = None
        self._packed, self._ready = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and self._fill():
            pass
        data, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)

    def _fill(self) -> bool:
        packed = self._packed or self._raw.read(self.FED)
        if not packed:
            if self._frame is not None:
                raise EOFError("it ends inside a frame")
            return False
        self._frame = self._frame or self._make()
        self._ready, self._packed = memoryview(self._frame.decompress(packed)), b""
        if self._frame.eof:
            self._packed, self._frame = self._frame.unused_data, None
        return True


def stored(source: Source, *, looking: bool = False) -> IO[bytes]:
    """The bytes as they are stored. A pipe too long to keep is given once (`looking` sees its start only)."""
    if source.path is not None:
        try:
            return source.path.open("rb")
        except OSError as error:
            raise unreadable(source.name, error) from None
    pipe = source.pipe
    if pipe is None:
        raise InputError("E-INPUT-UNREADABLE", "neither a file nor a pipe", path=source.name)
    if looking or pipe.ended:
        return io.BytesIO(pipe.head)
    if pipe.spent:
        hint = "save it to a file and name that"
        raise InputError("E-INPUT-ONCE", "this pipe was read already", path=source.name, hint=hint)
    pipe.spent = True
    return io.BufferedReader(_Kept(pipe), 1 << 20)


def first_bytes(source: Source) -> bytes:
    """The first bytes (unpacked, not decoded); NULs that a log truncated in place begins with are skipped."""
    with stored(source, looking=True) as raw, unpacked(raw, source.packing) as stream:
        head, skipped = _read(stream, HEAD_BYTES, source), 0
        while head and not head.strip(b"\0") and (more := _read(stream, HEAD_BYTES, source)):
            head, skipped = more, skipped + HEAD_BYTES
            if skipped > NUL_BYTES[source.packing == "plain"]:
                raise _zeros(source, skipped)
    return head


def unpacked(raw: IO[bytes], packing: str) -> IO[bytes]:
    """A stream of the unpacked bytes of `raw`; several members or frames follow each other."""
    if packing == "gzip":
        import gzip

        return cast(IO[bytes], gzip.GzipFile(fileobj=raw, mode="rb"))
    if packing == "zstd":
        return cast(IO[bytes], io.BufferedReader(_Zstd(raw), 1 << 20))
    return raw


def lines_of(source: Source, block_bytes: int, max_bytes: int | None) -> Iterator[bytes]:
    """UTF-8 bytes in pieces of about `block_bytes` that end at line ends (but for a last, cut line)."""
    held: list[bytes] = []
    size = 0
    for chunk in _decoded(source, block_bytes, max_bytes):
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield b"".join((*held, chunk[:cut])) if held else chunk[:cut]
            held, size = [], 0
        if cut < len(chunk):
            held.append(chunk[cut:])
            size += len(chunk) - cut
        if size > MAX_LINE_BYTES:
            hint = "this is hardly a log; cut the line out"
            raise InputError("E-INPUT-LINE", "a line is longer than 256 MiB", path=source.name, hint=hint)
    if held:
        yield b"".join(held)


def _decoded(source: Source, block_bytes: int, max_bytes: int | None) -> Iterator[bytes]:
    """As UTF-8: UTF-16 is converted (bad pairs become U+FFFD), UTF-8 passes as it is."""
    chunks = _bounded(source, block_bytes, max_bytes)
    if source.encoding == "utf-8":
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(source.encoding)("replace")
    yield decoder.decode(next(chunks, b"")).removeprefix("\ufeff").encode("utf-8", "replace")
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", True).encode("utf-8", "replace")


def _bounded(source: Source, block_bytes: int, max_bytes: int | None) -> Iterator[bytes]:
    """Unpacked chunks; beyond the limits an error that names the option to raise them."""
    packed = source.packing != "plain"
    limit = max_bytes if max_bytes is not None else (MAX_UNPACKED_BYTES if packed else None)
    guarded, total = packed and max_bytes is None, 0
    with stored(source) as raw, unpacked(raw, source.packing) as stream:
        while chunk := _read(stream, block_bytes, source):
            total += len(chunk)
            if limit is not None and total > limit:
                raise _too_long(source, f"more than {limit:,} bytes")
            if guarded and total > max(BOMB_BYTES, BOMB_RATIO * _taken(raw, source)):
                raise _too_long(source, f"more than {BOMB_RATIO} times its packed size")
            yield chunk


def _taken(raw: IO[bytes], source: Source) -> int:
    """Packed bytes read so far; of a stream that cannot tell, those it may have."""
    try:
        return max(1, raw.tell())
    except (OSError, ValueError):
        return MAX_UNPACKED_BYTES if source.size is None else source.size


def _read(stream: IO[bytes], count: int, source: Source) -> bytes:
    try:
        return stream.read(count)
    except MemoryError:
        raise
    except Exception as error:  # gzip, zlib and zstandard each raise their own kind
        if source.packing == "plain":
            raise unreadable(source.name, error) from None
        raise InputError(
            "E-INPUT-DAMAGED",
            f"the {source.packing} data is damaged or cut short ({error})",
            path=source.name,
            hint="save what can be unpacked (gzip -dc FILE > part.log, or zstd -dc) and read that file",
        ) from None


def _zeros(source: Source, count: int) -> InputError:
    hint = "this is not a log (a packed one may unpack to 4 GiB, or to what --max-bytes N allows)"
    what = f"begins with more than {count:,} zero bytes"
    return InputError("E-INPUT-TOO-LONG", what, path=source.name, hint=hint)


def _too_long(source: Source, what: str) -> InputError:
    hint = "if that is expected, allow it with --max-bytes N (bytes after unpacking)"
    return InputError("E-INPUT-TOO-LONG", f"holds {what}", path=source.name, hint=hint)


def unreadable(path: str, error: Exception) -> InputError:
    """The error for a path that the system does not let us read."""
    reason = error.strerror if isinstance(error, OSError) else None
    why = reason or str(error) or type(error).__name__
    return InputError("E-INPUT-UNREADABLE", why, path=path, hint="check that it is a file that you may read")
