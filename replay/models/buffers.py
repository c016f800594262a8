"""Two kinds of cache memory: a ring that forgets, and rows that only grow. Data movement, no arithmetic."""

from __future__ import annotations

import mlx.core as mx


class Ring:
    """The last `rows` rows of a sequence; position p lies in row p % rows, `oldest` is the first one still
    held."""

    __slots__ = ("data", "oldest", "rows")

    def __init__(self, rows: int, width: int) -> None:
        self.rows, self.oldest = rows, 0
        self.data = mx.zeros((rows, width))

    def read(self, first: int, count: int) -> mx.array:
        """Rows of positions `first .. first + count`; those no longer held come as garbage for the caller to
        mask."""
        at = first % self.rows
        if at + count <= self.rows:
            return self.data[at : at + count]
        return self.data[(mx.arange(count) + at) % self.rows]

    def write(self, first: int, rows: mx.array) -> None:
        """Put rows of positions `first ...`, overwriting what is `self.rows` positions older."""
        end = first + rows.shape[0]
        begin = max(first, end - self.rows)
        rows = rows[begin - first :]
        at, count = begin % self.rows, end - begin
        fits = min(count, self.rows - at)
        self.data[at : at + fits] = rows[:fits]
        if fits < count:
            self.data[: count - fits] = rows[fits:]
        self.oldest = max(self.oldest, end - self.rows)

    def load(self, first: int, rows: mx.array) -> None:
        """Hold exactly `rows`, of positions `first ...`: what a snapshot gives back."""
        self.oldest = first
        if rows.shape[0]:
            self.write(first, rows)


class Rows:
    """Rows that are only appended and, where the shape allows it, cut; capacity grows, contents never
    move."""

    __slots__ = ("data",)

    def __init__(self, width: int) -> None:
        self.data = mx.zeros((0, width))

    def write(self, at: int, rows: mx.array) -> None:
        """Rows `at ...`, growing as needed."""
        self.reserve(at + rows.shape[0])
        self.data[at : at + rows.shape[0]] = rows

    def reserve(self, count: int) -> None:
        """Make room for `count` rows, half as many again beyond, zeros until written."""
        have, width = self.data.shape
        if count > have:
            more = max(count - have, have // 2, 256)
            self.data = mx.concatenate([self.data, mx.zeros((more, width))])

    def clear(self) -> None:
        """Forget all rows."""
        self.data = mx.zeros((0, self.data.shape[1]))

    def read(self, first: int, count: int) -> mx.array:
        """Rows `first .. first + count`, zeros beyond what was written."""
        self.reserve(first + count)
        return self.data[first : first + count]
