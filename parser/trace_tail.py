"""`--trace` files that grow: the records that were written since the last look."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import replace

from parser.prefixes import PrefixTree
from parser.sources import Source, find_sources, iter_blocks
from parser.trace import TraceReader, TraceRequest, numbered_lines
from parser.unpack import Pipe


class TraceTails:
    """All records of some trace files so far, in the order in which they were read (`records`)."""

    def __init__(self, paths: Sequence[str], *, max_bytes: int | None = None) -> None:
        self.records: list[TraceRequest] = []
        tree = PrefixTree()
        self._tails = [
            _Tail(source, TraceReader(self.records, tree, number), max_bytes)
            for number, path in enumerate(paths)
            for source in find_sources([path])
        ]
        self._given = 0

    def more(self, *, final: bool = False) -> list[TraceRequest]:
        """Records that were not given yet, once their cache decision is there; `final`: the files end here."""
        for tail in self._tails:
            tail.read_on(final=final)
        undecided = {id(tail.reader.undecided) for tail in self._tails if not final}
        fresh: list[TraceRequest] = []
        for record in self.records[self._given :]:
            if id(record) in undecided:
                break
            fresh.append(record)
        self._given += len(fresh)
        return fresh


class _Tail:
    """One file, read up to its last whole line; from its start again where it was truncated."""

    def __init__(self, source: Source, reader: TraceReader, max_bytes: int | None) -> None:
        self.reader = reader
        self._source, self._max_bytes = source, max_bytes
        self._grows = source.path is not None and source.packing == "plain" and source.encoding == "utf-8"
        self._offset = 0
        self._read = False

    def read_on(self, *, final: bool) -> None:
        """What was appended since the last call."""
        if self._grows:
            self._appended(final=final)
        elif not self._read:
            self.reader.feed(numbered_lines(iter_blocks(self._source, max_bytes=self._max_bytes)))
            self._read = True
        if final:
            self.reader.end()

    def _appended(self, *, final: bool) -> None:
        assert self._source.path is not None
        try:
            with self._source.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self.reader.end()
                    self.reader = self.reader.anew()
                    self._offset = 0
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return  # it was taken away: what it said stays
        whole = data if final else data[: data.rfind(b"\n") + 1]
        if whole:
            source = replace(self._source, path=None, pipe=Pipe(io.BytesIO(), whole, ended=True))
            begin = self._offset
            lines = numbered_lines(iter_blocks(source, max_bytes=self._max_bytes))
            self.reader.feed((raw, begin + offset) for raw, offset in lines)
            self._offset += len(whole)
