"""Requests as objects, for the few that somebody looks at: old blocks go to a private temporary file."""

from __future__ import annotations

import pickle
import tempfile
import zlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from typing import IO, Final

from parser.request import Request

_BLOCK: Final = 1024
_IN_MEMORY: Final = 96  # blocks; about 100,000 requests
_UNPACKED: Final = 4


class Book:
    """A list of requests in bounded memory. Rows count from 0 in order of start, as in `tui.tables`.

    Blocks that are written out were made by this process and live in an unnamed file of its own.
    """

    def __init__(self) -> None:
        self._blocks: list[list[Request] | tuple[int, int]] = []
        self._numbers: list[int] = []
        self._first_in_memory = 0
        self._file: IO[bytes] | None = None
        self._unpacked: OrderedDict[int, list[Request]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, requests: Sequence[Request]) -> None:
        """Append requests in order of their start."""
        for request in requests:
            if len(self._numbers) % _BLOCK == 0:
                self._blocks.append([])
            block = self._blocks[-1]
            assert isinstance(block, list)
            block.append(request)
            self._numbers.append(request.request)
        while len(self._blocks) - self._first_in_memory > _IN_MEMORY:
            self._write_out(self._first_in_memory)
            self._first_in_memory += 1

    def __getitem__(self, row: int) -> Request:
        return self._block(row // _BLOCK)[row % _BLOCK]

    def row_of(self, number: int) -> int | None:
        """Row of `Request.request == number`, or None."""
        row = bisect_left(self._numbers, number)
        return row if row < len(self._numbers) and self._numbers[row] == number else None

    def close(self) -> None:
        """Give the temporary file back."""
        if self._file is not None:
            self._file.close()

    def _block(self, number: int) -> list[Request]:
        block = self._blocks[number]
        if isinstance(block, list):
            return block
        if number not in self._unpacked:
            self._unpacked[number] = self._read_back(*block)
            if len(self._unpacked) > _UNPACKED:
                self._unpacked.popitem(last=False)
        return self._unpacked[number]

    def _write_out(self, number: int) -> None:
        self._file = self._file or tempfile.TemporaryFile(prefix="ds4scope-")  # noqa: SIM115 (lives on)
        packed = zlib.compress(pickle.dumps(self._blocks[number], protocol=5), 1)
        place = self._file.seek(0, 2)
        self._file.write(packed)
        self._blocks[number] = (place, len(packed))

    def _read_back(self, place: int, size: int) -> list[Request]:
        assert self._file is not None
        self._file.seek(place)
        block: list[Request] = pickle.loads(zlib.decompress(self._file.read(size)))
        return block
