"""Lines -> events: whole inputs block by block, single lines, cleaned lines of a report."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from parser.event import Event
from parser.eventlog import EventLog
from parser.grammar import Grammar, Template, grammar
from parser.line import Line
from parser.sources import find_sources, iter_blocks

_HEAD = re.compile(r"^(?:((?:[0-9]{4} )?[0-9]{1,2}:[0-9]{2}:[0-9]{2}) +)?(?:(ds4-server|ds4-agent): )?")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def _value(text: str, kind: str) -> Any:
    match kind:
        case "INT":
            return int(text)
        case "FLOAT":
            return float(text)
        case "FLAGS":
            return text.split()
        case "LIST":
            return text.split(",") if text else []
        case "TRUE":
            return True
    return text


def _match(text: str, grammar: Grammar) -> tuple[Template, dict[str, Any]] | None:
    for template, pattern in grammar.compiled:
        if template.needle in text and (found := pattern.fullmatch(text)):
            fields = {
                group.field: _value(value, group.type)
                for group, value in zip(template.groups, found.groups(), strict=True)
                if value is not None
            }
            return template, fields
    return None


def parse_lines(lines: Iterable[Line]) -> EventLog:
    """Events of lines that are cleaned already (a report's excerpts). One event a line."""
    return EventLog([_event(seq, line) for seq, line in enumerate(lines)])


def _event(seq: int, line: Line) -> Event:
    found = _match(line.text, grammar())
    kind, rule, fields = "foreign", "", {}
    if found:
        kind, rule, fields = found[0].rule.kind, found[0].rule.name, found[1]
    elif line.program == "ds4-server":
        kind = "unknown"
    return Event(
        seq, line.line, line.offset, line.length, line.source, line.stamp, kind, rule, fields, {},
        line.text, line.excerpt, line.place,
    )  # fmt: skip


def _clean(text: str, line: int, offset: int, source: int) -> Line:
    plain = _COLOUR.sub("", text).rstrip("\r\n ")
    head = _HEAD.match(plain)
    assert head is not None
    return Line(line, offset, len(text.encode()), plain[head.end() :], head[1], head[2], source)


def parse_line(text: str, *, line: int = 1, offset: int = 0) -> Event:
    """The event of one line as printed, with or without stamp and program name."""
    return _event(0, _clean(text, line, offset, 0))


def read_events(
    inputs: Sequence[str | os.PathLike[str]],
    *,
    lane: str = "auto",
    max_bytes: int | None = None,
    since: str | None = None,
    until: str | None = None,
) -> Iterator[EventLog]:
    """Event logs of INPUT, block by block; `seq` and line numbers run on over the blocks."""
    seq = 0
    for source in find_sources(list(inputs)):
        for block in iter_blocks(source, max_bytes=max_bytes):
            events, offset = [], block.offset
            for number, raw in enumerate(block.data.split(b"\n"), block.line):
                text = raw.decode("utf-8", "replace")
                if text.strip():
                    events.append(_event(seq, _clean(text, number, offset, block.source)))
                    seq += 1
                offset += len(raw) + 1
            yield EventLog(events)
