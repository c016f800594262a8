"""Numbers from a fixed integer hash: the same on every machine and in every version, no download, no RNG.

SplitMix64 over (name, index) gives 24 bits, which float32 holds exactly; so weights never drift.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def key(name: str) -> np.uint64:
    """64 bits that stand for a name."""
    return np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser, element by element (a bijection of 64-bit values)."""
    z = (values + _GOLDEN).astype(np.uint64)
    z = (z ^ (z >> np.uint64(30))) * _MIX1
    z = (z ^ (z >> np.uint64(27))) * _MIX2
    return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)


def uniform(keys: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Float32 in [-1, 1) from 24 bits of each key."""
    bits = (mix(keys) >> np.uint64(40)).astype(np.float32)
    return np.asarray(bits / np.float32(1 << 23) - np.float32(1), dtype=np.float32)


def weight(name: str, *shape: int, gain: float = 1.0) -> mx.array:
    """A weight matrix with variance gain^2 / fan-in (the first dimension)."""
    count = int(np.prod(shape))
    flat = uniform(key(name) + np.arange(count, dtype=np.uint64))
    return mx.array(flat.reshape(shape) * np.float32(gain * (3.0 / shape[0]) ** 0.5))


def embedded_rows(identities: NDArray[np.uint64], width: int) -> NDArray[np.float32]:
    """One embedding row an identity: what a vision encoder would give for a row of an image. [n, width]"""
    grid = mix(identities)[:, None] + np.arange(width, dtype=np.uint64)[None, :]
    return uniform(grid)


@lru_cache(maxsize=256)
def rope_table(page: int, half: int, rows: int = 4096) -> tuple[mx.array, mx.array]:
    """Cosines and sines of positions `page * rows ...`, from the host in float64: equal on every device.
    Shaped [rows, 1, 1, half] and [rows, 1, 2, half], the sines signed for the two halves."""
    position = np.arange(page * rows, (page + 1) * rows, dtype=np.float64)[:, None]
    angle = position * (10000.0 ** -(np.arange(half, dtype=np.float64) / half))[None, :]
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    return mx.array(cos[:, None, None, :]), mx.array(np.stack([-sin, sin], axis=1)[:, None])
