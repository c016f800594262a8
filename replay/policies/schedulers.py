"""Schedulers: a score a slot; the highest is taken (section 2)."""

from __future__ import annotations

from parser.errors import UsageError
from replay.seams import Offer, Scheduler

#: R2.20: what a score of an idle slot without reuse starts from, so that seconds and tokens fit below it
_SPAN = 1_048_576
_STALE_S = 3600
_REQUIRED = 2**31 - 1


class CommonPrefix(Scheduler):
    """R2.10: tokens shared with the live state, however long that is; an empty slot scores 0 (R2.11)."""

    def score(self, offer: Offer) -> int:
        """The shared prefix."""
        return offer.common


class VisibleKey(Scheduler):
    """R2.15: the whole live state if the text extends the slot's visible key (which R2.12 does not look at);
    below an empty slot if the images do not match. For text the rest is as before (R2.16)."""

    def score(self, offer: Offer) -> int:
        """Key, images, then the shared prefix."""
        if offer.visible:
            return offer.live
        if offer.live and not offer.images_fit:
            return -1
        return offer.common


class ReuseAware(Scheduler):
    """R2.20-R2.21: real reuse, then an empty slot, then the stalest, then the shortest."""

    def score(self, offer: Offer) -> int:
        """The table of R2.20."""
        reuse = offer.reuse
        if reuse > 0:
            return reuse
        if offer.empty:
            return 0
        idle = offer.idle_s
        if idle >= _STALE_S:
            return -1 - _SPAN + min(idle, _SPAN)
        return -2 - _SPAN - offer.live


class EmptyFirst(Scheduler):
    """An empty slot before any whose shared prefix is shorter than its live length; else R2.10."""

    def score(self, offer: Offer) -> int:
        """The shared prefix; for a live state that is not wholly shared less than an empty slot's 0."""
        if offer.empty or offer.common == offer.live:
            return offer.common
        return offer.common - _SPAN * 1024


class MinPrefix(Scheduler):
    """The public stop-gap (R2.23): a shared prefix below `least` tokens scores below an empty slot."""

    def __init__(self, least: str = "64") -> None:
        if not least.isdigit():
            raise UsageError("E-PLUGIN", f"min-prefix:{least}: give a number of tokens, as min-prefix:64")
        self.least = int(least)

    def score(self, offer: Offer) -> int:
        """The shared prefix, or -1."""
        return -1 if offer.live and offer.common < self.least else offer.common


class LeastRecentlyUsed(Scheduler):
    """Real reuse, then an empty slot, then the slot that was idle longest."""

    def score(self, offer: Offer) -> int:
        """Reuse; else how long it was idle, below an empty slot's 0."""
        reuse = offer.reuse
        if reuse > 0:
            return reuse
        return 0 if offer.empty else offer.idle_s - 2 * _REQUIRED


class Clairvoyant(Scheduler):
    """Knows every later request: real reuse, then an empty slot, then the live state that is needed last."""

    def score(self, offer: Offer) -> int:
        """Reuse; else how late the state is needed again, below an empty slot's 0."""
        reuse = offer.reuse
        if reuse > 0:
            return reuse
        return 0 if offer.empty else offer.next_use - 2 * _REQUIRED
