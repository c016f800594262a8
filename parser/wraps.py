"""Signs by which lines of a pasted log belong together, or do not: what goes on, what begins anew.

Only texts are looked at; whether a joined text is an event is asked in `parser.pasted`.
"""

from __future__ import annotations

import re
from typing import Final

from parser.clock import Stamp
from parser.line import Line
from parser.peel import RAW_TEXT, Peeled, peel

_DEEP: Final = 8  # columns of indentation that no list or fence has
_FIRST_WORD: Final = re.compile(
    r"(?:live|kv|KV|chat|completion|ctx=|tool|TOOLS|THINKING|RESPPROTO|DSML_\w+|prompt|prefill|chunk|gen=|decod\w+|finish="
    r"|rewound|rewind|GLM|multimodal|responses|anthropic|thinking|vision|decode|slot|persisting|shutdown|context"
    r"|batched|listening|incomplete|session|exact|MTP|tracing|failed|\d+ resident)"
)
#: What begins a line of its own, even a cut one.
HEAD: Final = re.compile(
    r"(?:live kv|kv cache|KV disk|(?:chat|completion) ctx=|tool calls ctx=|decode batch|context buffers|persisting) ?"
)
OTHER_PROGRAM: Final = re.compile(r"\s*(?:ds4[\w-]*|tp|[\w-]+ worker): ")


def server(text: str) -> Peeled | None:
    """The line taken apart, where the server's name stands in it."""
    return next((peeled for peeled in peel(text) if peeled.program), None)


def between(first: str, stamp: str | None, last: str | None) -> bool:
    """Whether a stamp lies between two others of its day (one second of disorder is the server's own)."""
    one, here, two = Stamp.parse(first), Stamp.parse(stamp), Stamp.parse(last)
    if one is None or here is None or (here.month, here.day) != (one.month, one.day):
        return False
    return one.second - 1 <= here.second and (
        two is None or two.second < one.second or here.second <= two.second
    )


def may_go_on(line: Line) -> bool:
    """Whether it is worth trying: a head, or a first word of the server's, and no remark behind it yet."""
    if line.comment is not None or RAW_TEXT.search(line.text):
        return False
    return bool(line.stamp or line.program or _FIRST_WORD.match(line.text))


def unfinished(text: str, below: str) -> bool:
    """A line that ends with a sign of going on, before one set in far below it; or a file name cut in two."""
    if cut_name(text, below):
        return True
    return text.endswith((";", ",", "(")) and len(below) - len(below.lstrip()) >= _DEEP


def cut_name(text: str, below: str) -> bool:
    """Whether a checkpoint's file name begins on one line and ends on the next."""
    found = re.search(r" file=\S*$", text)
    return found is not None and not text.endswith(".kv") and (text + below.strip(" *~`")).endswith(".kv")


def is_printed(text: str) -> bool:
    """Whether a program printed the line: a stamp, or a program's name in front."""
    first = peel(text)[0]
    return bool(first.stamp or first.program or OTHER_PROGRAM.match(first.text))
