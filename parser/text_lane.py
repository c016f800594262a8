"""One line of text -> what it says: by its printed form, else by Lark, each digit-masked shape once.

Lark is the oracle of the other lane and takes what people and forks made of a line. What it finds for one
line is learned as a regular expression for all lines that differ in their digits only, so a million lines of
one foreign shape cost one parse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lark import Token, Tree
from lark.exceptions import UnexpectedInput

from parser.grammar import TYPES, Grammar, Rule, Template, escape

MAX_SHAPES: Final = 20_000
INT_MAX: Final = (1 << 63) - 1
_DIGITS: Final = re.compile(r"[0-9]+")
_BLANKS: Final = re.compile(r"  +")
_FOREIGN_FIELD: Final = re.compile(
    r" ([A-Za-z_][\w.-]*)=(?:\"[^\"]*\"|\[[^\]]*\]|[^ ]+)(?: (?:t/s|ms|MiB|GiB|bytes)(?= |$))?"
)
_MASK: Final = "\0"  # cleaned text holds no NUL


@dataclass(frozen=True, slots=True)
class Parsed:
    """What one line says: its rule, the typed fields, and the fields that no rule knows as printed."""

    rule: Rule
    fields: Mapping[str, Any]
    extra: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Span:
    """A field of a parsed line: characters start..end hold it. Type EXTRA and REST go to `Parsed.extra`."""

    field: str
    type: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Learned:
    rule: Rule
    spans: tuple[_Span, ...]
    pattern: re.Pattern[str]


_NEW: Final = _Learned(Rule("", "", "", {}, frozenset(), False, False), (), re.compile(""))


class TextLane:
    """Parses messages (wrapper, stamp and program taken off). `printed=False` leaves every line to Lark."""

    def __init__(self, grammar: Grammar, *, printed: bool = True) -> None:
        self.grammar = grammar
        self._printed = printed
        self._shapes: dict[str, _Learned | None] = {}
        firm = dict.fromkeys(one.opening for one in grammar.templates if "[" not in one.opening)
        self._begins = re.compile("|".join(firm))
        self._loose = [
            one for one in grammar.templates if "[" in one.opening
        ]  # begin with any word or number

    def parse(self, text: str) -> Parsed | None:
        """What the line says, or None if no rule knows it."""
        tidy = _BLANKS.sub(" ", text)
        among = self.grammar.templates if self._begins.match(tidy) else self._loose
        possible = [t for t in among if t.needle in tidy and re.match(t.opening, tidy)]
        return (self._by_template(text, possible) or self._by_shape(text, possible)) if possible else None

    def _by_template(self, text: str, possible: list[Template]) -> Parsed | None:
        for template in possible if self._printed else ():
            if template.settles and (found := self.grammar.pattern(template).fullmatch(text)):
                return self._of_template(template, found)
        return None

    def _of_template(self, template: Template, found: re.Match[str]) -> Parsed:
        spans = [
            _Span(group.field, group.type, *found.span(number))
            for number, group in enumerate(template.groups, 1)
            if found.start(number) >= 0
        ]
        return _parsed(template.rule, [(span, found.string[span.start : span.end]) for span in spans])

    def _by_shape(self, text: str, possible: list[Template]) -> Parsed | None:
        # a digit of a literal is no number: lines of one shape hold the same literals
        shape = "".join((_DIGITS.sub(_MASK, text), *(one for one in self.grammar.digits if one in text)))
        learned = self._shapes.get(shape, _NEW)
        if learned is _NEW:
            return self._first_of(text, shape, dict.fromkeys(template.rule for template in possible))
        if learned is None:
            return None
        found = learned.pattern.fullmatch(text)
        assert found is not None  # same shape
        return _parsed(learned.rule, list(zip(learned.spans, found.groups(), strict=True)))

    def _first_of(self, text: str, shape: str, rules: Iterable[Rule]) -> Parsed | None:
        if len(self._shapes) >= MAX_SHAPES:
            self._shapes.clear()
        best = min(self._attempts(text, rules), key=lambda one: one[0], default=None)
        if best is None:
            self._shapes[shape] = None
            return None
        _, rule, spans = best
        if pattern := _learn(text, spans):
            self._shapes[shape] = _Learned(rule, tuple(spans), re.compile(pattern))
        return _parsed(rule, [(span, text[span.start : span.end]) for span in spans])

    def _attempts(self, text: str, rules: Iterable[Rule]) -> Iterator[tuple[int, Rule, list[_Span]]]:
        """(foreign characters, rule, spans) of every rule that takes the line, in the grammar's order."""
        for rule in rules:
            spans = self._parse(rule, text)
            spans = self._tidied(rule, text) if spans is None else spans
            if spans is not None:
                yield sum(s.end - s.start for s in spans if s.type in ("EXTRA", "REST")), rule, spans

    def _parse(self, rule: Rule, text: str) -> list[_Span] | None:
        try:
            tree = self.grammar.parser(rule.symbol).parse(text)
        except UnexpectedInput:
            return None
        return list(self._spans(tree))

    def _tidied(self, rule: Rule, text: str) -> list[_Span] | None:
        """The same without unknown `key=value` in the middle and without runs of blanks."""
        kept, extra = _without_foreign(rule, text)
        if len(kept) == len(text):
            return None
        spans = self._parse(rule, "".join(text[at] for at in kept))
        if spans is None:
            return None
        ends = [*kept, len(text)]
        moved = [
            _Span(s.field, s.type, ends[s.start], kept[s.end - 1] + 1 if s.end > s.start else ends[s.start])
            for s in spans
        ]
        return sorted(moved + extra, key=lambda span: span.start)

    def _spans(self, tree: Tree[Token]) -> Iterator[_Span]:
        for node in tree.children:
            if isinstance(node, Tree):
                yield self._span(str(node.data), [t for t in node.children if isinstance(t, Token)])

    def _span(self, symbol: str, tokens: list[Token]) -> _Span:
        field = symbol.partition("__")[0]
        token = next((t for t in tokens if t.type.partition("_")[0] in (*TYPES, "EXTRA", "REST")), None)
        if token is None:
            return _Span(field, "TRUE", 0, 0)
        assert token.start_pos is not None
        kind, start, end = token.type.partition("_")[0], token.start_pos, token.start_pos + len(token)
        if marked := self.grammar.values.get(token.type):
            found = marked.fullmatch(token)
            assert found is not None
            start, end = start + found.start(1), start + found.end(1)
        return _Span(field, kind, start, end)


