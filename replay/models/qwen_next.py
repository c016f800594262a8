"""Qwen Next's cache shape: recurrent layers, which sum the past up, and a full-attention layer now and
then."""

from __future__ import annotations

from replay.models.attention import LayerShape, Memory
from replay.models.cache import Cache, LayerMemory
from replay.models.recurrent import RecurrentMemory

#: True: a recurrent layer; the others read every earlier token
PATTERN = (True, True, True, False)
FULL = LayerShape(ratio=1)


class QwenNextCache(Cache):
    """A sum cannot be taken apart: only positions saved while they were the end can be restored (section
    7)."""

    def __init__(self, tile: int) -> None:
        layers: list[LayerMemory] = [
            RecurrentMemory(tile) if bent else Memory(FULL, 0, 0) for bent in PATTERN
        ]
        super().__init__(layers)

    def unreachable(self, position: int) -> str:
        """Everything that was not saved."""
        saved = ", ".join(str(at) for at in sorted(self.points)) or "none"
        return (
            f"the recurrent state of position {position} was not saved (saved: {saved}; live {self.length})"
        )
