"""Stores: what the disk tier does beyond its options (sections 4 and 5)."""

from __future__ import annotations

from replay.seams import File, Shelf, Store


class Profile(Store):
    """The build's own: the lowest score goes, nothing is protected (R4.31, R4.34)."""


class ImagesOnDisk(Store):
    """Requests and sessions with images load and store as text ones do, continued stores included: R3.13 lifted."""

    images = True


class LoadBeforeStore(Store):
    """A miss reads its file before it stores the slot's state, so the store cannot push it out (R3.4)."""

    load_first = True


class ProtectIncoming(Store):
    """The file that the waiting request is about to load is not deleted for the store before it (R3.4, R4.34)."""

    def victim(self, shelf: Shelf) -> File | None:
        """The lowest score but for the wanted file."""
        wanted = shelf.wanted
        if wanted is None:
            return shelf.lowest()
        others = [file for file in shelf.files if file.order != wanted.order]
        return min(others, key=lambda file: (shelf.score(file), file.last_used, file.order), default=None)


class Clairvoyant(Store):
    """Knows every later request: the file that is needed last goes first."""

    load_first = True

    def victim(self, shelf: Shelf) -> File | None:
        """The latest next use; of those never needed again the largest."""
        return max(shelf.files, key=lambda file: (shelf.next_use(file), file.size, -file.order), default=None)
