"""The fast lane: a block of a log as columns. Literals dispatch, Rust's regular expressions extract.

It takes the lines whose meaning the printed forms settle; the others come back as stretches of the block and
go to the text lane. Both lanes read the same grammar, so on every line they say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import polars as pl

from parser.event import BULK_KINDS, KINDS
from parser.frames import constant, where
from parser.grammar import Grammar, Group, Template
from parser.rawlines import cleaned, stretches
from parser.wrappers import GLUED, OTHER_PROGRAM

MAX_VARIANTS: Final = 12
SAFE_DIGITS: Final = 18  # of a number that fits 64 bits whatever it is
_FREE: Final = ("TEXT", "PATH")
_LONGEST: Final = "longest number"


@dataclass(frozen=True, slots=True)
class Taken:
    """What the fast lane makes of a block: frames by kind, in file order (columns as `schema`, without `seq` and
    those that no line fills), and what it leaves to the text lane: (line, offset, length) of stretches of lines."""

    frames: dict[str, pl.DataFrame]
    left: list[tuple[int, int, int]]


class FastLane:
    """Takes blocks; kinds that were frequent in the last one are tried first. With `kinds`, only these are
    taken, and lines of others are left."""

    def __init__(self, grammar: Grammar, kinds: Iterable[str] | None = None) -> None:
        wanted = set(KINDS if kinds is None else kinds)
        templates = [template for template in grammar.templates if template.rule.kind in wanted]
        self._templates: dict[str, list[_Extractor]] = {}
        for template in (one for one in templates if one.settles):
            self._templates.setdefault(template.rule.kind, []).append(_Extractor(template))
        self._hits = {
            kind: _dispatcher(one.template for one in several) for kind, several in self._templates.items()
        }
        self._any = _dispatcher(templates)
        self._order = sorted(self._templates, key=lambda kind: kind not in BULK_KINDS)

    def take(self, lines: pl.DataFrame, data: bytes, source: int) -> Taken:
        """The events of `lines` (as `physical` gives them). `data` holds their bytes, made valid."""
        rows, odd = cleaned(lines, data)
        frames, rest, cut = self._dispatch(rows)
        foreign, unsettled = self._foreign(rest)
        if len(foreign):
            frames["foreign"] = [foreign.with_columns(_rule=pl.lit(""))]
        left = pl.concat([odd, *(frame["line"] for frame in (*cut, unsettled))]).unique().sort()
        placed = {kind: _placed(several, source) for kind, several in frames.items() if several}
        return Taken(placed, stretches(lines, left))

    def _dispatch(
        self, rows: pl.DataFrame
    ) -> tuple[dict[str, list[pl.DataFrame]], pl.DataFrame, list[pl.DataFrame]]:
        """(frames, rows of no printed form, rows of one that need a closer look)."""
        frames: dict[str, list[pl.DataFrame]] = {}
        cut: list[pl.DataFrame] = []
        for kind in self._order:
            if rows.is_empty():
                break
            hit = self._hits[kind](rows["_text"])
            if hit.any():
                found, others, odd = self._extract(kind, where(rows, hit))
                if found or odd:
                    frames[kind] = found
                    cut += odd
                    rows = _merged(where(rows, ~hit), others)
        # a new list: another thread may be walking the old one
        self._order = sorted(self._order, key=lambda kind: -sum(map(len, frames.get(kind, ()))))
        return frames, rows, cut

    def _extract(
        self, kind: str, rows: pl.DataFrame
    ) -> tuple[list[pl.DataFrame], pl.DataFrame, list[pl.DataFrame]]:
        found: list[pl.DataFrame] = []
        cut: list[pl.DataFrame] = []
        for extractor in self._templates[kind]:
            if rows.is_empty():
                break
            taken, rows, odd = extractor.extract(rows)
            found, cut = found + taken, cut + odd
        return found, rows, cut

    def _foreign(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """(lines that hold nothing of the server, lines that may)."""
        if rows.is_empty():
            return rows.drop("program"), rows
        text = rows["_text"]
        tidy = text.str.replace_all("  +", " ")
        maybe = (
            self._any(tidy) | (rows["program"] == "ds4-server").fill_null(False) | text.str.contains(GLUED)
        )
        maybe |= text.str.contains(OTHER_PROGRAM) & rows["program"].is_null()
        return rows.filter(~maybe).drop("program"), rows.filter(maybe)


def _placed(frames: list[pl.DataFrame], source: int) -> pl.DataFrame:
    """Frames of one kind as one, in file order."""
    one = frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal").sort("offset")
    return one.hstack([constant("_source", source, pl.Int32(), len(one))])


def _merged(rows: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([rows, others]).sort("line") if len(others) else rows


def _dispatcher(templates: Iterable[Template]) -> Callable[[pl.Series], pl.Series]:
    """A test whether a text holds any of the needles."""
    needles = list(dict.fromkeys(template.needle for template in templates))
    if len(needles) == 1:
        return lambda text: text.str.contains(needles[0], literal=True)
    return lambda text: text.str.contains_any(needles)


class _Extractor:
    """Applies one template to rows that may hold it: first the variants that this log has shown to print."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self._all = _Form(template)
        self._variants: list[_Form] = []

    def extract(self, rows: pl.DataFrame) -> tuple[list[pl.DataFrame], pl.DataFrame, list[pl.DataFrame]]:
        """(frames of the lines of this form, the other rows, rows of this form that need a closer look)."""
        found: list[pl.DataFrame] = []
        odd: list[pl.DataFrame] = []
        for form in self._variants:
            rows = form.extract(rows, found, odd)
        while len(rows) and (variant := self._new(rows["_text"][0])):
            rows = variant.extract(rows, found, odd)
        if len(rows):
            rows = self._all.extract(rows, found, odd)
        return found, rows, odd

    def _new(self, text: str) -> _Form | None:
        """The variant that `text` is, if it is a new one and holds no free text (which could hide an optional)."""
        variant = self.template.like(text) if len(self._variants) < MAX_VARIANTS else None
        if variant is None or any(group.type in _FREE for group in variant.groups):
            return None
        if any(form.template.regex == variant.regex for form in self._variants):
            return None
        self._variants.append(_Form(variant))
        return self._variants[-1]


