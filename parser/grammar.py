"""The grammar of record, read once: its rules as anchored regular expressions and as Lark parsers.

`parser/grammar.lark` says how a rule is written; here is how it is compiled. A `Template` is one printed form
of a line as a regular expression that Python and Rust read alike; the fast lane and the scan of short inputs
use it. A Lark parser of the same rule takes what people and forks made of the line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from parser.event import KINDS

if TYPE_CHECKING:
    from lark import Lark

GRAMMAR_FILE: Final = Path(__file__).with_name("grammar.lark")

#: First words of terminals that make a field; TRUE is the type of a field without a terminal.
TYPES: Final = ("INT", "FLOAT", "WORD", "TEXT", "PATH", "FLAGS", "LIST")
_SPECIAL: Final = re.compile(r"([\\.^$|?*+()\[\]{}])")
_KEY: Final = re.compile(r"([A-Za-z_][\w-]*)=")


@dataclass(frozen=True, slots=True)
class Group:
    """One capture group: the field it fills and that field's type (a word of TYPES, or TRUE)."""

    field: str
    type: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One line kind. `types` maps its fields, in the order of the line, to their types; `keys` are the `key=`
    names it knows; `request` is true where the line carries `chat ctx=C..P:S FLAGS`, `headed` where it counts
    only behind the server's name."""

    kind: str
    name: str
    symbol: str
    types: Mapping[str, str]
    keys: frozenset[str]
    request: bool
    headed: bool

    def __hash__(self) -> int:
        return hash(self.symbol)


@dataclass(frozen=True, slots=True)
class Template:
    """One printed form of a line. `regex` matches the whole text, its groups are `groups`;
    `needle` is the longest literal that every such line holds."""

    rule: Rule
    needle: str
    regex: str
    groups: tuple[Group, ...]


def split_symbol(symbol: str) -> tuple[str, str] | None:
    """`kv_hit__hit` -> ("kv_hit", "hit"); None for a symbol that is no line kind."""
    kind, _, name = symbol.partition("__")
    return (kind, name) if name and kind in KINDS else None


def escape(text: str) -> str:
    """A literal as a regular expression of both engines."""
    return _SPECIAL.sub(r"\\\1", text)


class Grammar:
    """The line kinds of one grammar text, in its order. Raises lark.exceptions.GrammarError for a wrong text."""

    def __init__(self, text: str) -> None:
        from lark.load_grammar import load_grammar

        self.text = text
        self._loaded, _ = load_grammar(text, GRAMMAR_FILE.name, [], False)  # type: ignore[no-untyped-call]
        self._rules = {str(name): tree for name, _, tree, _ in self._loaded.rule_defs}
        self._terminals = {str(name): tree for name, (tree, _) in self._loaded.term_defs}
        self._parsers: dict[str, Lark] = {}
        self.rules: dict[str, Rule] = {}
        self.templates: list[Template] = []
        for symbol in self._rules:
            if named := split_symbol(symbol):
                self._add(symbol, *named)

    def _add(self, symbol: str, kind: str, name: str) -> None:
        tree = self._rules[symbol]
        forms = [Compiler(self._rules, self._terminals).form(one) for one in tree.children]
        types = {group.field: group.type for form in forms for group in form.groups}
        keys = frozenset(key for form in forms for key in _KEY.findall(form.regex))
        used = _names(tree)
        request = not used.isdisjoint({"_request", "_generation"})
        rule = Rule(kind, name, symbol, types, keys, request, "_server" in used)
        self.rules[symbol] = rule
        self.templates += [Template(rule, form.needle, form.regex, form.groups) for form in forms]

    def fields(self, kind: str) -> dict[str, str]:
        """Field -> type over all rules of `kind`, in the order of the grammar."""
        merged: dict[str, str] = {}
        for rule in self.rules.values():
            if rule.kind == kind:
                merged = {**merged, **rule.types}
        return merged

    @cached_property
    def compiled(self) -> tuple[tuple[Template, re.Pattern[str]], ...]:
        """The templates with Python's own compiled expressions."""
        return tuple((template, re.compile(template.regex)) for template in self.templates)

    @cached_property
    def values(self) -> dict[str, re.Pattern[str]]:
        """Terminals whose value is a part of what they match, as the group that marks it."""
        regexes = {name: Compiler(self._rules, self._terminals).pattern(name) for name in self._terminals}
        return {name: re.compile(regex) for name, regex in regexes.items() if re.compile(regex).groups}

    def parser(self, symbol: str) -> Lark:
        """The Lark parser of one rule, built when it is first needed (about 10 ms)."""
        if symbol not in self._parsers:
            from lark import Lark
            from lark.load_grammar import Grammar as Loaded

            used = self._reachable(symbol)
            rules = [rule for rule in self._loaded.rule_defs if str(rule[0]) in used]
            terminals = [terminal for terminal in self._loaded.term_defs if str(terminal[0]) in used]
            self._parsers[symbol] = Lark(
                Loaded(rules, terminals, []), start=symbol, parser="lalr", maybe_placeholders=False
            )
        return self._parsers[symbol]

    def _reachable(self, symbol: str) -> set[str]:
        found, todo = set[str](), [symbol]
        while todo:
            if (name := todo.pop()) not in found:
                found.add(name)
                todo += _names(self._rules.get(name, self._terminals.get(name)))
        return found


