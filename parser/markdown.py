"""A pasted report -> its physical lines and what each stands in: fence, table, paragraph, trace record.

Tolerant by design: people glue text to fence marks, leave fences open, quote e-mails, paste HTML. Whether a
line is an event does not rest on these places alone (`parser.report`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from parser.peel import in_pieces, unframed, unmarked, visible

_QUOTE: Final = re.compile(r"\s{0,3}(?:>|&gt;)[ \t]?")
_MARK: Final = re.compile(r"(?P<before>\s*(?:(?:[-*+]|\d{1,3}[.)])\s+)?)(?P<mark>`{3,}|~{3,})(?P<rest>.*)")
_INFO: Final = re.compile(r"[ \t]*(?:[\w+#./-]{0,30}|\{[^{}:]*\}|[\w+-]+[ \t]+(?:\w+=\S+|\{[^{}:]*\}))[ \t]*")
_INFO_THEN_TEXT: Final = re.compile(
    r"(?:text|txt|log|logs|console|plaintext|plain|bash|sh|shell|none|ini)[ \t]+(?=\S)"
)
_PRE_OPEN: Final = re.compile(r"<pre\b[^<>]*>(?:\s*<code\b[^<>]*>)?", re.IGNORECASE)
_PRE_CLOSE: Final = re.compile(r"(?:</code\s*>\s*)?</pre\s*>", re.IGNORECASE)
_TABLE_RULE: Final = re.compile(
    r"\s*\|?[ \t]*:?-{2,}:?[ \t]*(?:\|[ \t]*:?-{2,}:?[ \t]*)*\|?\s*|[\s+|=_-]*[+|][\s+|=_-]*"
)
_ROW: Final = re.compile(r"\s*\|.*[^|\s].*\|?\s*", re.DOTALL)

_LONGEST_MARK: Final = 300

#: Marks of what was left out: they count as nothing.
ELISION: Final = re.compile(
    r"[\s>|*-]*(?:\.{2,}|…+|⋮+|:{1,3}|-{2,}|={3,}|_{3,}|\*{3,}|~{3,}"
    r"|[\[(<{]?[\s.…]*(?:snip(?:ped)?|cut|omitted|elided|truncated|and so on|etc\.?|repeat(?:ed|s)?"
    r"|same (?:again|as|line)|\d+ (?:more|similar|identical|other|further)\b|(?:many|several|some) more\b"
    r"|more (?:of the same|lines))\b[^\[\]<>{}]*[\])>}]?"
    r"|[\[(<{][\s.…]*[\])>}]|(?:\.{3}|…)[^=]{0,80}(?:\.{3}|…))\s*"
)

_TRACE_HEAD: Final = re.compile(r"\s*={3,} request \d+ .*={3,}\s*")
_TRACE_END: Final = re.compile(r"\s*={3,} end request \d+ ={3,}\s*")
_TRACE_PART: Final = re.compile(r"\s*--- (?P<name>[a-z][a-z -]*) ---\s*|\s*--- trace: .* ---\s*")
_TRACE_BODIES: Final = ("raw request json", "rendered prompt", "generated text", "parsed message")
#: Keys that stand in no other file: enough to tell a piece of a record whose head was not pasted.
_TRACE_OWN: Final = re.compile(
    r"\s*(?:(?:effective_prompt_tokens|live_tokens_before|live_prompt_common|memory_(?:token_)?reusable|memory_miss_reason"
    r"|tool_replay|cache_source|disk_cached_tokens|disk_cache_file|first_mismatch_token|token_window|stream_include_usage"
    r"|think_mode|dsml_start|dsml_end|elapsed_sec|ignore_eos):\s.*"
    r"|\d+ +(?:==|!=|prompt-only|live-only) +live .*)"
)
_TRACE_ANY: Final = re.compile(
    r"\s*(?:kind|model|stream|tools|prompt_tokens|cached_tokens|max_tokens|temperature|top_k|top_p|min_p|seed|finish"
    r"|generated_tokens): .*"
)


@dataclass(frozen=True, slots=True)
class Physical:
    """One line of the report (a part of one, where text is glued to a fence mark or `<br>` stands in it).

    `place` is "fence", "row" (of a table), "text" (a paragraph, a list, bare log lines), "trace" (of a
    `--trace` record) or "nothing" (blank, fence marks, table rules, elisions).
    `block` numbers fences and paragraphs.
    """

    line: int
    offset: int
    length: int
    text: str
    place: str
    block: int


class _Reader:
    """The state that runs from line to line: the open fence, the open trace record, the block number."""

    def __init__(self) -> None:
        self.block = 0
        self.fence: str | None = None  # the mark that closes it, or "pre"
        self.depth = 0  # of quotes where the fence was opened
        self.trace: str | None = None  # "keys" or "body"
        self.comment = False
        self.was_blank = True
        self.table = False  # one without a border: only its rule tells

    def read(self, raw: str, below: str) -> Iterator[tuple[str, str]]:
        """(text, place) of each part of one physical line; `below` is the line after it."""
        self.table = "|" in raw and (self.table or _is_border(below) or _is_border(raw))
        text, depth = _unquoted(visible(raw))
        if self.fence and self.fence != "pre" and depth < self.depth and text.strip():
            self.close()
        text = self.uncommented(text)
        mark = _MARK.fullmatch(text)
        if self.fence is None:
            yield from self.outside(text, depth, mark)
        else:
            yield from self.inside(text, mark)

    def uncommented(self, text: str) -> str:
        """Without `<!-- … -->`, which a reader of the report does not see."""
        if self.fence is None and not self.comment and "<!--" in text:
            before, _, rest = text.partition("<!--")
            self.comment = "-->" not in rest
            return before + (rest.partition("-->")[2])
        if self.comment and self.fence is None:
            self.comment = "-->" not in text
            return text.partition("-->")[2]
        return text

    def outside(self, text: str, depth: int, mark: re.Match[str] | None) -> Iterator[tuple[str, str]]:
        """A line outside of fences: it may open one."""
        if mark:
            yield from self.opened(mark, depth)
            return
        if _PRE_OPEN.search(text):
            before, after = _PRE_OPEN.split(text, maxsplit=1)
            yield from self.plain(before)
            self.open("pre", depth)
            yield from self.inside(after, None)
            return
        yield from self.plain(text)

    def opened(self, mark: re.Match[str], depth: int) -> Iterator[tuple[str, str]]:
        """A fence mark: a block begins, unless it ends on the same line or is a code span in prose."""
        rest = mark["rest"]
        inner = rest.rstrip().removesuffix(mark["mark"])
        if inner != rest.rstrip() and inner.strip("` ~"):  # opened and closed on one line
            self.block += 1
            yield from self.content(_text_of(inner))
            self.block += 1
            return
        if "`" in rest and mark["mark"][0] == "`" and not _INFO.fullmatch(rest):  # a code span in prose
            yield from self.plain(mark.string)
            return
        self.open(mark["mark"], depth)
        yield "", "nothing"
        if not _INFO.fullmatch(rest):
            yield from self.content(_text_of(rest))

    def inside(self, text: str, mark: re.Match[str] | None) -> Iterator[tuple[str, str]]:
        """A line inside a fence: it may close it."""
        if self.fence == "pre":
            before, *after = _PRE_CLOSE.split(text, maxsplit=1)
            yield from self.content(before)
            if after:
                self.close()
                yield from self.plain(after[0])
            return
        if mark and self.fence and mark["mark"][0] == self.fence[0] and len(mark["mark"]) >= len(self.fence):
            self.close()
            rest = mark["rest"]
            if (
                rest.strip() and not mark["before"].strip()
            ):  # glued: the next excerpt, or prose behind the mark
                yield from self.opened(mark, self.depth)
            else:
                yield "", "nothing"
            return
        body = text.rstrip()
        if self.fence and body.endswith(self.fence) and body.strip(self.fence[0] + " "):
            yield from self.content(body.rstrip(self.fence[0]))
            self.close()
            return
        yield from self.content(text)

    def content(self, text: str) -> Iterator[tuple[str, str]]:
        """A line inside a fence."""
        for part in _parts(text) if self.fence == "pre" else [unframed(text)]:
            place = self.placed(part, "fence")
            yield part, "row" if place == "fence" and _is_row(part) else place

    def plain(self, text: str) -> Iterator[tuple[str, str]]:
        """A line outside any fence."""
        for part in _parts(text):
            blank = not part.strip()
            if blank and not self.was_blank:
                self.block += 1
            self.was_blank = blank
            place = self.placed(part, "text")
            yield part, "row" if place == "text" and (self.table or _is_row(part)) else place

    def placed(self, text: str, default: str) -> str:
        """The place of a line: "trace", "nothing", or `default`."""
        if self.in_trace(text):
            return "trace"
        return "nothing" if is_nothing(text) else default

    def in_trace(self, text: str) -> bool:
        """Whether the line belongs to a `--trace` record; a body reaches to the end mark or fence."""
        if _TRACE_HEAD.fullmatch(text):
            self.trace = "keys"
        elif _TRACE_END.fullmatch(text):
            self.trace = None
        elif part := _TRACE_PART.fullmatch(text):
            self.trace = "body" if part["name"] in _TRACE_BODIES else self.trace or "keys"
        elif self.trace == "body":
            return True
        elif not (_TRACE_OWN.fullmatch(text) or (self.trace and _TRACE_ANY.fullmatch(text))):
            if text.strip():
                self.trace = None
            return False
        elif self.trace is None:
            self.trace = "keys"
        return True

    def open(self, mark: str, depth: int) -> None:
        """A block begins."""
        self.fence, self.depth, self.trace = mark, depth, None
        self.block += 1

    def close(self) -> None:
        """The block ends."""
        self.fence, self.trace, self.was_blank = None, None, True
        self.block += 1


def physical_lines(data: bytes) -> Iterator[Physical]:
    """The lines of a report (UTF-8, bad bytes replaced) with their places; blank ones as "nothing"."""
    reader, offset = _Reader(), 0
    lines = data.split(b"\n")
    for number, raw in enumerate(lines, start=1):
        below = lines[number].decode("utf-8", "replace") if number < len(lines) else ""
        for part in in_pieces(raw.decode("utf-8", "replace").rstrip("\r")):
            for text, place in reader.read(part, below.rstrip("\r")):
                yield Physical(number, offset, len(raw), text, place, reader.block)
        offset += len(raw) + 1


def is_nothing(text: str) -> bool:
    """Blank lines, rules of tables, and marks of what was left out."""
    bare = text.strip()
    if len(bare) > _LONGEST_MARK:
        return set(bare) <= set("|-=+_:.*~ ")
    return not bare or bool(ELISION.fullmatch(bare)) or bool(_TABLE_RULE.fullmatch(bare))


def _text_of(rest: str) -> str:
    """What stands behind a fence mark on its line, without the name of a language in front."""
    rest = rest.strip()
    match = _INFO_THEN_TEXT.match(rest)
    return rest[match.end() :] if match else rest


def _parts(text: str) -> list[str]:
    """The line without HTML and forum marks; a row of a table stays one line whatever its cells hold."""
    parts = unmarked(text) if set(text) & set("<&[{") else [text]
    return ["\n".join(parts)] if len(parts) > 1 and _is_row(" ".join(parts)) else parts


def _is_border(text: str) -> bool:
    return "|" in text and "-" in text and is_table_rule(_unquoted(text)[0])


def _is_row(text: str) -> bool:
    return bool(_ROW.fullmatch(text)) and text.count("|") >= 2


def is_table_rule(text: str) -> bool:
    """The line between the head and the body of a table."""
    bare = text.strip()
    return 0 < len(bare) <= _LONGEST_MARK and bool(_TABLE_RULE.fullmatch(bare))


def _unquoted(text: str) -> tuple[str, int]:
    depth = 0
    while match := _QUOTE.match(text):
        text, depth = text[match.end() :], depth + 1
    return text, depth