def _without_foreign(rule: Rule, text: str) -> tuple[list[int], list[_Span]]:
    """(places of the characters that stay, the foreign fields that do not)."""
    dropped, extra = set[int](), list[_Span]()
    for found in _FOREIGN_FIELD.finditer(text):
        if found[1] not in rule.keys:
            dropped.update(range(found.start(), found.end()))
            extra.append(_Span("extra", "EXTRA", found.start(), found.end()))
    for found in _BLANKS.finditer(text):
        dropped.update(range(found.start() + 1, found.end()))
    return [at for at in range(len(text)) if at not in dropped], extra


def _learn(text: str, spans: list[_Span]) -> str | None:
    """The line as a regular expression: digits free, the spans as groups. None if a span cuts a number or a
    name of a foreign field holds digits."""
    marks = sorted({0, len(text), *(s.start for s in spans), *(s.end for s in spans)})
    if any(0 < at < len(text) and text[at - 1].isdigit() and text[at].isdigit() for at in marks):
        return None
    parts, at = [], 0
    for span in spans:
        if span.start < at and span.type != "TRUE":
            return None
        start, end = (at, at) if span.type == "TRUE" else (span.start, span.end)
        parts += [_masked(text[at:start]), "(", _masked(text[start:end]), ")"]
        at = end
    return "".join([*parts, _masked(text[at:])])


def _masked(text: str) -> str:
    return "[0-9]+".join(escape(part) for part in _DIGITS.split(text))


def _parsed(rule: Rule, found: list[tuple[_Span, str]]) -> Parsed:
    values, extra = dict[str, Any](), dict[str, str]()
    for span, text in found:
        if span.type == "EXTRA":
            key, _, value = text.strip().partition("=")
            extra.setdefault(key, value)
        elif span.type == "REST":
            extra["rest"] = f"{extra['rest']} {text.strip()}" if "rest" in extra else text.strip()
        elif (value := typed(span.type, text)) is None:
            extra.setdefault(span.field, text)
        else:
            values.setdefault(span.field, value)
    if "flags" in rule.types and (not rule.request or "span_end" in values):
        values.setdefault("flags", [])  # they would stand here: none is not the same as unknown
    return Parsed(rule, {name: values[name] for name in rule.types if name in values}, extra)


def typed(kind: str, text: str) -> Any:
    """The value of a field of type `kind` (a word of TYPES, or TRUE); None for a number that does not fit."""
    match kind:
        case "INT":
            return _whole(text)
        case "FLOAT":
            return _number(text)
        case "FLAGS":
            return text.split()
        case "LIST":
            return text.split(",") if text else []
        case "TRUE":
            return True
        case "PATH":
            return text if text.endswith(".kv") or ".kv " not in text else text[: text.rindex(".kv ") + 3]
    return text


def _whole(text: str) -> int | None:
    value = int(text) if len(text) < 24 else INT_MAX + 1
    return value if -INT_MAX <= value <= INT_MAX else None


def _number(text: str) -> float | None:
    value = float(text)
    return value if value < float("inf") else None
