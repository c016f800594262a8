"""The grammar of record, read once: its rules as anchored regular expressions and as Lark parsers.

`parser/grammar.lark` says how a rule is written; here is how it is compiled. A `Template` is one printed form
of a line as a regular expression that Python and Rust read alike; the fast lane and the scan of short inputs
use it. A Lark parser of the same rule takes what people and forks made of the line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from parser.event import KINDS

if TYPE_CHECKING:
    from lark import Lark

GRAMMAR_FILE: Final = Path(__file__).with_name("grammar.lark")

#: First words of terminals that make a field; TRUE is the type of a field without a terminal.
TYPES: Final = ("INT", "FLOAT", "WORD", "TEXT", "LINE", "PATH", "FLAGS", "LIST")
_SPECIAL: Final = re.compile(r"([\\.^$|?*+()\[\]{}])")
_KEY: Final = re.compile(r"([A-Za-z_][\w-]*)=")


@dataclass(frozen=True, slots=True)
class Group:
    """One capture group: the field it fills and that field's type (a word of TYPES, or TRUE)."""

    field: str
    type: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One line kind. `types` maps its fields, in the order of the grammar, to their types; `keys` are the `key=`
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
class Optional:
    """A part of a line that is not always there. `number` counts them within a template."""

    number: int
    parts: tuple[Part, ...]


#: A stretch of regular expression; the field whose capture is in the next stretch; an optional part.
Part: TypeAlias = "str | Group | Optional"


@dataclass(frozen=True, slots=True)
class Template:
    """One printed form of a line. `regex` matches the whole text, its groups are `groups`; `needle`
    is the longest literal that every such line holds; `opening` matches what such a line can begin with."""

    rule: Rule
    needle: str
    parts: tuple[Part, ...]
    regex: str
    groups: tuple[Group, ...]
    opening: str

    @property
    def settles(self) -> bool:
        """Whether a line that fits needs no second look. Free text to the end of the line could hide fields,
        so such lines are left to Lark."""
        return all(group.type != "LINE" for group in self.groups)

    def like(self, text: str) -> Template | None:
        """The form without optional parts that `text` has; None if it is no line of this template.

        Without choices Rust's engine extracts in one pass, three times as fast.
        """
        marked = "".join(_marked(self.parts))
        found = re.fullmatch(marked, text)
        if found is None:
            return None
        return self.variant({int(name[1:]) for name, value in found.groupdict().items() if value is not None})

    def variant(self, there: set[int]) -> Template:
        """The form in which just the optional parts with these numbers stand."""
        return _template(self.rule, self.needle, tuple(_chosen(self.parts, there)))


def _template(rule: Rule, needle: str, parts: tuple[Part, ...]) -> Template:
    regex, opening = "".join(_regex(parts)), "|".join(dict.fromkeys(_openings(parts)))
    return Template(rule, needle, parts, regex, tuple(_groups(parts)), f"(?:{opening})")


def _openings(parts: Iterable[Part]) -> Iterator[str]:
    """Every stretch that can come first: those of optional parts, and the first that must be there."""
    for part in parts:
        if isinstance(part, Optional):
            yield from _openings(part.parts)
        elif isinstance(part, str):
            yield "" if part in ("(", "(?:") else part
            return


def _regex(parts: Iterable[Part]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Optional):
            yield f"(?:{''.join(_regex(part.parts))})?"


def _marked(parts: Iterable[Part]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Optional):
            yield f"(?P<o{part.number}>{''.join(_marked(part.parts))})?"


def _groups(parts: Iterable[Part]) -> Iterator[Group]:
    for part in parts:
        if isinstance(part, Group):
            yield part
        elif isinstance(part, Optional):
            yield from _groups(part.parts)


def _chosen(parts: Iterable[Part], there: set[int]) -> Iterator[Part]:
    for part in parts:
        if not isinstance(part, Optional):
            yield part
        elif part.number in there:
            yield from _chosen(part.parts, there)


def split_symbol(symbol: str) -> tuple[str, str] | None:
    """`kv_hit__hit` -> ("kv_hit", "hit"); None for a symbol that is no line kind."""
    kind, _, name = symbol.partition("__")
    return (kind, name) if name and kind in KINDS else None


def escape(text: str) -> str:
    """A literal as a regular expression of both engines."""
    return _SPECIAL.sub(r"\\\1", text)


