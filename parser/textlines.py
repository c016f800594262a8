"""Bytes of a log -> cleaned `Line`s, one by one: wrappers off, long records joined, glued lines cut.

The rule for records (log-formats 4.4): the snippet of a failed tool call is raw model text, and an error text
may hold newlines. Physical lines behind such a line belong to it as long as its byte budget lasts
(`text_len=` says exactly how long; else 500 bytes, 4096 for an error text) and they bear no stamp that fits:
a stamp is taken for the server's only if it is not earlier than that of the record (1 s apart at most) and
not later than the first one beyond the budget. So model text that quotes a log cannot forge events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from parser.line import Line
from parser.wrappers import GLUED, MARK, OTHER_PROGRAM, STAMP_LENGTH, uncoloured, unwrap

#: No line of the server is longer; what is behind it is kept in the file but not looked at.
MAX_TEXT: Final = 1 << 14
ERROR_BYTES: Final = 4096
SNIPPET_BYTES: Final = 500
TEXT_SNIPPET_BYTES: Final = 300
#: So many lines behind the budget of a record are asked for a certain stamp.
AFTER_RECORD: Final = 64

#: Every line that can open a record of several lines holds one of these.
OPENERS: Final = (b"text_snippet: ", b"dsml_snippet: ", b'=error error="')

_ENGINE: Final = "ds4: "  # the engine's own lines bear no stamp
_DSML: Final = re.compile(r"invalid tool call dsml_snippet: ((?s:.*))$")
_TEXT: Final = re.compile(r"\[text_len=([0-9]{1,9}) [^\[]*text_snippet: ((?s:.*))$")
_ERROR: Final = re.compile(r'finish=error error="((?s:.*))$')
_ERROR_END: Final = re.compile(r'" +[0-9.]+s$')
_glued, _mark, _other = re.compile(GLUED), re.compile(MARK), re.compile(OTHER_PROGRAM)


def clean_lines(data: bytes, line: int, offset: int, source: int) -> list[Line]:
    """The lines of `data`, which begins with line number `line` at byte `offset` of its source."""
    cleaned: list[Line] = []
    for number, (start, end) in enumerate(_extents(data), line):
        text = data[start : min(end, start + MAX_TEXT)].decode("utf-8", "replace")
        cleaned += clean(text, number, offset + start, end - start, source)
    return list(_joined(cleaned))


def _extents(data: bytes) -> Iterator[tuple[int, int]]:
    """(start, end) of each line without its line end; a line of any length is not copied."""
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        yield start, end
        start = end + 1
    if start < len(data):
        yield start, len(data)


def clean(text: str, line: int, offset: int, length: int, source: int) -> Iterator[Line]:
    """One physical line -> none (blank, a mark of omission), one, or several where stamps are glued."""
    plain = uncoloured(_message(text))
    stamp, program, message = unwrap(plain)
    while _glued.match(message):  # two threads wrote their stamps before their texts
        stamp, program, message = unwrap(message)
    if not message or _mark.match(message):
        return
    if program is None and (other := _other.match(message)):
        program, message = other[1], message[len(other[1]) + 2 :]
    first = Line(line, offset, length, message, stamp, program, source)
    glued = _glue(message)
    if not glued:
        yield first
        return
    at = _bytes(text[: _place(text, message[glued:])]) or 1  # each event has a place of its own
    yield replace(first, text=message[:glued].rstrip(), length=at)
    yield from clean(message[glued:], line, offset + at, length - at, source)


def _glue(message: str) -> int:
    """Where another line of the server begins inside `message`; 0 if nowhere but in raw model text."""
    found = _glued.search(message, 1)
    if found is None or opens_record(message[: found.start()]):
        return 0
    return found.start()


def _place(text: str, rest: str) -> int:
    """Where in the physical line `rest` begins, of which colour codes were taken off: its stamp tells."""
    stamp, end = rest[:STAMP_LENGTH], len(text)
    for _ in range(rest.count(stamp)):
        end = text.rfind(stamp, 0, end)
    return max(end, 0)


def _message(text: str) -> str:
    """The message of a JSON record of journald or docker; any other text as it is."""
    if not text.startswith("{"):
        return text
    import orjson

    try:
        record = orjson.loads(text.encode("utf-8", "replace"))
    except orjson.JSONDecodeError:
        return text
    value = next((record[key] for key in ("MESSAGE", "log", "message", "msg") if key in record), text)
    return _text_of(value) or text


def _text_of(value: Any) -> str:
    """journald writes a message with control bytes as a list of numbers."""
    if isinstance(value, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in value):
        value = bytes(value).decode("utf-8", "replace")
    return value.rstrip("\n") if isinstance(value, str) else ""


def opens_record(text: str) -> bool:
    """Whether the message may go on in the next physical lines."""
    return _DSML.search(text) is not None or _TEXT.search(text) is not None or _open_error(text)


def _open_error(text: str) -> bool:
    return (found := _ERROR.search(text)) is not None and not _ERROR_END.search(found[1]) and text[-1] != '"'


def _joined(lines: list[Line]) -> Iterator[Line]:
    at = 0
    while at < len(lines):
        end = record_end(lines, at)
        yield lines[at] if end == at + 1 else _one(lines[at:end])
        at = end


def _one(lines: Sequence[Line]) -> Line:
    last = lines[-1]
    text = "\n".join((lines[0].text, *(_unwrapped(line) for line in lines[1:])))
    return replace(lines[0], text=text, length=last.offset + last.length - lines[0].offset)


def _unwrapped(line: Line) -> str:
    """The line with what looks like the server's head: within a record it is the model's text."""
    program = f"{line.program}: " if line.program else ""
    return f"{line.stamp} {program}{line.text}" if line.stamp else program + line.text


def record_end(lines: Sequence[Line], at: int) -> int:
    """Index behind the last line of the record that begins at `at` (nearly always `at + 1`)."""
    text = lines[at].text
    if found := _TEXT.search(text):
        missing = min(int(found[1]), TEXT_SNIPPET_BYTES) + 1 - _bytes(found[2])
        return _exact_end(lines, at, missing) or _budget_end(lines, at, missing)
    if found := _DSML.search(text):
        return _budget_end(lines, at, 0 if found[1] == "(none)" else SNIPPET_BYTES - _bytes(found[1]))
    return _error_end(lines, at) if _open_error(text) else at + 1


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _exact_end(lines: Sequence[Line], at: int, missing: int) -> int | None:
    """The end if `text_len` leads exactly to a closing bracket, else None."""
    begin, unwrapped, end = lines[at].offset + lines[at].length, 0, at
    while unwrapped < missing and end + 1 < len(lines):
        end += 1
        unwrapped += _bytes(_unwrapped(lines[end])) + 1
        raw = lines[end].offset + lines[end].length - begin  # exact where nothing was taken off the line
        if missing in (raw, unwrapped) and lines[end].text.endswith("]"):
            return end + 1
    return at + 1 if missing == 0 and lines[at].text.endswith("]") else None


def _budget_end(lines: Sequence[Line], at: int, budget: int) -> int:
    stop = _within(lines, at, budget)
    end = max([at, *(here for here in range(at + 1, stop) if _is_quoted(lines[at], lines[here]))]) + 1
    while end < stop and _continues(lines, at, end, stop):
        end += 1
    return end


def _is_quoted(opener: Line, line: Line) -> bool:
    """A line without stamp and name, where the server stamps its lines: only the model's text prints such, so
    all that stands between the opener and it is the model's too, whatever stamps it bears."""
    bare = line.stamp is None and line.program is None and not line.text.startswith(_ENGINE)
    return opener.stamp is not None and bare


