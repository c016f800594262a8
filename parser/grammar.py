"""The grammar of record, read once: its rules as Lark parsers and as anchored regular expressions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from parser.event import KINDS

if TYPE_CHECKING:
    from lark import Lark
    from lark.grammar import Symbol  # noqa: F401

GRAMMAR_FILE: Final = Path(__file__).with_name("grammar.lark")


@dataclass(frozen=True, slots=True)
class Group:
    """One capture group of a template: which field it fills, and the field's type (INT, FLOAT, ...)."""

    field: str
    type: str


@dataclass(frozen=True, slots=True)
class Template:
    """One printed form of a line: an anchored regular expression that Python and Rust read alike.

    `needle` is the longest text that every such line holds; looking for it costs a memory scan.
    """

    rule: Rule
    needle: str
    regex: str
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One line kind of the grammar. `keys` are the `key=` names that its templates know."""

    kind: str
    name: str
    symbol: str
    types: dict[str, str] = field(hash=False)
    keys: frozenset[str]
    request: bool

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields in the order of the line."""
        return tuple(self.types)


def split_symbol(symbol: str) -> tuple[str, str] | None:
    """`kv_hit__hit` -> ("kv_hit", "hit"); None for a symbol that is no line kind."""
    kind, _, name = symbol.partition("__")
    return (kind, name) if name and kind in KINDS else None


class Grammar:
    """The rules of one grammar text. Raises lark.exceptions.GrammarError where the text is wrong."""

    def __init__(self, text: str) -> None:
        from lark.load_grammar import load_grammar

        self.text = text
        self.loaded, _ = load_grammar(text, str(GRAMMAR_FILE), [], False)
        self._rules = {str(name): tree for name, _, tree, _ in self.loaded.rule_defs}
        self._terminals = {str(name): tree for name, (tree, _) in self.loaded.term_defs}
        self._parsers: dict[str, Lark] = {}
        self.rules: dict[str, Rule] = {}
        self.templates: list[Template] = []
        for symbol in self._rules:
            if named := split_symbol(symbol):
                self._add(symbol, *named)

    def _add(self, symbol: str, kind: str, name: str) -> None:
        compiled = [_Compiler(self._rules, self._terminals).template(tree) for tree in self._rules[symbol].children]
        types = {group.field: group.type for _, _, groups in compiled for group in groups}
        keys = frozenset(key for _, regex, _ in compiled for key in re.findall(r"([A-Za-z_]\w*)=", regex))
        request = any("_request" in _names(tree) or "_generation" in _names(tree) for tree in self._rules[symbol].children)
        rule = self.rules[symbol] = Rule(kind, name, symbol, types, keys, request)
        self.templates += [Template(rule, needle, regex, groups) for needle, regex, groups in compiled]

    def parser(self, symbol: str) -> Lark:
        """The Lark parser of one rule, built when it is first needed (about 10 ms)."""
        if symbol not in self._parsers:
            from lark import Lark
            from lark.load_grammar import Grammar as LarkGrammar

            used = self._reachable(symbol)
            rules = [rule for rule in self.loaded.rule_defs if str(rule[0]) in used]
            terminals = [term for term in self.loaded.term_defs if str(term[0]) in used]
            self._parsers[symbol] = Lark(
                LarkGrammar(rules, terminals, []), start=symbol, parser="lalr", maybe_placeholders=False
            )
        return self._parsers[symbol]

    def _reachable(self, symbol: str) -> set[str]:
        found, todo = set[str](), [symbol]
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                todo += _names(self._rules[name] if name in self._rules else self._terminals[name])
        return found

    @cached_property
    def compiled(self) -> list[tuple[Template, re.Pattern[str]]]:
        """The templates with Python's own compiled expressions."""
        return [(template, re.compile(template.regex)) for template in self.templates]

    @cached_property
    def value_groups(self) -> dict[str, re.Pattern[str]]:
        """Terminals that mark their value with a group."""
        plain = {name: _Compiler(self._rules, self._terminals).terminal(name) for name in self._terminals}
        return {name: re.compile(regex) for name, regex in plain.items() if re.compile(regex).groups}


