"""Reuse: what a slot goes back to when the ladder found nothing (section 7)."""

from __future__ import annotations

from parser.errors import UsageError
from replay.seams import Live, Reuse
from replay.session import WINDOW


class Ladder(Reuse):
    """The build's own: nothing more (R3.3, all or nothing)."""

    def rewind(self, live: Live) -> int:
        """Never."""
        return 0


class RewindToCommon(Reuse):
    """A rewind to the shared prefix at any mismatch, whatever the cache's shape: the most that any can save (R7.4)."""

    def rewind(self, live: Live) -> int:
        """All that is shared; of an exact retry all but the last token, which is evaluated again."""
        return min(live.common, live.prompt - 1)


class RewindInRing(Reuse):
    """A rewind as far as the shape of the family's cache allows (section 7): rows that can be cut (GLM) to any
    length; a ring of raw rows only while the window behind the new end is still in it; recurrent state never."""

    def rewind(self, live: Live) -> int:
        """The shared prefix if it can be reached."""
        kept = min(live.common, live.prompt - 1)
        return kept if reachable(live.family, live.rows_from, live.live, kept) else 0


def reachable(family: str, rows_from: int, live: int, kept: int) -> bool:
    """Section 7: can a session of `live` tokens, whose ring holds rows from `rows_from` on, be cut to `kept`?"""
    if family == "glm":
        return True
    if family in ("deepseek-v4", "deepseek-v4-pro"):
        return max(0, kept - WINDOW) >= rows_from
    return live == kept


class RewindPoints(Reuse):
    """The newest `most` ends of prompts and replies are remembered with the state at them (LC10)."""

    def __init__(self, most: str = "8") -> None:
        if not most.isdigit():
            raise UsageError("E-PLUGIN", f"rewind-points:{most}: give a number, as rewind-points:8")
        self.most = int(most)

    def rewind(self, live: Live) -> int:
        """The longest remembered state that the prompt begins with."""
        kept = min(live.common, live.prompt - 1)
        remembered = list(live.points)[: self.most]
        return next((point for point in remembered if point <= kept), 0)