@lru_cache(maxsize=1)
def grammar() -> Grammar:
    """The grammar of record, loaded once a process."""
    return Grammar(GRAMMAR_FILE.read_text(encoding="utf-8"))


def _names(tree: Any) -> set[str]:
    return {str(node.name) for node in tree.scan_values(lambda value: hasattr(value, "name"))}


@dataclass(frozen=True, slots=True)
class Form:
    """What the compiler makes of one alternative of a rule."""

    regex: str
    needle: str
    groups: tuple[Group, ...]


class Compiler:
    """Walks one alternative in the form in which Lark's loader leaves it (before EBNF is expanded)."""

    def __init__(self, rules: Mapping[str, Any], terminals: Mapping[str, Any]) -> None:
        self._rules, self._terminals = rules, terminals
        self._groups: list[Group] = []
        self._literals: list[str] = []

    def form(self, tree: Any) -> Form:
        """The printed form: fields of a `( )*` group each once, in order; nothing that only people write."""
        regex = self._node(tree, must=True)
        return Form(regex, max(self._literals, key=len, default=""), tuple(self._groups))

    def pattern(self, terminal: str) -> str:
        """The regular expression of a terminal."""
        return self._node(self._terminals[terminal], must=False)

    def _node(self, tree: Any, must: bool) -> str:
        if hasattr(tree, "data"):
            return str(getattr(self, f"_on_{tree.data}")(tree.children, must))
        return self._terminal(str(tree.name)) if tree.is_term else self._symbol(str(tree.name), must)

    def _on_expansions(self, children: list[Any], must: bool) -> str:
        printed = [child for child in children if "ELIDED" not in _names(child)] or children
        parts = [self._node(child, must and len(printed) == 1) for child in printed]
        return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"

    def _on_expansion(self, children: list[Any], must: bool) -> str:
        return "".join(self._node(child, must) for child in children)

    def _on_value(self, children: list[Any], must: bool) -> str:
        return self._node(children[0], must)

    def _on_alias(self, children: list[Any], must: bool) -> str:
        return self._node(children[0], must)

    def _on_maybe(self, children: list[Any], must: bool) -> str:
        return f"(?:{self._node(children[0], False)})?"

    def _on_expr(self, children: list[Any], must: bool) -> str:
        body, operator = children[0], str(children[1])
        if operator == "*":
            return "".join(self._in_order(body))
        return f"(?:{self._node(body, False)}){operator}"

    def _in_order(self, body: Any) -> Iterator[str]:
        for child in body.children if body.data == "expansions" else [body]:
            if regex := self._node(child, False):
                yield f"(?:{regex})?"

    def _on_literal(self, children: list[Any], must: bool) -> str:
        token = children[0]
        if token.type == "REGEXP":
            return str(token)[1 : str(token).rindex("/")].replace("\\/", "/")
        text = str(ast.literal_eval(str(token)))
        if must:
            self._literals.append(text)
        return escape(text)

    def _symbol(self, name: str, must: bool) -> str:
        if name == "_more":
            return ""
        body = self._rules[name]
        return self._node(body, must) if name.startswith("_") else self._field(name.partition("__")[0], body, must)

    def _field(self, field: str, body: Any, must: bool) -> str:
        types = [self._type(alternative) for alternative in body.children]
        self._groups += [Group(field, kind) for kind in types]
        regex = self._node(body, must)
        return f"({regex})" if types == ["TRUE"] else regex

    def _type(self, alternative: Any) -> str:
        words = [name.partition("_")[0] for name in _names(alternative) if name in self._terminals]
        return next((word for word in words if word in TYPES), "TRUE")

    def _terminal(self, name: str) -> str:
        regex = self.pattern(name)
        if name.partition("_")[0] not in TYPES:
            return f"(?:{regex})"
        return regex if re.compile(regex).groups else f"({regex})"
