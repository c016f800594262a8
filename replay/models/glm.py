"""GLM's cache shape: one latent row and one indexer key a token, all kept; cutting the rows is exact (section
7)."""

from __future__ import annotations

from collections.abc import Sequence

from replay.models.attention import LayerShape, Memory
from replay.models.cache import Cache
from replay.models.scale import Scale


def shapes(_: Scale) -> list[LayerShape]:
    """Two layers whose rows an indexer chooses."""
    return [LayerShape(ratio=1, top_k=64, block=64) for _ in range(2)]


class GlmCache(Cache):
    """Rows of earlier tokens do not depend on later ones: every position can be reached."""

    def __init__(self, layers: Sequence[LayerShape]) -> None:
        super().__init__([Memory(s, 0, 0) for s in layers])

    def unreachable(self, position: int) -> str:
        """Nothing is."""
        return ""
