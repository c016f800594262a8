"""Why a line is not known: the rule that it nearly meets, and where it leaves it. Lark says both."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from parser.grammar import Grammar, Rule

#: So many rules that share words with the line are tried.
TRIED: Final = 12
#: So many characters must fit.
LEAST: Final = 8
_WORDS: Final = re.compile(r"[A-Za-z_]{2,}")


@dataclass(frozen=True, slots=True)
class NearMiss:
    """`rule` is a symbol of the grammar; the line follows it up to the 1-based `column` of the message, where
    the rule has one of `expected`: quoted literals, names of terminals, or the end of the line."""

    rule: str
    column: int
    expected: tuple[str, ...]


def near_miss(grammar: Grammar, text: str) -> NearMiss | None:
    """The rule that a message follows the longest; None if it follows none (or is a line of the first tried)."""
    misses = [miss for rule in _alike(grammar, text) if (miss := _miss(grammar, rule, text))]
    return max(misses, key=lambda miss: miss.column, default=None)


def _alike(grammar: Grammar, text: str) -> list[Rule]:
    """The rules that share most words with the line."""
    words = set(_WORDS.findall(text))
    score: dict[Rule, int] = {}
    for template in grammar.templates:
        shared = len(words.intersection(_WORDS.findall(template.regex)))
        score[template.rule] = max(score.get(template.rule, 0), shared)
    return [rule for rule in sorted(score, key=lambda rule: -score[rule])[:TRIED] if score[rule]]


def _miss(grammar: Grammar, rule: Rule, text: str) -> NearMiss | None:
    try:
        grammar.parser(rule.symbol).parse(text)
    except UnexpectedInput as error:
        at = _left_at(error, text)
        expected = sorted(_said(grammar, rule, name) for name in _expected(error))
        return NearMiss(rule.symbol, at + 1, tuple(expected)) if at >= LEAST else None
    return None


def _left_at(error: UnexpectedInput, text: str) -> int:
    if error.pos_in_stream is None or (isinstance(error, UnexpectedToken) and error.token.type == "$END"):
        return len(text)
    return error.pos_in_stream


def _expected(error: UnexpectedInput) -> Iterable[str]:
    if isinstance(error, UnexpectedCharacters):
        return error.allowed or ()
    return error.accepts or error.expected if isinstance(error, UnexpectedToken) else ()


def _said(grammar: Grammar, rule: Rule, terminal: str) -> str:
    """A terminal as a person reads it: the literal text, or the name of the type."""
    if terminal == "$END":
        return "end of line"
    pattern = grammar.parser(rule.symbol).get_terminal(terminal).pattern
    return repr(pattern.value) if pattern.type == "str" else terminal
