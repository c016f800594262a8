"""DeepSeek V4's cache shape: a ring of raw rows read through a window, and rows of 4 and of 128 tokens.

The rows only grow, so cutting the token list is not enough to go back: the window before the new end must
still lie in the ring, and so must the inputs of the group of tokens that is not yet a row there (section 7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from replay.models.attention import LayerShape, Memory
from replay.models.cache import Cache
from replay.models.scale import Scale

WINDOW: Final = 128
#: `raw_kv_rows` of a live session with the default chunk of 4096 (ST1); a file holds the window only (R4.4)
RING_ROWS: Final = 4352


def shapes(scale: Scale) -> list[LayerShape]:
    """One layer without compression, one of ratio 4 whose rows an indexer chooses, one of ratio 128 read
    whole."""
    window = scale.size(WINDOW)
    return [
        LayerShape(window=window),
        LayerShape(window=window, ratio=scale.ratio(4), top_k=64),
        LayerShape(window=window, ratio=scale.ratio(128)),
    ]


class DeepSeekCache(Cache):
    """Can go back as far as its rings reach: `ring` rows less the window, fewer after a restore."""

    def __init__(
        self, layers: Sequence[LayerShape], ring: int, tile: int, pending: int | None = None
    ) -> None:
        """`pending`: rows of compressor inputs kept (None: as many as the ring)."""
        keep = ring if pending is None else pending
        self.ring, self.memories = ring, [Memory(s, ring, max(keep, s.ratio, tile)) for s in layers]
        super().__init__(list(self.memories))

    def unreachable(self, position: int) -> str:
        """The window, then the pending group, of every layer."""
        for memory in self.memories:
            reason = self._window_lost(memory, position) or self._group_lost(memory, position)
            if reason:
                return reason
        return ""

    def _window_lost(self, memory: Memory, position: int) -> str:
        assert memory.raw is not None
        wanted, oldest = max(0, position - memory.shape.window), memory.raw.oldest
        if oldest <= wanted:
            return ""
        return (
            f"position {position} reads raw rows from {wanted} on, the ring of {self.ring} rows "
            f"holds those from {oldest} on (live {self.length})"
        )

    def _group_lost(self, memory: Memory, position: int) -> str:
        if memory.pending is None:
            return ""
        ratio = memory.shape.ratio
        wanted, oldest = position - position % ratio, memory.pending.oldest
        if wanted == position or oldest <= wanted:
            return ""
        return (
            f"position {position} lies in a group of {ratio} tokens begun at {wanted}, whose compressor "
            f"inputs are kept from {oldest} on"
        )


def ring_rows(rows: int, scale: Scale) -> int:
    """A ring at scale: what it can go back, and the window, each rounded up, so that no rewind is refused that
    the full size allows."""
    return scale.size(max(0, rows - WINDOW)) + scale.size(min(rows, WINDOW))


def ring_needed(live: int, position: int, window: int = WINDOW) -> int:
    """Rows of the smallest ring from which a never restored session of `live` tokens can go back to
    `position`."""
    return live - max(0, position - window)
