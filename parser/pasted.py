"""Physical lines of a report -> lines on offer: joined where they were wrapped, cut where they were glued.

The grammar (through `parse`) decides whether a cleaned text is an event; here it is decided which texts it
sees. Rules are those of docs/mechanisms 2.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from parser.event import Event
from parser.grammar import escape, grammar
from parser.line import Line
from parser.markdown import Physical
from parser.peel import RAW_BYTES, RAW_TEXT, Peeled, peel, split_remark, unescaped, without_cut
from parser.wraps import HEAD, OTHER_PROGRAM, between, cut_name, is_printed, may_go_on, server, unfinished

Parse = Callable[[Line], Event]

MAX_JOINED: Final = 4  # further physical lines that one line of the log may be wrapped over
_TICKS: Final = re.compile(r"`+")
#: How a line of a request must begin where it stands in back quotes in prose (rule 4).
_REQUEST_HEAD: Final = re.compile(
    r"(?:chat|completion)\b|ctx=|(?:RESPPROTO|TOOLS|THINKING|DSML_START|DSML_END)\b"
)
_REQUEST_KINDS: Final = ("prompt_start", "prefill_chunk", "prompt_done", "decoding", "finish", "stream_error")
_LOG_TEXT: Final = re.compile(
    r"kv cache (?:miss|hit|stored|evicted|skipped)|\bctx=\d+\.\.|\bprompt (?:done|start)\b"
    r"|(?:prefill|decoding) chunk|\bfinish=\w|\b(?:common|tokens|live)=\d"
)
#: What joining may take away at the ends of lines.
_GLUE: Final = str.maketrans("", "", ' \t*~`",')
_CELL: Final = re.compile(r"(?:\\.|`[^`]*`|[^|\\`]|`)+|(?<=\|)(?=\|)")


@dataclass(frozen=True, slots=True)
class Found:
    """A line on offer with its event. `weak`: it may repeat what an excerpt says (2.2, the quoted line)."""

    line: Line
    event: Event
    weak: bool = False


def is_event(event: Event) -> bool:
    """False for `foreign` and `unknown`."""
    return event.kind not in ("foreign", "unknown")


def known_fields(event: Event) -> int:
    """How many fields a line says."""
    return sum(value not in (None, []) for value in event.fields.values())


class Offers:
    """Walks over the physical lines once; `excerpt` numbers fences and runs of bare log lines from 1.

    `borrow`: a line without a stamp of its own takes the time of what stands in front of it.
    """

    def __init__(self, lines: list[Physical], parse: Parse, source: int, *, borrow: bool = False) -> None:
        self.lines, self.source, self._borrow = lines, source, borrow
        self._parse, self._parsed = parse, dict[tuple[str, str | None], Event]()
        self._longest = _two_longest(lines)
        self.excerpt = 0
        self.block: int | None = None  # of the excerpt that is open, None between excerpts

    def walk(self) -> Iterator[Found]:
        """Every line on offer, in order."""
        at = 0
        while at < len(self.lines):
            place = self.lines[at].place
            if place == "fence":
                at = yield from self.excerpt_line(at)
            elif place == "row":
                yield from self.row(self.lines[at])
                at += 1
            elif place == "text":
                at = yield from self.paragraph(at)
            else:
                at += 1

    def parse(self, line: Line) -> Event:
        """The event of a line (of an equal one before: only kind, rule and fields are looked at here)."""
        key = line.text, line.program
        if key not in self._parsed:
            self._parsed[key] = self._parse(line)
        return self._parsed[key]

    # -- one line of an excerpt --------------------------------------------------------------------------

    def excerpt_line(self, at: int) -> Generator[Found, None, int]:
        """Offers the line at `at` with what it is wrapped over; returns where to go on."""
        here = self.lines[at]
        if self.block != here.block:
            self.block, self.excerpt = here.block, self.excerpt + 1
        found, at = self.read(at)
        yield from found
        return at

    def read(self, at: int) -> tuple[list[Found], int]:
        """The lines that the physical line at `at` gives, joined with wrapped ones; and where to go on."""
        here = self.lines[at]
        found = [self.offer(peeled, here, "excerpt") for peeled in peel(unescaped(here.text))]
        last, at = self.joined(found[-1], at + 1)
        found[-1] = last
        return found, self.past_raw_text(last, at)

    def offer(self, peeled: Peeled, here: Physical, place: str) -> Found:
        """What a text says if it is a log line, with the place that it was found in."""
        whole = " ".join(peeled.text.split()) if '"' not in peeled.text else peeled.text
        text = without_cut(whole)
        stamp = peeled.stamp or (peeled.worn if self._borrow else None)
        line = Line(
            here.line, here.offset, here.length, text, stamp, peeled.program, self.source,
            self.excerpt, place, peeled.comment, peeled.elided or text != whole,
        )  # fmt: skip
        return Found(line, self.parse(line))

    def joined(self, found: Found, at: int) -> tuple[Found, int]:
        """The line with the physical lines that go on with it: each must add something the grammar knows.

        A wrap may stand at a blank or inside a word, so both ways to glue are tried at each.
        """
        if not may_go_on(found.line) or not (is_event(found.event) or self.may_become_event(at)):
            return found, at
        best, end, tries = found, at, [found]
        for ahead in range(at, min(at + MAX_JOINED, len(self.lines))):
            text, alone = self.going_on(self.lines[ahead], self.lines[at - 1])
            if (
                text is None
                or ("=" in found.line.text and HEAD.match(text))
                or (alone[0] and is_event(best.event))
            ):
                break
            tries = [self.longer(one, glue, text, ahead) for one in tries for glue in self.glues(ahead)]
            longest = max(tries, key=_gain, default=found)
            gain, least = _gain(longest), max(_gain(best), alone)
            cut = self.is_cut(ahead) and is_event(longest.event) and gain >= least
            if gain > least or cut or unfinished(best.line.text, self.lines[ahead].text):
                best, end, tries = longest, ahead + 1, [longest]
            elif is_event(best.event):
                break
            tries = [one for one in tries if one.line.comment is None]
        return best, end

    def may_become_event(self, at: int) -> bool:
        """Whether the lines from `at - 1` on hold a literal of the grammar, however they are glued: most prose
        does not, and need not be tried."""
        texts = (unescaped(line.text) for line in self.lines[at - 1 : at + MAX_JOINED])
        return _packed_literals().search("".join(texts).translate(_GLUE)) is not None

    def glues(self, ahead: int) -> tuple[str, str]:
        """What may stand between a line and the one before it, the likelier first: a blank that the wrap
        swallowed, or nothing where lines are cut at one width or a file name is cut."""
        before, here = self.lines[ahead - 1].text, self.lines[ahead].text
        inside = self.is_cut(ahead) and not before.endswith(" ") and not here.startswith(" ")
        return ("", " ") if inside or cut_name(before, here) else (" ", "")

    def is_cut(self, ahead: int) -> bool:
        """Whether the line before is as wide as the lines of its block are cut."""
        return len(self.lines[ahead - 1].text) == self.width(self.lines[ahead].block)

    def width(self, block: int) -> int:
        """The length at which the lines of a block are cut; -1 where no two of the longest are alike."""
        first, second = self._longest.get(block, (0, -1))
        return first if first == second else -1

    def going_on(self, line: Physical, before: Physical) -> tuple[str | None, tuple[bool, int, int]]:
        """The text of a line that may go on with the one before (of its block, without a head), else None;
        and what it is worth alone."""
        nothing = None, (False, 0, 0)
        if line.block != before.block or line.place != before.place or OTHER_PROGRAM.match(line.text):
            return nothing
        if line.place == "text" and "`" in line.text:
            return nothing
        peeled = peel(unescaped(line.text))
        if len(peeled) > 1 or peeled[0].stamp or peeled[0].program:
            return nothing
        text = unescaped(line.text).strip().rstrip("*~`").removesuffix('",')
        return text, _gain(self.offer(peeled[0], line, "excerpt"))

    def longer(self, found: Found, glue: str, text: str, ahead: int) -> Found:
        """`found` with the next physical line `ahead` put behind it."""
        end = self.lines[ahead]
        message, comment = split_remark(found.line.text + glue + text)
        line = replace(
            found.line, text=message, comment=comment, length=end.offset + end.length - found.line.offset
        )
        return Found(line, self.parse(line))

    def past_raw_text(self, found: Found, at: int) -> int:
        """Where raw model text ends that a tool-call warning quotes: nothing in it is a line of its own.

        It ends with its bracket, with its budget of bytes, or before a line whose stamp fits (`is_after`).
        """
        match = RAW_TEXT.search(found.line.text)
        if match is None or not is_event(found.event):
            return at
        begun = found.line.text[match.end() :].rstrip()
        bracketed = match["what"] == "text_snippet"
        if begun == "(none)" or (bracketed and begun.endswith("]")):
            return at
        end = self.budget_end(at, RAW_BYTES[match["what"]] - len(begun.encode()))
        for ahead in range(at, end) if bracketed else ():
            if self.lines[ahead].text.rstrip().endswith("]"):
                return ahead + 1
        later = next(
            (peeled.stamp for line in self.lines[end : end + 64] if (peeled := server(line.text))), None
        )
        return next((ahead for ahead in range(at, end) if self.is_after(found, ahead, later)), end)

    def budget_end(self, at: int, room: int) -> int:
        """The first line from `at` on that lies beyond `room` bytes (a closing bracket may lie one beyond)."""
        while at < len(self.lines) and (room := room - len(self.lines[at].text.encode()) - 1) >= -1:
            at += 1
        return at

    def is_after(self, found: Found, ahead: int, later: str | None) -> bool:
        """Whether a line within the budget is the server's next: stamped between the record and what follows,
        or, where the record has no stamp, with as much of a head as the record has."""
        peeled = server(self.lines[ahead].text)
        if found.line.stamp is None:
            return bool(peeled) if found.line.program else is_event(self.read(ahead)[0][0].event)
        return peeled is not None and between(found.line.stamp, peeled.stamp, later)

    # -- paragraphs --------------------------------------------------------------------------------------

    def paragraph(self, at: int) -> Generator[Found, None, int]:
        """Bare log lines, prose, and fragments in back quotes that may run over several lines."""
        end, block = at, self.lines[at].block
        while end < len(self.lines) and self.lines[end].block == block and self.lines[end].place == "text":
            end += 1
        prose: list[Physical] = []
        while at < end:
            found, after = self.read(at)
            if self.is_bare(found, self.lines[at]):
                yield from self.quoted(prose)
                prose = []
                yield from self.bare(found)
                at = after
            else:
                prose.append(self.lines[at])
                at += 1
        yield from self.quoted(prose)
        return end

    def is_bare(self, found: list[Found], here: Physical) -> bool:
        """Whether a line outside of fences is a log line as it stands, not prose that begins like one."""
        if "`" in here.text:
            return False
        return any(is_event(one.event) and (one.line.program or not runs_on(one.event)) for one in found)

    def bare(self, found: list[Found]) -> Iterator[Found]:
        """Log lines outside of fences: a run of them is one excerpt."""
        if self.block != -1:
            self.block, self.excerpt = -1, self.excerpt + 1
        for one in found:
            yield replace(one, line=replace(one.line, excerpt=self.excerpt), weak=one.line.stamp is None)

    def quoted(self, prose: list[Physical]) -> Iterator[Found]:
        """Prose lines: fragments in back quotes that are events, and the lines that hold none."""
        if not prose:
            return
        if not all(is_printed(line.text) for line in prose):
            self.block = None  # lines of other programs do not end a run of log lines, words of a person do
        held: set[int] = set()
        for found, lines in self.fragments(prose):
            held |= lines
            yield found
        for line in prose:
            if line.line not in held:
                yield self.as_prose(line)

    def as_prose(self, here: Physical) -> Found:
        """The line as a person's words."""
        line = Line(
            here.line,
            here.offset,
            here.length,
            " ".join(here.text.split()),
            source=self.source,
            place="prose",
        )
        return Found(line, Event(0, here.line, here.offset, here.length, self.source, None, "foreign", ""))

    def fragments(self, prose: list[Physical]) -> Iterator[tuple[Found, set[int]]]:
        """Events in back quotes, each with the numbers of the lines that it stands on.

        Each back quote may open one: a lost partner must not hide what follows.
        """
        text = "\n".join(line.text for line in prose)
        ticks = [match.span() for match in _TICKS.finditer(text)] + [(len(text), len(text))]
        at = 0
        while at < len(ticks) - 1:
            start, end = ticks[at][1], ticks[at + 1][0]
            found = self.fragment(text[start:end], prose[text.count("\n", 0, start)])
            if found:
                lines = {
                    prose[n].line for n in range(text.count("\n", 0, start), text.count("\n", 0, end) + 1)
                }
                for one in found:
                    yield one, lines
                at += 1
            at += 1

    def fragment(self, text: str, here: Physical, place: str = "inline") -> list[Found]:
        """The events of one quoted fragment; empty where it holds none that counts."""
        parts = [part for part in text.split("\n") if part.strip()]
        if len(parts) > 1 and all(self.counted(part, here, place) for part in parts):
            return [one for part in parts for one in self.counted(part, here, place)]
        ways = [self.counted(glue.join(part.strip() for part in parts), here, place) for glue in (" ", "")]
        return max(ways, key=lambda found: [_gain(one) for one in found])

    def counted(self, text: str, here: Physical, place: str) -> list[Found]:
        """The events that a quoted text is, as weak ones; empty where it does not count."""
        offers = (self.offer(peeled, here, place) for peeled in peel(unescaped(text)))
        return [replace(one, weak=True) for one in offers if is_event(one.event) and counts_quoted(one)]

    # -- tables ------------------------------------------------------------------------------------------

    def row(self, here: Physical) -> Iterator[Found]:
        """A table row: log text in one cell counts, in two or more it compares runs and counts nothing."""
        self.block = None
        cells = [cell.strip() for cell in _CELL.findall(here.text.strip().strip("|"))]
        found = [self.cell(cell, here) for cell in cells]
        logs = sum(bool(one) or bool(_LOG_TEXT.search(cell)) for one, cell in zip(found, cells, strict=True))
        events = [one for cell in found for one in cell]
        if logs == 1 and events:
            yield from events
        else:
            yield self.as_prose(here)

    def cell(self, text: str, here: Physical) -> list[Found]:
        """The events of one table cell."""
        if "\n" in text:  # `<br>`
            return [one for part in text.split("\n") for one in self.cell(part, here)]
        if "`" in text:
            line = replace(here, text=text)
            return [replace(one, line=replace(one.line, place="cell")) for one, _ in self.fragments([line])]
        found = [self.offer(peeled, here, "cell") for peeled in peel(unescaped(text)) if text]
        return [replace(one, weak=True) for one in found if is_event(one.event)]


