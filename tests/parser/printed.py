"""Lines made from the grammar: every printed form of every rule, with values of every field type, and the same
lines as people and forks change them."""

import re
from dataclasses import dataclass

from hypothesis import strategies as st

from parser.grammar import Group, Optional, Template, grammar
from parser.text_lane import typed

#: what stands in a free text: nothing that the cleaning of a line takes off, nothing that looks like a field
FREE = st.from_regex(r"[A-Za-z][A-Za-z0-9/._,-]{0,11}(?: [A-Za-z0-9/._-]{1,9}){0,2}", fullmatch=True)
FLAGS = st.lists(
    st.sampled_from(["RESPPROTO", "TOOLS", "THINKING", "DSML_START", "DSML_END"]), min_size=1, unique=True
)
_CAPTURE = re.compile(r"(?<!\\)\((?!\?)")


@dataclass(frozen=True)
class Printed:
    """A line as the server prints it, and what it says."""

    template: Template
    text: str
    fields: dict


@st.composite
def printed(draw, templates=None):
    """A line of any printed form (`templates`: of one of these)."""
    template = draw(st.sampled_from(templates or grammar().templates))
    numbers = sorted(_numbers(template.parts))
    variant = template.variant(draw(st.sets(st.sampled_from(numbers))) if numbers else set())
    fields = {}
    for group, inner in _fields(variant.parts):
        fields[group.field] = True if group.type == "TRUE" else typed(group.type, draw(_value(group, inner)))
    ordered = {name: fields[name] for name in template.rule.types if name in fields}
    return Printed(template, rendered(variant, ordered), ordered)


def rendered(variant, fields):
    """The line of a form without optional parts that says `fields`."""
    return "".join(_render(variant.parts, fields)).rstrip()


def _numbers(parts):
    for part in parts:
        if isinstance(part, Optional):
            yield part.number
            yield from _numbers(part.parts)


def _fields(parts):
    """(field, regular expression of its value), of two notations of one field the first."""
    for group, part in _stretches(parts):
        if group is not None:
            yield group, "" if group.type == "TRUE" else _cut(part)[1]


def _render(parts, fields):
    for group, part in _stretches(parts):
        if group is None or group.type == "TRUE":
            yield example(part)
        else:
            before, _, after = _cut(part)
            yield example(before) + _printed(group, fields[group.field], part) + example(after)


def _stretches(parts):
    """(the field whose value is in it or None, stretch of regular expression)."""
    waiting, skipped = None, False
    for part in parts:
        if isinstance(part, Group):
            waiting = waiting or part
        elif part in ("(?:", "(", ")", "|"):  # of two notations the first
            skipped = part == "|"
        elif not skipped:
            holds = waiting is not None and (waiting.type == "TRUE" or _CAPTURE.search(part))
            yield (waiting, part) if holds else (None, part)
            waiting = None if holds else waiting


def _printed(group, value, part):
    match group.type:
        case "FLAGS":
            return "".join(f"{flag} " for flag in value) if "TOOLS" in part else value[0]
        case "LIST":
            return ",".join(value)
    return str(value)


def _cut(regex):
    """A regular expression around its one capture."""
    start = _CAPTURE.search(regex).start()
    depth, at, inside = 0, start, False
    while True:
        sign = regex[at]
        if sign == "\\":
            at += 1
        elif sign == "[" and not inside:
            inside = True
        elif sign == "]" and inside and regex[at - 1] not in "[^":
            inside = False
        elif not inside:
            depth += (sign == "(") - (sign == ")")
            if depth == 0:
                return regex[:start], regex[start + 1 : at], regex[at + 1 :]
        at += 1


def _value(group, inner):
    match group.type:
        case "INT":
            return st.integers(0, 10**12).map(str)
        case "FLOAT":
            return st.integers(0, 10**9).map(lambda eighths: str(eighths / 8))
        case "FLAGS":
            return (
                FLAGS.map(lambda flags: "".join(f"{flag} " for flag in flags))
                if "TOOLS" in inner
                else st.just("RESPPROTO")
            )
        case "LIST":
            return st.lists(st.from_regex(r"[a-z_?0-9]{1,6}", fullmatch=True), max_size=3).map(",".join)
        case "PATH":
            return FREE.map(lambda text: f"/kv/{text}.kv")
        case "LINE":
            return FREE
        case "TEXT" if inner == "(?s:.*)" or inner == "(?s:.+)" or inner == ".+":
            return FREE
    return st.from_regex(inner, fullmatch=True, alphabet=st.characters(min_codepoint=32, max_codepoint=126))


def example(regex):
    """The first text that a piece of regular expression without captures matches."""
    return "".join(_shortest(re._parser.parse(regex)))  # the standard library's own parser of expressions


def _shortest(tree):
    for kind, value in tree:
        match str(kind):
            case "LITERAL":
                yield chr(value)
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, _, inner = value
                yield "".join(_shortest(inner)) * least
            case "SUBPATTERN":
                yield from _shortest(value[-1])
            case "BRANCH":
                yield from _shortest(value[1][0])
            case "IN":
                kind, value = value[0]
                yield chr(value if str(kind) == "LITERAL" else value[0]) if str(kind) != "NEGATE" else "x"
            case "ANY" | "NOT_LITERAL":
                yield "x"


#: what people and forks do to a line
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["insert", "cut", "drop", "elide", "widen", "append"]),
        st.integers(0, 400),
        st.sampled_from([" ...", " slot=1", " x=5 ms", "  # note", " ← note", " (hm)", "0913 16:22:08 ds4-server: ", '"', "…",
                         "99999999999999999999", " -> so", "; more", "ds4: ", "\u2028", "é", "\0", "\t", "\x1b[31m"]),
    ),
    max_size=3,
)  # fmt: skip


def changed(text, changes):
    """The line after a few changes by hand."""
    for what, place, bit in changes:
        at = place % (len(text) + 1)
        words = text.split(" ")
        match what:
            case "insert":
                text = text[:at] + bit + text[at:]
            case "cut":
                text = text[:at]
            case "drop":
                text = " ".join(words[: at % len(words)] + words[at % len(words) + 1 :])
            case "elide":
                text = re.sub(r"=[^ ]+", "=...", text[:at]) + text[at:]
            case "widen":
                text = text[:at].replace(" ", "  ") + text[at:]
            case "append":
                text += bit
    return text
