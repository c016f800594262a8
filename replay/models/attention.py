"""One attention layer over a cache: a window of raw rows, rows of `ratio` tokens, or both.

All three families are made of it: DeepSeek V4 (window, and rows at ratio 4 or 128), GLM (rows at ratio 1),
the full-attention layers of Qwen Next (rows at ratio 1, all read). One latent row serves all heads as key and
value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import mlx.core as mx

from replay.models.buffers import Ring, Rows
from replay.models.tile import Tile, padded
from replay.models.weights import rope_table, weight

NEVER = float("-inf")
_TABLE = 4096


@dataclass(frozen=True, slots=True)
class LayerShape:
    """`window` raw rows before a token are read (0: none); `ratio` tokens make a row (0: no rows); `top_k`
    rows are chosen for each token (0: all are read), out of the `chosen` best blocks of `block` rows."""

    window: int = 0
    ratio: int = 0
    top_k: int = 0
    block: int = 32
    chosen: int = 8
    width: int = 64
    heads: int = 1
    row: int = 32
    index: int = 32

    @property
    def made(self) -> int:
        """Width of what the compressor makes: the latent row, and the indexer's key where rows are chosen."""
        return self.row + (self.index if self.top_k else 0)


class Memory:
    """What one layer keeps: `raw` (ring), `pending` (inputs of rows not yet complete), `rows`, indexer
    `keys`, and `blocks`, the indexer's summary of each block of keys."""

    __slots__ = ("blocks", "keys", "pending", "raw", "rows", "shape")

    def __init__(self, shape: LayerShape, ring: int, pending: int) -> None:
        self.shape = shape
        self.raw = Ring(ring, shape.row) if shape.window else None
        self.pending = Ring(pending, 2 * shape.made) if shape.ratio > 1 else None
        self.rows, self.keys, self.blocks = Rows(shape.row), Rows(shape.index), Rows(shape.index)

    def clear(self) -> None:
        """Position 0: the rings hold nothing; rows are overwritten before they are read."""
        for ring in (self.raw, self.pending):
            if ring is not None:
                ring.oldest = 0

    def frontier(self, length: int) -> dict[str, mx.array]:
        """The window before `length`, and the inputs of the group that is not complete there."""
        state = {}
        if self.raw is not None:
            first = max(0, length - self.shape.window)
            state["raw"] = self.raw.read(first, length - first)
        if self.pending is not None:
            first = length - length % self.shape.ratio
            state["pending"] = self.pending.read(first, length - first)
        return state

    def load_frontier(self, state: Mapping[str, mx.array], length: int) -> None:
        """The rings hold just what `frontier` gave: nothing older."""
        for name, ring in (("raw", self.raw), ("pending", self.pending)):
            if ring is not None:
                ring.load(length - state[name].shape[0], state[name])

    def grown(self, length: int) -> dict[str, mx.array]:
        """The complete rows, their keys, and the summaries of full blocks."""
        if not self.shape.ratio:
            return {}
        count = length // self.shape.ratio
        state = {"rows": self.rows.read(0, count)}
        if self.shape.top_k:
            state |= {
                "keys": self.keys.read(0, count),
                "blocks": self.blocks.read(0, count // self.shape.block),
            }
        return state

    def load_grown(self, state: Mapping[str, mx.array]) -> None:
        """Fresh rows: none of the replaced state's remain."""
        for name in ("rows", "keys", "blocks"):
            rows: Rows = getattr(self, name)
            rows.clear()
            if name in state:
                rows.write(0, state[name])

    def bytes(self, length: int) -> int:
        """Rings, and rows with half as many again reserved and the old ones still there while they are
        copied."""
        rings = sum(ring.data.nbytes for ring in (self.raw, self.pending) if ring is not None)
        if not self.shape.ratio:
            return rings
        keys = self.shape.index * (1 + 1 / self.shape.block) if self.shape.top_k else 0.0
        rows = length // self.shape.ratio + 64 * self.shape.block
        return rings + round(2.5 * 4 * rows * (self.shape.row + keys))

    def arrays(self) -> list[mx.array]:
        """Every tensor of the layer."""
        rings = [ring.data for ring in (self.raw, self.pending) if ring is not None]
        return [*rings, self.rows.data, self.keys.data, self.blocks.data]


class Source(NamedTuple):
    """Rows a tile attends to: `scores` [T, heads, n]; `values` [n, row], or [T, n, row] if each token has its
    own."""

    scores: mx.array
    values: mx.array


def rotate(x: mx.array, start: int) -> mx.array:
    """Rotary position, x [T, n, row] at positions `start ...`: halves (a, b) become (a cos - b sin, b cos + a
    sin)."""
    size, many, row = x.shape
    cos, sin = rope_table(start // _TABLE, row // 2, _TABLE)
    at = start % _TABLE
    halves = x.reshape(size, many, 2, row // 2)
    turned = halves * cos[at : at + size] + halves[:, :, ::-1] * sin[at : at + size]
    return turned.reshape(size, many, row)


def score(query: mx.array, values: mx.array) -> mx.array:
    """Dot products. query [T, heads, row] -> [T, heads, n]."""
    tokens, heads, row = query.shape
    if values.ndim == 3:
        return query @ values.swapaxes(1, 2)
    flat = query.reshape(tokens * heads, row) @ mx.contiguous(values.T)
    return flat.reshape(tokens, heads, -1)


def blend(sources: list[Source]) -> mx.array:
    """Softmax over all sources together, and their weighted values. [T, heads, row]"""
    weights = mx.softmax(mx.concatenate([source.scores for source in sources], axis=-1), axis=-1)
    cuts = [sources[0].scores.shape[-1]] if len(sources) > 1 else []
    parts = mx.split(weights, cuts, axis=-1) if cuts else [weights]
    return sum(
        (weighted(part, source.values) for part, source in zip(parts, sources, strict=True)), mx.array(0.0)
    )


def weighted(weights: mx.array, values: mx.array) -> mx.array:
    """[T, heads, n] of values -> [T, heads, row]."""
    if values.ndim == 3:
        return weights @ values
    tokens, heads, count = weights.shape
    return (weights.reshape(tokens * heads, count) @ values).reshape(tokens, heads, -1)


class Layer:
    """Attention and a gated feed-forward layer, both pre-normed and residual."""

    def __init__(self, name: str, shape: LayerShape) -> None:
        self.shape = s = shape
        raw = s.row if s.window or s.ratio == 1 else 0
        made = 2 * s.made if s.ratio > 1 else s.made - s.row
        sizes = [s.heads * s.row, raw, made, s.index if s.top_k else 0]
        self.cuts = [sum(sizes[: n + 1]) for n in range(3)]
        self.w_in = weight(f"{name}.in", s.width, sum(sizes))
        self.w_out = weight(f"{name}.out", s.heads * s.row, s.width, gain=0.5)
        self.w_gate = weight(f"{name}.gate", s.width, 2 * s.width)
        self.w_down = weight(f"{name}.down", s.width, s.width, gain=0.5)

    def __call__(self, x: mx.array, tile: Tile, memory: Memory) -> mx.array:
        """x [T, width] -> [T, width]; appends the new rows to `memory`."""
        x = x + self._attend(mx.fast.rms_norm(x, None, 1e-6) @ self.w_in, tile, memory) @ self.w_out
        gate, up = mx.split(mx.fast.rms_norm(x, None, 1e-6) @ self.w_gate, 2, axis=-1)
        return x + (gate * mx.sigmoid(gate) * up) @ self.w_down

    def _attend(self, projected: mx.array, tile: Tile, memory: Memory) -> mx.array:
        s = self.shape
        query, raw, made, wanted = mx.split(projected, self.cuts, axis=-1)
        turned = rotate(mx.concatenate([query, raw], axis=-1).reshape(tile.size, -1, s.row), tile.start)
        query, raw = turned[:, : s.heads] * s.row**-0.5, turned[:, s.heads :].reshape(tile.size, -1)
        sources = []
        if memory.raw is not None:
            sources.append(window(query, raw, tile, memory.raw, s.window))
        if s.ratio:
            append(s, raw, made, tile, memory)
            read = chosen_rows if s.top_k else all_rows
            sources.append(read(s, query, wanted, tile, memory))
        return blend(sources).reshape(tile.size, -1)


def window(query: mx.array, raw: mx.array, tile: Tile, ring: Ring, width: int) -> Source:
    """The `width` rows before each token and its own; writes the new rows to the ring."""
    held = ring.read(tile.start - width, width + tile.size)
    values = mx.concatenate([held[:width], tile.keep_new(raw, held[width:])])
    ring.write(tile.first, raw[tile.new])
    return Source(
        mx.where(_in_window(min(tile.start, width), tile.size, width), score(query, values), NEVER), values
    )


@lru_cache(maxsize=256)
def _in_window(before: int, size: int, width: int) -> mx.array:
    """Which of the `width + size` rows each token reads; only `before` of the first `width` exist. [size, 1,
    n]"""
    row, column = mx.arange(size)[:, None], mx.arange(width + size)[None, :]
    return ((column >= mx.maximum(row, width - before)) & (column <= row + width))[:, None, :]


def append(s: LayerShape, raw: mx.array, made: mx.array, tile: Tile, memory: Memory) -> None:
    """Complete the rows that this tile completes, and the indexer's view of them."""
    if s.ratio == 1:
        at, rows = tile.first, mx.concatenate([raw, made], axis=-1)[tile.new]
    else:
        assert memory.pending is not None
        span = max(s.ratio, tile.size)
        base = tile.start - tile.start % span
        memory.pending.write(tile.first, made[tile.new])
        if s.ratio > tile.size and tile.last < base + span:
            return
        done = (tile.first - base) // s.ratio  # rows complete before this tile's new tokens stay as they are
        at = base // s.ratio + done
        rows = compress(memory.pending.read(base, span), s.ratio)[done:]
    memory.rows.write(at, rows[:, : s.row])
    if s.top_k:
        memory.keys.write(at, rows[:, s.row :])


def compress(inputs: mx.array, ratio: int) -> mx.array:
    """Each group of `ratio` inputs (value | gate) becomes one row: values weighted by their gates'
    softmax."""
    value, gate = mx.split(inputs.reshape(-1, ratio, inputs.shape[1]), 2, axis=-1)
    return (mx.softmax(gate, axis=1) * value).sum(axis=1)


def all_rows(s: LayerShape, query: mx.array, _: mx.array, tile: Tile, memory: Memory) -> Source:
    """Every row that is complete, for each token."""
    count = padded(tile.end // s.ratio, 64)
    values = memory.rows.read(0, count)
    seen = mx.arange(count)[None, :] < tile.rows_visible(s.ratio)
    return Source(mx.where(seen[:, None, :], score(query, values), NEVER), values)


def chosen_rows(s: LayerShape, query: mx.array, wanted: mx.array, tile: Tile, memory: Memory) -> Source:
    """The `top_k` rows that the indexer wants most for each token, out of the best blocks and the token's own.

    Scoring one summary a block, then single rows of the chosen blocks only, keeps the cost of a token nearly
    flat in its depth; choosing among all rows would not. What a token can choose from depends on its place
    alone, not on the tile it is computed in.
    """
    base = tile.start // s.ratio // s.block
    newest = -(-tile.end // s.ratio // s.block) - base
    count = padded(base + newest, 64)
    memory.rows.reserve(count * s.block)
    _summarise(s, base, newest, tile, memory)
    blocks = _blocks(s, wanted, tile, memory.blocks.read(0, count))
    ids = (blocks[..., None] * s.block + mx.arange(s.block)).reshape(tile.size, -1)
    keys = memory.keys.read(0, count * s.block).reshape(count, s.block, s.index)[blocks]
    keys = keys.reshape(tile.size, -1, s.index)
    scores = (wanted[:, None, :] @ keys.swapaxes(1, 2)).reshape(tile.size, -1)
    scores = mx.where(ids < _limits(s, tile), scores, NEVER)
    pick = mx.argpartition(scores, -s.top_k, axis=-1)[:, -s.top_k :]
    values = memory.rows.data[mx.take_along_axis(ids, pick, axis=-1)]
    seen = mx.take_along_axis(scores, pick, axis=-1) > NEVER
    return Source(mx.where(seen[:, None, :], score(query, values), NEVER), values)


def _summarise(s: LayerShape, base: int, newest: int, tile: Tile, memory: Memory) -> None:
    """The mean of the keys of each block that this tile may fill; those it does not are masked until full."""
    if tile.last // s.ratio >= (base + 1) * s.block:
        keys = memory.keys.read(base * s.block, newest * s.block)
        memory.blocks.write(base, keys.reshape(newest, s.block, s.index).mean(axis=1))


def _blocks(s: LayerShape, wanted: mx.array, tile: Tile, blocks: mx.array) -> mx.array:
    """For each token the best blocks before its own, and its own. [T, chosen + 1]"""
    own = _own_block(s, tile)
    scores = mx.where(mx.arange(blocks.shape[0]) < own, wanted @ mx.contiguous(blocks.T), NEVER)
    best = mx.argpartition(scores, -s.chosen, axis=-1)[:, -s.chosen :].astype(mx.int32)
    return mx.concatenate([best, own], axis=-1)


@lru_cache(maxsize=64)
def _own_block(s: LayerShape, tile: Tile) -> mx.array:
    return (mx.arange(tile.start, tile.end) // s.ratio // s.block)[:, None]


@lru_cache(maxsize=64)
def _limits(s: LayerShape, tile: Tile) -> mx.array:
    """The first row a token may not read: in chosen blocks (its own is not chosen again), in its own. [T, n]"""
    old = mx.broadcast_to(_own_block(s, tile) * s.block, (tile.size, s.chosen * s.block))
    own = mx.broadcast_to(tile.rows_visible(s.ratio), (tile.size, s.block))
    return mx.concatenate([old, own], axis=-1)
