"""What a report says without log lines: digests, tables, figures in prose, errors of clients, options.

None of it is an event (docs/mechanisms 2.2, rule 6). A finding that rests on it ranks behind one that rests
on events and carries low confidence (section 5, rule 7).

| kind | said by | fields (each only where said) |
|---|---|---|
| `stored` `evicted` `kept` `hit` `skipped` | a retyped line | stamp, tokens, reason, hits, size_mib, times |
| `miss` | `common=97216`, `live=… prompt=…` | stamp, live, prompt, common, times |
| `request` | a line a request | stamp, end_stamp, span_start, span_end, span_tokens, prefill_s, finish, … |
| `prefill` | `prefill done 900s` | stamp, end_stamp, prefill_s, tokens, rate_tps |
| `settings` | `key = value` lines in a row | the keys with their numbers or words |
| `outcome` | a table or list of lengths | tokens, status (HTTP), ok, error |
| `row` | any other table | one entry a column, under the column's heading |
| `error` | text of an engine, an HTTP answer | status, message, tool_ids, position_tokens, engine (bool) |
| `option` | a command line or prose | name (with dashes), value, where ("command", "prose"), negated |
| `figure` | prose | value, high (of a range), unit, per, about |
| `comment` | a remark behind a line | tokens, seconds, … as far as it says |
| `trace` | a pasted piece of a `--trace` record | its keys |
| `prose` | everything else | - |

Units: tokens, seconds (`_s`), MiB (`_mib`), tokens per second (`_tps`); `stamp` is as printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from parser.digest import digest, facts, is_setting, settings, table
from parser.markdown import Physical
from parser.pasted import Found, is_event
from parser.said import errors, figures, options


@dataclass(frozen=True, slots=True)
class Hearsay:
    """One statement: its kind, the 1-based line of the report, what it says, and the text (bounded, raw)."""

    kind: str
    line: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""


MAX_TEXT = 2000
_OF_MISS = frozenset({"live", "prompt", "common"})


def hearsay_of(physical: Sequence[Physical], found: Iterable[Found]) -> list[Hearsay]:
    """What the lines say that are no events, in order of the report."""
    taken = {one.line.line for one in found if is_event(one.event)}
    said = list(_remarks(found))
    texts = [line for line in physical if line.place != "nothing" and line.text.strip()]
    for _, group in groupby(
        texts, key=lambda line: (line.block, line.place in ("row", "trace") and line.place)
    ):
        said += _block(list(group), taken)
    return sorted(said, key=lambda one: one.line)


def _block(lines: list[Physical], taken: set[int]) -> Iterator[Hearsay]:
    """One fence, paragraph, table or piece of a trace."""
    for line in lines:
        yield from (_heard("option", line, one) for one in options(line.text))
    if lines[0].place == "trace":
        keys = settings([line.text for line in lines], ":")
        yield _heard("trace", lines[0], keys, "\n".join(line.text for line in lines))
        return
    rest = [line for line in lines if line.line not in taken]
    for at, one in errors([line.text for line in rest]):
        yield _heard("error", rest[at], one)
    if lines[0].place == "row":
        for at, kind, one in table([line.text for line in rest]):
            yield _heard(kind, rest[at], one)
        return
    yield from _lines(rest)


def _lines(lines: list[Physical]) -> Iterator[Hearsay]:
    """Digests, `key = value` blocks, and prose with its figures."""
    block = [line for line in lines if is_setting(line.text)]
    keyed = settings([line.text for line in block], "=")
    if len(keyed) >= 2:
        text = "\n".join(line.text for line in block)
        yield _heard("settings", block[0], keyed, text)
        told = {name: value for name, value in keyed.items() if name in _OF_MISS and isinstance(value, int)}
        if "common" in told:
            yield _heard("miss", block[0], told, text)
        lines = [line for line in lines if line not in block]
    for line in lines:
        heard = digest(line.text)
        if heard is not None:
            yield _heard(heard[0], line, heard[1])
            continue
        yield from (_heard("figure", line, one) for one in figures(line.text))
        if line.place == "text":
            yield _heard("prose", line, {})


def _remarks(found: Iterable[Found]) -> Iterator[Hearsay]:
    for one in found:
        if one.line.comment:
            yield Hearsay("comment", one.line.line, facts(one.line.comment), one.line.comment[:MAX_TEXT])


def _heard(kind: str, line: Physical, fields: Mapping[str, Any], text: str | None = None) -> Hearsay:
    return Hearsay(kind, line.line, dict(fields), (line.text if text is None else text).strip()[:MAX_TEXT])