def _within(lines: Sequence[Line], at: int, budget: int) -> int:
    """Index behind the last line that begins within `budget` bytes behind the line `at`."""
    end = at + 1
    while end < len(lines) and budget > 0:
        budget -= _bytes(_unwrapped(lines[end])) + 1
        end += 1
    return end


def _error_end(lines: Sequence[Line], at: int) -> int:
    stop = _within(lines, at, ERROR_BYTES)
    for end in range(at + 1, stop):
        if not _continues(lines, at, end, stop):
            return at + 1
        if _ERROR_END.search(lines[end].text):
            return end + 1
    return at + 1


def _continues(lines: Sequence[Line], at: int, here: int, stop: int) -> bool:
    opener, line = lines[at], lines[here]
    if line.stamp is None:
        return opener.stamp is not None or line.program is None
    if opener.stamp is None or len(line.stamp) != len(opener.stamp):
        return False
    after = (one.stamp for one in lines[stop : stop + AFTER_RECORD])
    beyond = next((stamp for stamp in after if stamp and len(stamp) == len(line.stamp)), None)
    return not _fits(opener.stamp, line.stamp, beyond)


def _fits(before: str, stamp: str, after: str | None) -> bool:
    """Whether `stamp` can stand between the stamps of two certain lines (1 s of disorder, New Year)."""
    rolled = before.startswith("12") and stamp.startswith("01")
    if stamp < before and not rolled and not _close(stamp, before):
        return False
    return after is None or stamp <= after or (after < before and not rolled) or _close(stamp, after)


def _close(one: str, other: str) -> bool:
    """At most one second apart, within a day."""
    return one[:-8] == other[:-8] and abs(_seconds(one) - _seconds(other)) <= 1


def _seconds(stamp: str) -> int:
    hours, minutes, seconds = stamp[-8:].strip().split(":")
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds)
