"""A recurrent layer: gated linear attention, whose state sums up the past and cannot be taken apart again."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx

from replay.models.tile import Tile
from replay.models.weights import weight

_WIDTH, _HEADS, _ROW = 64, 2, 32


class RecurrentMemory:
    """`state` [heads, row, row] as of the start of the current tile, and `inputs`: the key, value and gate of
    that tile's tokens so far. Kept apart so that a tile resumed in the middle adds up in the same order."""

    __slots__ = ("inputs", "state", "tile")

    def __init__(self, tile: int) -> None:
        self.tile = tile
        self.clear()

    def clear(self) -> None:
        """Position 0."""
        self.state = mx.zeros((_HEADS, _ROW, _ROW))
        self.inputs = mx.zeros((self.tile, _HEADS * (2 * _ROW + 1)))

    def frontier(self, length: int) -> dict[str, mx.array]:
        """The state is all there is: nothing of it grows."""
        return {"state": self.state, "inputs": self.inputs[: length % self.tile]}

    def load_frontier(self, state: Mapping[str, mx.array], length: int) -> None:
        """What `frontier` gave at `length`."""
        self.state, held = state["state"], state["inputs"]
        self.inputs = mx.concatenate([held, mx.zeros((self.tile - held.shape[0], held.shape[1]))])

    def grown(self, length: int) -> dict[str, mx.array]:
        """Nothing."""
        return {}

    def load_grown(self, state: Mapping[str, mx.array]) -> None:
        """Nothing."""

    def bytes(self, length: int) -> int:
        """The same at every length."""
        return int(self.state.nbytes + self.inputs.nbytes)

    def arrays(self) -> list[mx.array]:
        """Both tensors."""
        return [self.state, self.inputs]


class RecurrentLayer:
    """state_i = decay_i * state_(i-1) + key_i value_i; read with the query, then a gated output."""

    def __init__(self, name: str) -> None:
        self.w_in = weight(f"{name}.in", _WIDTH, _HEADS * (3 * _ROW + 1) + _WIDTH)
        self.w_out = weight(f"{name}.out", _HEADS * _ROW, _WIDTH, gain=0.5)

    def __call__(self, x: mx.array, tile: Tile, memory: RecurrentMemory) -> mx.array:
        """x [T, width] -> [T, width]; advances `memory`."""
        many = _HEADS * _ROW
        query, inputs, gate = mx.split(
            mx.fast.rms_norm(x, None, 1e-6) @ self.w_in, [many, 3 * many + _HEADS], axis=-1
        )
        inputs = tile.keep_new(inputs, memory.inputs)
        read, after = scan(query.reshape(tile.size, _HEADS, _ROW), inputs, memory.state)
        memory.inputs = inputs
        if tile.last == tile.end:
            memory.state = after
        return x + (mx.fast.rms_norm(read, None, 1e-6) * mx.sigmoid(gate)) @ self.w_out


def scan(query: mx.array, inputs: mx.array, state: mx.array) -> tuple[mx.array, mx.array]:
    """The recurrence over one tile at once. -> ([T, heads * row], the state after the tile)."""
    size, many = query.shape[0], _HEADS * _ROW
    keys, values, gates = mx.split(inputs, [many, 2 * many], axis=-1)
    keys = keys.reshape(size, _HEADS, _ROW).swapaxes(0, 1) * _ROW**-0.5
    values = values.reshape(size, _HEADS, _ROW).swapaxes(0, 1)
    query = query.swapaxes(0, 1)
    fade = mx.cumsum(
        -0.05 * mx.sigmoid(gates), axis=0
    ).T  # log of the decay since the tile's start [heads, T]
    past = mx.arange(size)[:, None] >= mx.arange(size)[None, :]
    within = mx.where(past, mx.exp(mx.minimum(fade[:, :, None] - fade[:, None, :], 0.0)), 0.0)
    read = ((query @ keys.swapaxes(1, 2)) * within) @ values + (query @ state) * mx.exp(fade)[..., None]
    left = mx.exp(fade[:, -1:] - fade)[..., None]
    after = mx.exp(fade[:, -1])[:, None, None] * state + (keys * left).swapaxes(1, 2) @ values
    return read.swapaxes(0, 1).reshape(size, many), after
