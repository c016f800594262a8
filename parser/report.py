"""A report (Markdown, a pasted issue, an e-mail) -> cleaned lines and hearsay, by docs/mechanisms 2.2.

The grammar decides what is an event; `parser.markdown` and `parser.pasted` decide what is offered to it, and
as what. Every line with text gives a `Line`, but for traces, elisions and rules of tables (rule 7).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from parser.event import Event
from parser.hearsay import Hearsay, hearsay_of
from parser.lanes import event, text_lane
from parser.line import Line
from parser.markdown import physical_lines
from parser.pasted import Found, Offers, Parse, is_event
from parser.peel import is_timed
from parser.sources import Source, read_all
from parser.unpack import HEAD_BYTES
from parser.wrappers import uncoloured, unwrap

MAX_REPORT_BYTES: Final = 16 << 20
#: A log whose only times are those of another program is read as pasted text for their sake, up to so many bytes.
_MAX_BORROWED: Final = 1 << 20

_REPORT_NAMES: Final = (".md", ".markdown", ".mdown", ".mkd", ".eml", ".html", ".htm", ".rst")
_FENCE: Final = re.compile(rb"^[ \t>]*(?:```|~~~)", re.MULTILINE)
_LOG_LINE: Final = re.compile(
    rb"\b\d{4} \d\d:\d\d:\d\d |\bds4(?:-\w+)?(?:\[\d+\])?: |\bctx=\d+\.\."
    rb"|\b(?:kv cache|live|KV disk|decode batch) .*=\d|\bprompt done|^\s*(?:\.\.\.|\xe2\x80\xa6)"
)
#: The server's own head behind text that is no message of its own
_INNER_HEAD: Final = re.compile(r"(?!(?:chat|completion|kv|live|tool) ).{1,200}?ds4-server: ")
_DOTS: Final = re.compile(r"\.\.\.|…")
_PROSE: Final = re.compile(rb"(?:(?<![\w=])[A-Za-z\x80-\xff'()-]{2,24}[,;:.!?]? ){6}")


def is_report(source: Source) -> bool:
    """Whether the input is text with log lines in it rather than a log: by name, fences, quotes, prose."""
    name = source.name.lower().removesuffix(".gz").removesuffix(".zst")
    if name.endswith(_REPORT_NAMES):
        return True
    lines = [line[:2000] for line in source.head.split(b"\n")[:4000] if line.strip()]
    logged = sum(bool(_LOG_LINE.search(line)) for line in lines)
    marked = bool(lines) and lines[0].lstrip().startswith((b"```", b"> "))
    if logged >= 0.8 * len(lines) and not marked:  # a log; fences and prose in it are text of the model
        enough, size = 0.5 * min(len(lines), 200), source.size or 0
        if sum(map(_oddly_wrapped, lines[:200])) >= enough:
            return size <= MAX_REPORT_BYTES
        texts = (uncoloured(line.decode("utf-8", "replace")) for line in lines[:200])
        return size <= _MAX_BORROWED and _borrowed(texts) >= enough
    if len(source.head) < HEAD_BYTES:
        return True  # short and mixed: read as pasted text, which finds log lines as well and hears digests
    prose = sum(line.startswith((b"> ", b"|")) or bool(_PROSE.search(line)) for line in lines)
    fenced = bool(_FENCE.search(source.head))
    return (source.size or 0) <= MAX_REPORT_BYTES and (marked or fenced or prose >= 0.5 * len(lines))


def _oddly_wrapped(line: bytes) -> bool:
    """Something stands before the server's name that only the reading of pasted text takes off."""
    text = unwrap(uncoloured(line.decode("utf-8", "replace")))[2]
    return _INNER_HEAD.match(text) is not None


def _borrowed(texts: Iterable[str]) -> int:
    """Lines whose only time is that of another program; 0 where a stamp of the server's own is seen."""
    timed = 0
    for text in texts:
        if unwrap(text.strip())[0]:
            return 0
        timed += is_timed(text)
    return timed


def read_report(source: Source, *, max_bytes: int | None = None) -> tuple[list[Line], list[Hearsay]]:
    """The lines of a report, ready for `parser.events.parse_lines`, and what it says in other words."""
    text = text_lane()

    def parse(line: Line) -> Event:
        return event(line, text.parse(line.text), 0)

    return read_text(read_all(source, max_bytes=max_bytes or MAX_REPORT_BYTES), parse, source.index)


