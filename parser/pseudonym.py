"""Private words -> keyed stand-ins: equal words get equal stand-ins under one key, nothing leads back.

Shapes are kept, so that a redacted log reads as the same events: hex stays hex of the same length, a cut hash
stays the beginning of the whole one, `call_…` stays a call id, a path keeps its depth and its `.kv`.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

_HEX: Final = "0123456789abcdef"
_ID_HEAD: Final = re.compile(r"(?:toolu|call|fc|rs|msg|resp|chatcmpl|chatcmpl-tool|req)[_-]")
_FAMILY: Final = re.compile(r"qwen|glm|deepseek|dspark|mtp", re.IGNORECASE)
_EXTENSION: Final = re.compile(r"\.(?:kv|gguf|log|txt|tmp|sock|json|gz|zst)(?:\.\d+)?$")
#: Path components that say nothing about anyone.
_COMMON: Final = frozenset(
    {"", ".", "..", "...", "…", "~", "tmp", "var", "kv", "data", "cache", "log", "logs"}
)


class Pseudonyms:
    """Stand-ins under one secret key (16 to 64 bytes)."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.hex = lru_cache(100_000)(self._hex)
        self.word = lru_cache(100_000)(self._word)

    def _digest(self, kind: str, text: str) -> str:
        data = f"{kind}\0{text}".encode("utf-8", "surrogateescape")
        return hashlib.blake2b(data, key=self.key, digest_size=16).hexdigest()

    def _hex(self, text: str) -> str:
        """Hex of the same length; two texts with a common beginning keep one of that length."""
        low = text.lower()
        return "".join(
            _HEX[int(digit, 16) ^ int(self._digest("hex", low[:at])[0], 16)] for at, digit in enumerate(low)
        )

    def _word(self, text: str, kind: str = "w") -> str:
        """`kind` and eight hex digits."""
        return f"{kind}-{self._digest(kind, text)[:8]}"

    def call_id(self, text: str) -> str:
        """A call id: head and length are kept."""
        head = _ID_HEAD.match(text)
        start = head.end() if head else 0
        tail = text[start:]
        if re.fullmatch(r"[0-9a-f]+", tail):
            return text[:start] + self.hex(tail)
        return text[:start] + self._digest("id", tail)[: max(8, min(32, len(tail)))] if tail else text

    def tool(self, text: str) -> str:
        """A tool's name; the server's own `?` for a missing one stays."""
        return text if text in ("?", "") else self.word(text, "tool")

    def host(self, text: str) -> str:
        """A host name or address; those that mean this machine, or any, stay."""
        if text in ("localhost", "127.0.0.1", "0.0.0.0", "::1", "[::1]", "::", "[::]"):
            return text
        return self.word(text, "host")

    def path(self, text: str) -> str:
        """A path: each component by itself, so that equal folders and files stay equal; dots stay dots."""
        parts = re.split(r"([/\\])", text)
        return "".join(part if part in ("/", "\\") else self._component(part) for part in parts)

    def _component(self, text: str) -> str:
        if text in _COMMON or re.fullmatch(r"\.{2,}|[A-Za-z]:", text):
            return text
        name, dots, tail = self._split(text)
        if re.fullmatch(r"[0-9a-f]{6,64}", name):
            return self.hex(name) + dots + tail
        family = _FAMILY.search(name)
        return self.word(name, family[0].lower() if family else "p") + dots + tail

    @staticmethod
    def _split(text: str) -> tuple[str, str, str]:
        """(name, elision, known extension): `c41d09b7....kv` -> ("c41d09b7", "...", ".kv")."""
        found = _EXTENSION.search(text)
        name, tail = (text[: found.start()], found[0]) if found else (text, "")
        bare = name.rstrip(".…")
        return bare, name[len(bare) :], tail

    def masked(self, text: str) -> str:
        """Model text: every letter and digit becomes `x`, line ends and lengths stay."""
        return re.sub(r"[^\s\]\[\"]", "x", text)
