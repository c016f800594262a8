"""The small models: hashed weights, tiles in, hidden rows out. One class; a family is its layers and its
cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from parser.errors import UsageError
from replay.models import deepseek, glm, qwen_next
from replay.models.attention import Layer
from replay.models.cache import Cache
from replay.models.recurrent import RecurrentLayer
from replay.models.scale import Scale
from replay.models.tile import Tile
from replay.models.weights import embedded_rows, weight

VOCABULARY: Final = 2048
WIDTH: Final = 64
#: rows a tile: on a CPU a decode step costs one tile, on a GPU the launches of one, whatever its size
TILE_CPU: Final = 16
TILE_GPU: Final = 256
#: set in the identity of a token that is a row of an image, and not a word of the vocabulary
IMAGE_ROW: Final = np.uint64(1 << 63)

Tokens = NDArray[np.uint64]


class Model:
    """A family's model. `tile` is fixed for its life: caches and files of another tile do not fit."""

    def __init__(
        self, family: str, layers: Sequence[Callable[..., mx.array]], new_cache: Callable[[], Cache],
        tile: int, shape: object,
    ) -> None:  # fmt: skip
        self.family, self.layers, self.new_cache, self.tile = family, layers, new_cache, tile
        #: what a checkpoint must come from to fit: family, layer shapes and tile
        self.identity = f"{family} {blake2b(repr((shape, tile)).encode(), digest_size=8).hexdigest()}"
        self.words = weight(f"{family}.embed", VOCABULARY, WIDTH, gain=VOCABULARY**0.5)
        self.head = weight(f"{family}.head", WIDTH, VOCABULARY)
        mx.eval(self.words, self.head)

    def embed(self, tokens: Tokens) -> mx.array:
        """Token identities to rows [n, width]: a word of the vocabulary each, or a row of an image."""
        rows = self.words[mx.array((tokens % np.uint64(VOCABULARY)).astype(np.int32))]
        image = tokens >= IMAGE_ROW
        if not image.any():
            return rows
        return mx.where(mx.array(image)[:, None], mx.array(embedded_rows(tokens, WIDTH)), rows)

    def step(self, cache: Cache, tile: Tile, tokens: Tokens) -> mx.array:
        """Evaluate the tile's new tokens. -> the last one's hidden row [width]; lazy, as is the cache."""
        padded = np.zeros(tile.size, dtype=np.uint64)
        padded[tile.new] = tokens
        x = self.embed(padded)
        for layer, memory in zip(self.layers, cache.layers, strict=True):
            x = layer(x, tile, memory)
        cache.length = tile.last
        return x[tile.last - tile.start - 1]

    def logits(self, hidden: mx.array) -> mx.array:
        """Hidden row [width] -> logits [vocabulary]."""
        return (mx.fast.rms_norm(hidden[None], None, 1e-6) @ self.head)[0]


def build(
    family: str, *, tile: int, scale: Scale | None = None, ring: int | None = None, **cache: Any
) -> Model:
    """The model of a family. `ring`: raw rows of a live DeepSeek session, in unscaled tokens."""
    scale = scale or Scale()
    if family in ("deepseek-v4", "deepseek-v4-pro"):
        shapes = deepseek.shapes(scale)
        rows = deepseek.ring_rows(ring or deepseek.RING_ROWS, scale)
        layers = [Layer(f"deepseek.{n}", shape) for n, shape in enumerate(shapes)]
        return Model(
            family, layers, lambda: deepseek.DeepSeekCache(shapes, rows, tile, **cache), tile, shapes
        )
    if family == "glm":
        shapes = glm.shapes(scale)
        layers = [Layer(f"glm.{n}", shape) for n, shape in enumerate(shapes)]
        return Model(family, layers, lambda: glm.GlmCache(shapes), tile, shapes)
    if family == "qwen-next":
        mixed = [
            RecurrentLayer(f"qwen.{n}") if bent else Layer(f"qwen.{n}", qwen_next.FULL)
            for n, bent in enumerate(qwen_next.PATTERN)
        ]
        return Model(family, mixed, lambda: qwen_next.QwenNextCache(tile), tile, qwen_next.FULL)
    raise UsageError(
        "E-FAMILY", f"no cache shape is known for family {family!r}", hint="deepseek-v4, glm or qwen-next"
    )
