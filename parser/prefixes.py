"""Who begins with whose text: the prefix tree of prompts, exact to the byte, in bounded memory."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

_CHUNK: Final = 4096
_DIGEST: Final = 8
#: texts kept whole for exact comparison: the newest of each branch
_KEPT_TEXTS: Final = 64
_KEPT_BYTES: Final = 128 << 20


@dataclass(frozen=True, slots=True)
class Shared:
    """The longest common prefix of a text with an earlier one: its key, the bytes they share, and whether
    the earlier text is a prefix as a whole (as far as both are known)."""

    key: int
    shared: int
    whole: bool


class PrefixTree:
    """Texts in order of arrival; `add` says which earlier text shares most with a new one."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[bytes, bytes]] = OrderedDict()
        self._bytes = 0

    def add(self, key: int, text: bytes) -> Shared | None:
        """Enter `text` under `key` (its known part, where it was cut); None if nothing shares a byte."""
        chain = _chain(text)
        best: Shared | None = None
        for other in reversed(self._kept):
            known, digests = self._kept[other]
            shared = _common(text, chain, known, digests)
            if shared and (best is None or shared > best.shared):
                best = Shared(other, shared, shared == len(known))
        if best is not None and best.whole:
            self._forget(best.key)
        self._keep(key, text, chain)
        return best

    def _keep(self, key: int, text: bytes, chain: bytes) -> None:
        self._kept[key] = (text, chain)
        self._bytes += len(text)
        while len(self._kept) > _KEPT_TEXTS or (self._bytes > _KEPT_BYTES and len(self._kept) > 1):
            self._forget(next(iter(self._kept)))

    def _forget(self, key: int) -> None:
        text, _ = self._kept.pop(key)
        self._bytes -= len(text)


def _chain(text: bytes) -> bytes:
    """8 bytes a chunk: each digest covers the text up to the end of its chunk."""
    state = hashlib.blake2b(digest_size=_DIGEST)
    digests = []
    for start in range(0, len(text) - _CHUNK + 1, _CHUNK):
        state.update(text[start : start + _CHUNK])
        digests.append(state.digest())
    return b"".join(digests)


def _common(text: bytes, chain: bytes, known: bytes, digests: bytes) -> int:
    """Length of the common prefix: whole chunks by digest, then bytes."""
    low, high = 0, min(len(chain), len(digests)) // _DIGEST
    while low < high:
        middle = (low + high + 1) // 2
        end = middle * _DIGEST
        if chain[end - _DIGEST : end] == digests[end - _DIGEST : end]:
            low = middle
        else:
            high = middle - 1
    start = low * _CHUNK
    return start + common_prefix(text[start : start + _CHUNK], known[start : start + _CHUNK])


def common_prefix(one: bytes, other: bytes) -> int:
    """How many bytes two texts share from their start."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
