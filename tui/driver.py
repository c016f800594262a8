"""What goes to the terminal beside the picture: ASCII alone where that is wanted, and the terminal's own title."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.cells import cell_len
from textual.driver import Driver

#: Terminals that take a title; others may print it.
_TITLED: Final = (
    "xterm",
    "tmux",
    "screen",
    "rxvt",
    "alacritty",
    "kitty",
    "foot",
    "wezterm",
    "konsole",
    "vte",
)
_PAIRS: Final = (
    ("─━▔╴╶–—", "-"),
    ("│┃▏▎▍▌▋▊▉▕", "|"),
    ("╭╮╰╯┌┐└┘├┤┬┴┼", "+"),
    ("▁▂", "_"),
    ("▃▄", "."),
    ("▅▆▇", "o"),
    ("█▓", "#"),
    ("▒░", ":"),
    ("·•", "."),
    ("…", "~"),
    ("›▶→▸", ">"),
    ("‹◀←◂", "<"),
    ("↑▲", "^"),
    ("↓▼", "v"),
    ("✓", "+"),
    ("✗✕", "x"),
    ("≠", "!"),
    ("⏎", "&"),
    ("“”", '"'),
)


class _Ascii(dict[int, str]):
    """Character -> one or more ASCII characters of the same width, for `str.translate`."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        self[code] = char if code < 128 else "?" * cell_len(char)
        return self[code]


_ASCII: Final = _Ascii({ord(char): sign for chars, sign in _PAIRS for char in chars})


def in_ascii(text: str) -> str:
    """`text` with a look-alike for each sign, and ? for what has none; as wide as before."""
    return text if text.isascii() else text.translate(_ASCII)


def ascii_driver(driver: type[Driver]) -> type[Driver]:
    """The same driver, writing ASCII only."""

    class Ascii(driver):  # type: ignore[misc, valid-type]
        """Frames, borders and log text alike."""

        def write(self, data: str) -> None:
            """Write what the terminal can show."""
            super().write(in_ascii(data))

    return Ascii


def takes_title() -> bool:
    """The terminal in use has a title that a program may set."""
    return os.environ.get("TERM", "").startswith(_TITLED) and not os.environ.get("TEXTUAL_DRIVER")


def title_sequence(text: str) -> str:
    """What sets the title; `text` holds no control characters."""
    return f"\x1b]2;{text[:120]}\x07"


@contextmanager
def title_kept() -> Iterator[None]:
    """Afterwards the terminal has the title that it had before."""
    out = sys.__stderr__ if takes_title() else None
    if out is not None:
        out.write("\x1b[22;2t")
    try:
        yield
    finally:
        if out is not None:
            out.write("\x1b[23;2t")
            out.flush()