class _Form:
    """One regular expression at work."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self._regex = f"^{template.regex}()$"
        self._done = str(len(template.groups) + 1)
        numbers = [str(n) for n, group in enumerate(template.groups, 1) if group.type in ("INT", "FLOAT")]
        longest = pl.max_horizontal(pl.col(numbers).str.len_bytes().max()) if numbers else pl.lit(0)
        self._long = [pl.col(number).str.len_bytes().fill_null(0) > SAFE_DIGITS for number in numbers]
        self._free = any(group.type in _FREE for group in template.groups)
        by_field: dict[str, list[pl.Expr]] = {}
        for number, group in enumerate(template.groups, 1):
            by_field.setdefault(group.field, []).append(_typed(pl.col(str(number)), group))
        if "flags" in template.rule.types:
            by_field.setdefault("flags", []).append(_no_flags(template))
        fields = [
            (several[0] if len(several) == 1 else pl.coalesce(several)).alias(field)
            for field, several in by_field.items()
        ]
        self._said = [longest.alias(_LONGEST), *fields]
        self._names = list(by_field)

    def extract(self, rows: pl.DataFrame, found: list[pl.DataFrame], odd: list[pl.DataFrame]) -> pl.DataFrame:
        """Adds the lines of this form to `found`, those that need a closer look to `odd`; returns the others."""
        if rows.is_empty():
            return rows
        groups = rows["_text"].str.extract_groups(self._regex).struct.unnest()
        others, rows, groups = self._matching(rows, groups)
        if rows.is_empty():
            return others
        groups = groups.with_columns_seq(self._said)
        strange = self._strange(rows, groups)
        if strange is not None:
            odd.append(where(rows, strange))
            rows, groups = where(rows, ~strange), where(groups, ~strange)
        if len(rows):
            name = constant("_rule", self.template.rule.name, pl.String(), len(rows))
            place = [column for column in rows.get_columns() if column.name != "program"]
            found.append(pl.DataFrame([*place, *(groups[field] for field in self._names), name]))
        return others

    def _matching(
        self, rows: pl.DataFrame, groups: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        done = groups[self._done]
        if self.template.rule.headed:
            ok = done.is_not_null() & (rows["program"] == "ds4-server").fill_null(False)
        elif not done.null_count():
            return rows.clear(), rows, groups
        else:
            ok = done.is_not_null()
        return where(rows, ~ok), where(rows, ok), where(groups, ok)

    def _strange(self, rows: pl.DataFrame, groups: pl.DataFrame) -> pl.Series | None:
        """Rows with a number that may not fit, or with another line glued into a free text."""
        odd = rows["_text"].str.contains(GLUED) if self._free else None
        if (groups[_LONGEST][0] or 0) > SAFE_DIGITS:
            long = groups.select(strange=pl.any_horizontal(self._long))["strange"]
            odd = long if odd is None else odd | long
        return odd if odd is not None and odd.any() else None


def _no_flags(template: Template) -> pl.Expr:
    """The empty list, but where the part of the line in which flags stand may be cut off."""
    none = pl.lit([], pl.List(pl.String))
    if not template.rule.request:
        return none
    ends = [str(number) for number, group in enumerate(template.groups, 1) if group.field == "span_end"]
    return (
        pl.when(pl.any_horizontal(pl.col(ends).is_not_null())).then(none)
        if ends
        else pl.lit(None, pl.List(pl.String))
    )


def _typed(group: pl.Expr, meant: Group) -> pl.Expr:
    match meant.type:
        case "INT":
            return group.cast(pl.Int64, strict=False)
        case "FLOAT":
            return group.cast(pl.Float64, strict=False)
        case "FLAGS":
            return group.str.strip_chars_end(" ").str.split(" ")
        case "LIST":
            return pl.when(group == "").then(pl.lit([], pl.List(pl.String))).otherwise(group.str.split(","))
        case "TRUE":
            return pl.when(group.is_not_null()).then(True)
        case "PATH":
            return (
                pl.when(group.str.ends_with(".kv"))
                .then(group)
                .otherwise(group.str.replace(r"^((?s:.*)\.kv) (?s:.*)$", "$1"))
            )
    return group
