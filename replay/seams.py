"""The four seams of the server model, as Protocols. A plug-in is one small class; `docs/plugins.md` builds one.

Scheduler: which slot a request gets. Reuse: what of a slot's live state it can use. Store: what the disk tier
writes, and what it deletes for room. Costs: how long each operation takes. A class that names one of these
as its base inherits the defaults.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from replay.workload import Asked, Workload


class Offer(Protocol):
    """One idle slot and one waiting request, as a scheduler sees them. Everything is computed when asked."""

    @property
    def slot(self) -> int:
        """Number of the slot, 0 .. slots-1."""

    @property
    def asked(self) -> Asked:
        """The request."""

    @property
    def live(self) -> int:
        """Tokens in the slot (kept when the checkpoint is invalid, R1.3)."""

    @property
    def empty(self) -> bool:
        """No valid checkpoint with tokens in it."""

    @property
    def common(self) -> int:
        """Tokens that the canonical prompt shares with the live state (R2.10); 0 for an empty slot."""

    @property
    def reuse(self) -> int:
        """Tokens that the reuse policy would really keep in this slot (R2.20)."""

    @property
    def visible(self) -> bool:
        """The prompt extends the slot's visible key (R2.15)."""

    @property
    def images_fit(self) -> bool:
        """The image prefix of the live state matches the request's (R3.10)."""

    @property
    def idle_s(self) -> int:
        """Whole seconds since the slot's last job ended (R2.21); since the start if there was none."""

    @property
    def next_use(self) -> int:
        """How many requests will have been sent before one that extends this slot's live state; a look into
        the future that no server has (the number of requests if there is none)."""


@runtime_checkable
class Scheduler(Protocol):
    """Gives an idle slot a score for a request: the highest is taken, the lowest slot number on a tie (R2.6)."""

    def score(self, offer: Offer) -> int:
        """The score of one slot; below 0 means that it evicts a live state (R2.22)."""
        ...


class Live(Protocol):
    """A slot's live state against one request, as a reuse policy sees it."""

    @property
    def live(self) -> int:
        """Tokens in the slot."""

    @property
    def common(self) -> int:
        """Tokens shared from the start with the canonical prompt, as far as the images in them are shared too."""

    @property
    def prompt(self) -> int:
        """Tokens of the canonical prompt."""

    @property
    def family(self) -> str:
        """Model family."""

    @property
    def ring(self) -> int:
        """Raw rows a layer."""

    @property
    def rows_from(self) -> int:
        """The first position whose raw rows are still in the ring: a restore brings only the window back, and
        rows that were overwritten before a rewind are gone."""

    @property
    def points(self) -> Iterable[int]:
        """Positions at which an earlier prompt or reply of this slot's live state ended, descending."""


@runtime_checkable
class Reuse(Protocol):
    """What a slot can go back to when the ladder of its generation found nothing (section 3)."""

    def rewind(self, live: Live) -> int:
        """Tokens of the live state that can be kept, 0 for a miss; never more than `common` and `prompt`-1."""
        ...


class File(Protocol):
    """A checkpoint in the disk directory."""

    @property
    def tokens(self) -> int:
        """Tokens that a hit on it gives."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def reason(self) -> str:
        """cold, continued, evict, shutdown or unknown."""

    @property
    def hits(self) -> int:
        """How often it was loaded."""

    @property
    def last_used(self) -> int:
        """Whole second of its last use, or of its making."""

    @property
    def order(self) -> int:
        """Files are numbered as they are made."""


class Shelf(Protocol):
    """The disk directory while room is made for a new file."""

    @property
    def files(self) -> Iterable[File]:
        """All files, in the order in which they were made."""

    @property
    def now(self) -> int:
        """The whole second of the eviction."""

    @property
    def wanted(self) -> File | None:
        """The file that the request at hand would load, if room is made on its behalf."""

    def score(self, file: File) -> float:
        """R4.32: the lower, the sooner deleted; with the superseded factor for the text being stored."""

    def lowest(self) -> File:
        """The file with the lowest score; on a tie the least recently used (R4.31)."""

    def next_use(self, file: File) -> int:
        """How many requests will have been sent before one that this file serves; see `Offer.next_use`."""


class Store(Protocol):
    """What the disk tier does beyond its options; the defaults are the server's own."""

    #: requests and sessions with images use the disk as text ones do (else R3.13)
    images: bool = False
    #: a miss looks up and reads its file before the slot's state is stored (else R3.4)
    load_first: bool = False

    def victim(self, shelf: Shelf) -> File | None:
        """The next file to delete; None deletes nothing more, and the new file is not written."""
        return shelf.lowest()


class Costs(Protocol):
    """Seconds that operations take. Positions are tokens from the start of the sequence."""

    def admit_s(self, prompt: int) -> float:
        """Parse, render and tokenise a request, before it is queued (R2.1)."""
        ...

    def prefill_s(self, start: int, end: int) -> float:
        """Evaluate positions `start..end`; must be additive: f(a, b) + f(b, c) = f(a, c)."""
        ...

    def decode_s(self, batch: int, depth: int, steps: int) -> float:
        """`steps` decode steps of a batch of `batch` sequences, the deepest at `depth` to begin with."""
        ...

    def store_s(self, tokens: int, size: int, written: bool) -> float:
        """A store, the lock held (R4.21): render, stage and, if `written`, write `size` bytes."""
        ...

    def load_s(self, tokens: int, size: int) -> float:
        """Read `size` bytes of a checkpoint (R4.11), and tokenise the rest."""
        ...

    def end_s(self, prompt: int, generated: int) -> float:
        """From the last token to the end of the answer at the client."""
        ...


@runtime_checkable
class Foreseeing(Protocol):
    """A policy that is given the workload before it starts (the clairvoyant ones)."""

    def begin(self, workload: Workload) -> None:
        """Called once, before the first request."""
        ...
