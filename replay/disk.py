"""The disk directory: checkpoints by their text, lookup, and what is deleted for room (section 4).

R7.3: where a cache cannot go back, a file is the only way to an earlier state. Every file here is one that counts
(R4.3); others in a real directory are neither counted nor removed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import inf

from replay.tree import Node

HALF_LIFE_S = 21600
ANCHOR_FACTOR = 2.0
#: reasons that count double (R4.32)
ANCHORS = frozenset(("cold", "evict", "shutdown"))


@dataclass(slots=True, eq=False)
class DiskFile:
    """R4.1-R4.2: one checkpoint. `key` is its text, `node` its tokens (both None for a file of unknown content).

    `created` and `last_used` are whole seconds, `size` bytes, `ctx` that of the server that wrote it; `order`
    numbers files as they are made.
    """

    order: int
    name: str
    key: Node | None
    node: Node | None
    tokens: int
    size: int
    reason: str
    ctx: int
    created: int
    hits: int = 0
    last_used: int = 0
    base: float = 0.0
    gone: bool = False

    def __post_init__(self) -> None:
        """R4.33: tokens a byte, the anchor factor in it, is what a file's score cannot fall below."""
        self.base = self.tokens / self.size * (ANCHOR_FACTOR if self.reason in ANCHORS else 1.0)

    def weight(self, now: int) -> float:
        """R4.32: hits, halved every 21600 s since the last use; below 0.01 they count as none."""
        if not self.hits:
            return 0.0
        age = now - (self.last_used or self.created)
        hits = self.hits * 2.0 ** (-age / HALF_LIFE_S) if age > 0 else float(self.hits)
        return hits if hits >= 0.01 else 0.0

    def score(self, now: int, superseded: bool) -> float:
        """R4.32: the lower, the sooner deleted."""
        hits = self.weight(now)
        score = (hits + 1.0) * self.tokens / self.size
        if self.reason in ANCHORS:
            score *= ANCHOR_FACTOR
        if superseded:
            score *= 0.05 + 0.45 * hits / (hits + 1.0)
        return score


class Disk:
    """R1.5: one directory. Files are found through the text tree: a file hangs on the piece that it ends in."""

    def __init__(self) -> None:
        self.files: dict[int, DiskFile] = {}
        self.used = 0
        self._made = 0
        #: R4.1: a name is that of the text, so a file that is written again has the one that it had
        self._names: dict[Node, str] = {}
        # files without hits by score, and files with hits by what their score cannot fall below
        self._unused: list[tuple[float, int, int]] = []
        self._hit: list[tuple[float, int]] = []

    def add(
        self, key: Node | None, node: Node | None, tokens: int, size: int, reason: str, ctx: int, now: int,
        name: str | None = None, hits: int = 0,
    ) -> DiskFile:  # fmt: skip
        """A new file, made and used now (R4.20)."""
        self._made += 1
        order = self._made
        if key is not None:
            name = self._names.setdefault(key, name or f"f{order}")
        file = DiskFile(order, name or f"f{order}", key, node, tokens, size, reason, ctx, now, hits, now)
        self.files[order] = file
        self.used += size
        self._rank(file)
        if key is not None:
            self._shelve(file, key)
        return file

    def _rank(self, file: DiskFile) -> None:
        if file.hits:
            insort(self._hit, (file.base, file.order))
        else:
            insort(self._unused, (file.base, file.last_used, file.order))

    def _unrank(self, file: DiskFile) -> None:
        if file.hits:
            del self._hit[bisect_left(self._hit, (file.base, file.order))]
        else:
            del self._unused[bisect_left(self._unused, (file.base, file.last_used, file.order))]

    def touch(self, file: DiskFile, now: int, hits: int) -> None:
        """Used now, and hit that often more."""
        self._unrank(file)
        file.last_used = now
        file.hits += hits
        self._rank(file)

    def _shelve(self, file: DiskFile, key: Node) -> None:
        above = key.parent
        if above.files is None:
            above.files = {}
        piece = key.piece
        insort(above.files.setdefault((piece.segment, piece.start), []), file, key=_end)

    def remove(self, file: DiskFile) -> None:
        """Delete a file."""
        file.gone = True
        del self.files[file.order]
        self.used -= file.size
        self._unrank(file)
        if file.key is not None:
            piece, above = file.key.piece, file.key.parent
            assert above.files is not None
            row = above.files[piece.segment, piece.start]
            row.remove(file)
            if not row:
                del above.files[piece.segment, piece.start]
                above.files = above.files or None

    def identical(self, key: Node) -> DiskFile | None:
        """The file of exactly this text (same name, R4.1)."""
        files = key.parent.files
        if files is None:
            return None
        row = files.get((key.piece.segment, key.piece.start), ())
        return next((file for file in row if file.key is key), None)

    def prefixes(self, text: Node) -> Iterator[DiskFile]:
        """Files whose text is a prefix of `text` or equal to it, the longest first."""
        while text.depth:
            above = text.parent
            if above.files is not None:
                piece = text.piece
                row = above.files.get((piece.segment, piece.start))
                if row is not None:
                    yield from (file for file in reversed(row) if _end(file) <= piece.end)
            text = above

    def lookup(self, text: Node, least: int, ctx: int) -> DiskFile | None:
        """R4.10: the longest text that the prompt begins with or equals (R4.15); reason and age do not count."""
        for file in self.prefixes(text):
            if file.tokens >= least and file.ctx <= ctx:
                return file
        return None

    def superseded_by(self, key: Node, ctx: int) -> list[DiskFile]:
        """R4.32: continued files whose text is a strict prefix of the text being stored."""
        return [
            file
            for file in self.prefixes(key)
            if file.reason == "continued" and file.key is not key and file.ctx >= ctx
        ]

    def lowest(self, now: int, superseded: Iterable[DiskFile], spared: DiskFile | None) -> DiskFile | None:
        """R4.31: the lowest score; on a tie the least recently used, then the first made.

        A file without hits keeps its score, so the first of them is the lowest. A file with hits has at least
        what one hit of the oldest file is still worth, so they are tried by rising `base` until none can be
        lower. Only superseded files can be below that: each of them is tried.
        """
        apart = {file.order for file in superseded}
        ranks = [
            (file.score(now, True), file.last_used, file.order) for file in superseded if file is not spared
        ]
        skip = apart if spared is None else apart | {spared.order}
        ranks.extend(islice((rank for rank in self._unused if rank[2] not in skip), 1))
        best = min(ranks, default=(inf, 0, 0))
        oldest = (
            next(iter(self.files.values())).created if self.files else now
        )  # they are made in order of time
        least = 2.0 ** (-max(now - oldest, 0) / HALF_LIFE_S)
        floor = (1.0 + least if least >= 0.01 else 1.0) * (1.0 - 1e-9)
        for base, order in self._hit:
            if base * floor > best[0]:
                break
            if order not in skip:
                file = self.files[order]
                best = min(best, (file.score(now, False), file.last_used, order))
        return self.files.get(best[2])


def _end(file: DiskFile) -> int:
    assert file.key is not None
    return file.key.piece.end