def _names(tree: Any) -> set[str]:
    return {str(node.name) for node in tree.scan_values(lambda value: hasattr(value, "name"))}


def escape(text: str) -> str:
    """A literal for a regular expression of either engine (`re.escape` escapes blanks, which hides them)."""
    return re.sub(r"([\\.^$|?*+()\[\]{}#&~-])", r"\\\1", text)


def _string(token: str) -> str:
    import ast

    return str(ast.literal_eval(token))


class _Compiler:
    """Turns one alternative of a rule into a regular expression with its groups and its needle."""

    def __init__(self, rules: dict[str, Any], terminals: dict[str, Any]) -> None:
        self.rules, self.terminals = rules, terminals
        self.groups: list[Group] = []
        self.literals: list[str] = []

    def template(self, tree: Any) -> tuple[str, str, tuple[Group, ...]]:
        regex = self.node(tree, must=True)
        return max(self.literals, key=len, default=""), f"^{regex}$", tuple(self.groups)

    def node(self, tree: Any, must: bool) -> str:
        if not hasattr(tree, "data"):
            return self.symbol(str(tree.name), tree.is_term, must)
        return str(getattr(self, f"on_{tree.data}")(tree, must))

    def on_expansions(self, tree: Any, must: bool) -> str:
        must = must and len(tree.children) == 1
        parts = [self.node(child, must) for child in tree.children]
        return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"

    def on_expansion(self, tree: Any, must: bool) -> str:
        return "".join(self.node(child, must) for child in tree.children)

    def on_value(self, tree: Any, must: bool) -> str:
        return self.node(tree.children[0], must)

    def on_alias(self, tree: Any, must: bool) -> str:
        return self.node(tree.children[0], must)

    def on_maybe(self, tree: Any, must: bool) -> str:
        return f"(?:{self.node(tree.children[0], False)})?"

    def on_expr(self, tree: Any, must: bool) -> str:
        body, operator = tree.children[0], str(tree.children[1])
        if operator == "*" and body.data == "expansions":
            return "".join(self.printed_order(body))
        return f"(?:{self.node(body, False)}){operator}"

    def printed_order(self, body: Any) -> Iterator[str]:
        """`( a | b | _more )*` as it is printed: each once, in this order, nothing foreign."""
        for child in body.children:
            regex = self.node(child, False)
            if regex:
                yield f"(?:{regex})?"

    def on_literal(self, tree: Any, must: bool) -> str:
        token = tree.children[0]
        if token.type == "REGEXP":
            return str(token)[1 : str(token).rindex("/")].replace("\\/", "/")
        text = _string(token)
        if must:
            self.literals.append(text)
        return escape(text)

    def symbol(self, name: str, terminal: bool, must: bool) -> str:
        if terminal:
            return self.terminal(name)
        if name in ("_more", "extra", "rest"):
            return ""
        body = self.rules[name]
        return self.node(body, must) if name.startswith("_") else self.field(name, body, must)

    def field(self, name: str, body: Any, must: bool) -> str:
        types = [n for n in _names(body) if n in self.terminals]
        if not types:
            self.groups.append(Group(name.partition("__")[0], "TRUE"))
            return f"({self.node(body, must)})"
        alternatives = []
        for alternative in body.children:
            (type_,) = [n for n in _names(alternative) if n in self.terminals]
            self.groups.append(Group(name.partition("__")[0], type_.partition("_")[0]))
            alternatives.append(self.node(alternative, must and len(body.children) == 1))
        return alternatives[0] if len(alternatives) == 1 else f"(?:{'|'.join(alternatives)})"

    def terminal(self, name: str) -> str:
        regex = _Compiler(self.rules, {}).node(self.terminals[name], False)
        in_field = not name.startswith(("ELIDED", "HTML", "EXTRA", "GAP", "REMARK", "REST"))
        return regex if re.compile(regex).groups or not in_field else f"({regex})"


@lru_cache(maxsize=1)
def grammar() -> Grammar:
    """The grammar of record, loaded once a process."""
    return Grammar(GRAMMAR_FILE.read_text(encoding="utf-8"))