class Grammar:
    """The line kinds of one grammar text, in its order. Raises lark's GrammarError for a wrong text."""

    def __init__(self, text: str) -> None:
        from lark.load_grammar import load_grammar

        self.text = text
        self._loaded, _ = load_grammar(text, GRAMMAR_FILE.name, [], False)  # type: ignore[no-untyped-call]
        self._rules = {str(name): tree for name, _, tree, _ in self._loaded.rule_defs}
        self._terminals = {str(name): tree for name, (tree, _) in self._loaded.term_defs}
        self._parsers: dict[str, Lark] = {}
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._fields: dict[str, dict[str, str]] = {}
        self.rules: dict[str, Rule] = {}
        self.templates: list[Template] = []  # all printed forms
        for symbol in self._rules:
            if named := split_symbol(symbol):
                self._add(symbol, *named)

    def _add(self, symbol: str, kind: str, name: str) -> None:
        tree = self._rules[symbol]
        forms = [Compiler(self._rules, self._terminals).form(one) for one in tree.children]
        said = {group.field: group.type for _, parts in forms for group in _groups(parts)}
        of_kind = self._fields.setdefault(kind, {})
        of_kind.update({field: type_ for field, type_ in said.items() if field not in of_kind})
        types = {field: said[field] for field in of_kind if field in said}
        keys = frozenset(key for _, parts in forms for key in _KEY.findall("".join(_regex(parts))))
        used = _names(tree)
        request = not used.isdisjoint({"_request", "_generation"})
        rule = Rule(kind, name, symbol, types, keys, request, "_server" in used)
        self.rules[symbol] = rule
        self.templates += [_template(rule, needle, parts) for needle, parts in forms]

    def fields(self, kind: str) -> Mapping[str, str]:
        """Field -> type over all rules of `kind`, in the order of the grammar."""
        return self._fields.get(kind, {})

    def pattern(self, template: Template) -> re.Pattern[str]:
        """Python's compiled expression of a template, made when it is first needed."""
        found = self._patterns.get(template.regex)
        if found is None:
            found = self._patterns[template.regex] = re.compile(template.regex)
        return found

    @cached_property
    def digits(self) -> tuple[str, ...]:
        """Literals that hold a digit, such as `ds4: Metal 4 tensor API `."""
        strings = (str(ast.literal_eval(token)) for token in re.findall(r'"[^"\n]*[0-9][^"\n]*"', self.text))
        return tuple(dict.fromkeys(strings))

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


class Compiler:
    """Walks one alternative in the form in which Lark's loader leaves it (before EBNF is expanded)."""

    def __init__(self, rules: Mapping[str, Any], terminals: Mapping[str, Any]) -> None:
        self._rules, self._terminals = rules, terminals
        self._optionals = 0
        self._literals: list[str] = []

    def form(self, tree: Any) -> tuple[str, tuple[Part, ...]]:
        """(needle, parts) of the printed form: fields of a `( )*` group each once, in order; nothing that only
        people write."""
        parts = tuple(self._node(tree, must=True))
        return max(self._literals, key=len, default=""), parts

    def pattern(self, terminal: str) -> str:
        """The regular expression of a terminal."""
        return "".join(_regex(self._node(self._terminals[terminal], must=False)))

    def _node(self, tree: Any, must: bool) -> Iterator[Part]:
        if hasattr(tree, "data"):
            yield from getattr(self, f"_on_{tree.data}")(tree.children, must)
        elif tree.is_term:
            yield self._terminal(str(tree.name))
        else:
            yield from self._symbol(str(tree.name), must)

    def _on_expansions(self, children: list[Any], must: bool) -> Iterator[Part]:
        printed = [child for child in children if "ELIDED" not in _names(child)] or children
        if len(printed) == 1:
            yield from self._node(printed[0], must)
            return
        for number, child in enumerate(printed):
            yield "|" if number else "(?:"
            yield from self._node(child, False)
        yield ")"

    def _on_expansion(self, children: list[Any], must: bool) -> Iterator[Part]:
        for child in children:
            yield from self._node(child, must)

    def _on_value(self, children: list[Any], must: bool) -> Iterator[Part]:
        yield from self._node(children[0], must)

    def _on_maybe(self, children: list[Any], must: bool) -> Iterator[Part]:
        self._optionals += 1
        yield Optional(self._optionals, tuple(self._node(children[0], False)))

    def _on_expr(self, children: list[Any], must: bool) -> Iterator[Part]:
        body, operator = children[0], str(children[1])
        if operator == "*":  # the rest of a line, in printed order
            for child in body.children if body.data == "expansions" else [body]:
                if _names(child) != {"_more"}:
                    yield from self._on_maybe([child], must)
        else:
            yield from ("(?:", *self._node(body, False), f"){operator}")

    def _on_literal(self, children: list[Any], must: bool) -> Iterator[Part]:
        token = children[0]
        if token.type == "REGEXP":
            yield str(token)[1 : str(token).rindex("/")].replace("\\/", "/")
            return
        text = str(ast.literal_eval(str(token)))
        if must:
            self._literals.append(text)
        yield escape(text)

    def _symbol(self, name: str, must: bool) -> Iterator[Part]:
        body = self._rules[name]
        if name.startswith("_"):
            yield from self._node(body, must)
        else:
            yield from self._field(name.partition("__")[0], body, must)

    def _field(self, field: str, body: Any, must: bool) -> Iterator[Part]:
        types = [self._type(alternative) for alternative in body.children]
        yield from (Group(field, kind) for kind in types)
        if types == ["TRUE"]:
            yield from ("(", *self._node(body, must), ")")
        else:
            yield from self._node(body, must)

    def _type(self, alternative: Any) -> str:
        words = [name.partition("_")[0] for name in _names(alternative) if name in self._terminals]
        return next((word for word in words if word in TYPES), "TRUE")

    def _terminal(self, name: str) -> str:
        regex = self.pattern(name)
        if name.partition("_")[0] not in TYPES:
            return f"(?:{regex})"
        return regex if re.compile(regex).groups else f"({regex})"