def read_text(data: bytes, parse: Parse, source: int = 0) -> tuple[list[Line], list[Hearsay]]:
    """The same for the bytes of a report (UTF-8)."""
    physical = list(physical_lines(data))
    borrow = _borrowed(line.text for line in physical) > 0
    found = list(Offers(physical, parse, source, borrow=borrow).walk())
    return _dated([one.line for one in _once(found)]), hearsay_of(physical, found)


def _dated(lines: list[Line]) -> list[Line]:
    """With the first digit of a date that a careless selection lost, as the other stamps have it."""
    dates = {line.stamp[:4] for line in lines if line.stamp and line.stamp[4:5] == " "}
    return [_whole_date(line, dates) if line.stamp and line.stamp[3:4] == " " else line for line in lines]


def _whole_date(line: Line, dates: set[str]) -> Line:
    stamp = line.stamp or ""
    digit = next((date[0] for date in sorted(dates) if date[1:] == stamp[:3]), "0")
    return replace(line, stamp=digit + stamp) if stamp[:3].isdigit() else line


def _once(found: list[Found]) -> list[Found]:
    """Without the lines that the prose quotes and an excerpt shows; in order of the report.

    Equal lines within one excerpt stay. Across excerpts they are one line where both carry the same stamp,
    or where one lost its stamp and the numbers agree.
    """
    shown: dict[str, list[Found]] = {}
    first: dict[tuple[str, str], int] = {}
    for one in found:
        if is_event(one.event) and not one.weak:
            shown.setdefault(one.event.kind, []).append(one)
            if one.line.stamp:
                first.setdefault((one.line.stamp, one.line.text), one.line.excerpt)
    kept = [one for one in found if not _shown_before(one, first) and not _repeats(one, shown)]
    return sorted(_quoted_once(kept), key=lambda one: one.line.line)


def _shown_before(one: Found, first: dict[tuple[str, str], int]) -> bool:
    """A line with date and time that an earlier excerpt shows to the letter."""
    stamp = one.line.stamp or ""
    return " " in stamp and first.get((stamp, one.line.text), one.line.excerpt) < one.line.excerpt


def _repeats(one: Found, shown: dict[str, list[Found]]) -> bool:
    """A quoted line that an excerpt shows, or one without stamp that another excerpt shows with it."""
    if one.line.stamp and not one.weak:
        return False
    others = shown.get(one.event.kind, ())
    if one.weak:
        return any(_same(one.event, other.event) and _stamps_agree(one.line, other.line) for other in others)
    return _telling(one.event) and any(
        other.line.stamp and other.line.excerpt != one.line.excerpt and _same(one.event, other.event)
        for other in others
    )


def _telling(event: Event) -> bool:
    """Numbers that do not repeat by chance: two or more, one of them large."""
    numbers = [value for value in event.fields.values() if isinstance(value, (int, float))]
    return len(numbers) >= 2 and max(numbers) >= 1000


def _quoted_once(found: list[Found]) -> list[Found]:
    """A fragment that the prose quotes twice in the same words is one event."""
    seen: set[tuple[str, str | None]] = set()
    kept: list[Found] = []
    for one in found:
        key = (one.line.text, one.line.stamp)
        if one.weak and one.line.place == "inline":
            if key in seen and any(char.isdigit() for char in one.line.text):
                continue
            seen.add(key)
        kept.append(one)
    return kept


def _same(one: Event, other: Event) -> bool:
    """Equal in every field that both say, and in one at least; dots may stand for a part of a path."""
    said, shown = _said(one), _said(other)
    both = said.keys() & shown.keys()
    if one.rule != other.rule or any(not _agree(said[name], shown[name]) for name in both):
        return False
    return bool(both) or not (said or shown)


def _said(event: Event) -> dict[str, Any]:
    return {name: value for name, value in event.fields.items() if value not in (None, [])}


def _agree(one: Any, other: Any) -> bool:
    return one == other or any(isinstance(value, str) and _DOTS.search(value) for value in (one, other))


def _stamps_agree(one: Line, other: Line) -> bool:
    if one.stamp is None or other.stamp is None:
        return True
    return one.stamp.split()[-1] == other.stamp.split()[-1]
