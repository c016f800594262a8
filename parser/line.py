"""Line: one log line with every wrapper taken off; offset and length lead back to its bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an input, cleaned.

    `text` is the message without wrapper, stamp and program name; `stamp` is as printed or None; `program`
    is "ds4-server", another log name ("ds4-agent"), or None where none was printed. `excerpt` numbers the
    fences, quotes and indented blocks of a report (0 in a plain log). `place` is "log", "excerpt", "inline"
    (back quotes in prose), "cell" (one table cell) or "prose" (never an event). `comment` is a trailing remark
    of the person who pasted it. `elided` is true where "..." or the like stands in place of fields.
    """

    line: int
    offset: int
    length: int
    text: str
    stamp: str | None = None
    program: str | None = None
    source: int = 0
    excerpt: int = 0
    place: str = "log"
    comment: str | None = None
    elided: bool = False
