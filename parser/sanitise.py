"""The one way text from a log reaches a person: whatever could steer a terminal or hide is made visible."""

from __future__ import annotations

import re
from typing import Final

# C0 but for tab and newline (their own switch below), DEL, C1; soft hyphen, Arabic letter mark, zero-width,
# bidi controls, line and paragraph separators, word joiner and invisible operators, BOM, interlinear marks,
# object replacement, tags, variation selectors (they change how the sign before them looks), lone surrogates
HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)
_NAMES: Final = {"\r": "\\r", "\x1b": "\\e", "\x00": "\\0", "\n": "\\n", "\t": "\\t"}


def sanitise(text: str, *, lines: bool = False) -> str:
    """`text` with every control, bidi, zero-width and line-separator character written out.

    A newline becomes the two characters `\\n` unless `lines` is true; a tab becomes a blank. The result
    holds nothing that moves a cursor, sets a colour, turns the reading direction or cannot be seen.
    """
    shown = HIDDEN.sub(_visible, text).replace("\t", " ")
    return shown if lines else shown.replace("\n", "\\n")


def _visible(found: re.Match[str]) -> str:
    sign = found[0]
    code = ord(sign)
    return _NAMES.get(sign) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}")