@lru_cache(maxsize=1)
def _packed_literals() -> re.Pattern[str]:
    """Any of the literals of which each line of the log holds one, without what a wrap may swallow."""
    packed = {template.needle.translate(_GLUE) for template in grammar().templates}
    return re.compile("|".join(escape(one) for one in sorted(packed)))


def _two_longest(lines: list[Physical]) -> dict[int, tuple[int, int]]:
    """The lengths of the two longest lines of each block; -1 where there is but one."""
    found: dict[int, tuple[int, int]] = {}
    for line in lines:
        first, second = found.get(line.block, (-1, -1))
        length = len(line.text)
        found[line.block] = (max(first, length), max(second, min(first, length)))
    return found


def _gain(found: Found) -> tuple[bool, int, int]:
    """How well a text reads: as an event, with many fields, with little that no rule knows."""
    rest = found.event.extra.get("rest", "")
    return is_event(found.event), known_fields(found.event), -len(rest)


def runs_on(event: Event) -> bool:
    """Whether words follow that no rule knows: prose that begins like a line of the log."""
    rest = event.extra.get("rest", "")
    return len(re.findall(r"[A-Za-z]{2,}", rest)) >= 2


def counts_quoted(found: Found) -> bool:
    """Rule 4: in back quotes a line must begin with the template's head; with a stamp or name it does."""
    if found.line.stamp or found.line.program:
        return True
    if found.event.rule == "bare":
        return False
    return found.event.kind not in _REQUEST_KINDS or bool(_REQUEST_HEAD.match(found.line.text))
