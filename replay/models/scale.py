"""`--scale N`: all token quantities and thresholds divided together, so that a long log replays quickly."""

from __future__ import annotations

from dataclasses import dataclass

from parser.errors import UsageError


@dataclass(frozen=True, slots=True)
class Scale:
    """One token stands for `factor` tokens. Counts and positions are rounded up, so order and equality are
    kept."""

    factor: int = 1

    def __post_init__(self) -> None:
        """A factor below 1 would invent tokens."""
        if self.factor < 1:
            raise UsageError("E-SCALE", f"--scale must be at least 1, not {self.factor}")

    def size(self, tokens: int) -> int:
        """A number of tokens, or a position."""
        return -(-tokens // self.factor)

    def ratio(self, tokens: int) -> int:
        """Tokens a row: the largest power of two within tokens / factor, at least 1, so that groups fill
        tiles."""
        return 1 << (max(1, tokens // self.factor).bit_length() - 1)
