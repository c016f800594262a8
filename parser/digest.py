"""Retyped log lines, `key = value` blocks and tables -> what they say, as typed fields.

People shorten a log in their own words and order; this reads quantities by their key, unit or neighbour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from parser.peel import peel, unescaped

_CLOCK: Final = r"(?:\d{4} )?\d{1,2}:\d\d(?::\d\d)?"
_DIGIT: Final = re.compile(r"\d")
_RANGE: Final = re.compile(
    rf"(?P<from>{_CLOCK})\s*(?:→|->|=>|–|—|-|\bto\b|\.\.|…)\s*(?P<to>{_CLOCK})[,;:]?\s+"
)
_VERB: Final = re.compile(
    r"\b(?:(?P<stored>stored|saved|written|wrote|store)"
    r"|(?P<evicted>evicted|deleted|removed|thrown out|evict(?=\s+\d))"
    r"|(?P<kept>kept|stays|stayed)|(?P<skipped>skipped)|(?P<hit>hit|loaded|restored|restore)(?!s?=)"
    r"|(?P<prefill>prefill(?:ed|s)?|prompt done|cold start)|(?P<miss>miss(?:es|ed)?))\b",
    re.IGNORECASE,
)
_REASON: Final = re.compile(
    r"\b(?:reason=)?(cold|continued|evict|shutdown|disk-cache-full|interval-catchup)\b"
)
_INT: Final = r"\d{1,3}(?:[,_' ]\d{3})+|\d+"
_SPAN: Final = re.compile(r"\b(\d+)\.\.(\d+)(?::(\d+))?")
_KEY: Final = re.compile(r"\b(?P<key>[A-Za-z][\w.-]{0,40})(?:\s?=\s?|:\s)(?P<value>\"[^\"]*\"|[^\s,;)]+)")
_SIZE: Final = re.compile(r"(?<![\d,.])(?P<n>\d[\d,]*(?:\.\d+)?)\s?(?P<unit>[KMGT])i?B\b")
_SECONDS: Final = re.compile(
    r"(?<![\w.=])~?(?P<n>\d+(?:[.,]\d+)?)\s?(?P<unit>ms|s|secs?|seconds?|mins?|minutes?|h|hours?)\b"
)
_LONG: Final = re.compile(  # 13 min 22 s, 1h 5m 3s
    r"(?<![\w.=])(?:(?P<h>\d+)\s?h(?:ours?|rs?)?[ ,]*)?(?P<m>\d+)\s?m(?:in(?:ute)?s?)?[ ,]*(?:and )?"
    r"(?P<s>\d+(?:\.\d+)?)\s?s(?:ec(?:ond)?s?)?\b"
)
_HITS: Final = re.compile(r"\bhits?\s*[:=]?\s*(?P<a>\d{1,9})\b|\b(?P<b>\d{1,9})\s+hits?\b(?!\s*[:=]?\s*\d)")
_RATE: Final = re.compile(r"(?<![\d.])(?P<n>\d+(?:\.\d+)?)\s?(?:t|tok|tokens)/s(?:ec)?\b")
_TOKENS: Final = re.compile(
    rf"(?<![\d.,])(?P<n>{_INT}|\d+(?:\.\d+)?)\s?(?P<k>[kK])?\s?"
    r"(?:fresh |new |cached |prompt |reused )?tok(?:ens?)?\b(?!/)"
)
_TIMES: Final = re.compile(r"(?<!\w)[x×]\s?(?P<a>\d{1,6})\b|\b(?P<b>\d{1,6})\s?(?:[x×](?!\w)|times\b)")
_AFTER_VERB: Final = re.compile(
    rf"\s*(?:[:=]\s*)?(?P<n>{_INT}|\d+(?:\.\d+)?(?=[kK]\b))(?P<k>[kK]\b)?(?![\d.]*\s?(?:s\b|ms\b|[KMG]i?B|%|min|t/s|:|\.\.))"
)
_ARROWS: Final = "←→⟵⟶⇐⇒<-=#"
_ERROR: Final = re.compile(r"""(?:finish=error\s+|error=)["'(]([^"')]*)["')]""")
_SCALE: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "sec": 1.0, "second": 1.0} | {
    "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0,
}  # fmt: skip
_NUMERIC: Final = frozenset(
    ("live", "prompt", "common", "tokens", "hits", "cached", "gen", "images", "trimmed", "count", "misses")
)
_ADJECTIVE: Final = 8  # letters before the verb: "cold prefill", "then stored"
_TELLING: Final = {"tokens", "size_mib", "common", "live", "times", "hits"}
_RENAMED: Final = {"gen": "generated"}


def whole(text: str) -> int:
    """`246,020` -> 246020."""
    return int(re.sub(r"\D", "", text)[:18] or 0)


def seconds(number: str, unit: str) -> float:
    """A duration in seconds."""
    return round(
        float(number.replace(",", ".")) * _UNIT_S[unit if unit == "ms" else unit.rstrip("s") or "s"], 6
    )


def mib(number: str, unit: str) -> float:
    """A size in MiB."""
    return float(number.replace(",", "")) * _SCALE[unit.upper()]


def facts(text: str) -> dict[str, Any]:
    """Every quantity that the text names by key or unit."""
    found: dict[str, Any] = {}
    if match := _SPAN.search(text) if ".." in text else None:
        start, end, count = match.groups()
        found |= {"span_start": int(start), "span_end": int(end)}
        found |= {"span_tokens": int(count)} if count else {}
    for match in _KEY.finditer(text):
        found |= _keyed(match["key"], match["value"].strip('"'))
    return found | _measured(text, found) if _DIGIT.search(text) else found


def _measured(text: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """What a unit tells; each expression is asked only where its unit stands at all."""
    said: dict[str, Any] = {}
    if match := _SIZE.search(text) if "B" in text else None:
        said["size_mib"] = mib(match["n"], match["unit"])
    if (took := _took(text)) is not None:
        said["seconds"] = took
    if match := _HITS.search(text) if "hit" in text else None:
        said["hits"] = int(match["a"] or match["b"])
    if match := _RATE.search(text) if "/s" in text else None:
        said["rate_tps"] = float(match["n"])
    if "tokens" not in found and (match := _TOKENS.search(text) if "tok" in text else None):
        said["tokens"] = _counted(match["n"], match["k"])
    if match := _TIMES.search(text):
        said["times"] = int(match["a"] or match["b"])
    return said


def _took(text: str) -> float | None:
    """The first duration that the text names, in seconds."""
    if match := _LONG.search(text):
        return int(match["h"] or 0) * 3600 + int(match["m"]) * 60 + float(match["s"])
    match = _SECONDS.search(text)
    return seconds(match["n"], match["unit"]) if match else None


def _keyed(key: str, value: str) -> dict[str, Any]:
    key = key.lower()
    if key in _NUMERIC and re.fullmatch(_INT, value):
        return {_RENAMED.get(key, key): whole(value)}
    if key in ("finish", "reason", "key"):
        return {key: value}
    return {}


def _counted(number: str, thousands: str | None) -> int:
    return round(float(number.replace(",", ".")) * 1000) if thousands else whole(number)


def digest(text: str) -> tuple[str, dict[str, Any]] | None:
    """(kind, fields) of a line that retells the log in other words; None for prose."""
    peeled = peel(unescaped(text))[0]
    if peeled.comment is None:
        return _told(peeled.text, peeled.stamp)
    both = f"{peeled.text} {peeled.comment}"
    ways = (peeled.text, both) if peeled.comment[0] in _ARROWS else (both, peeled.text)
    return next((told for way in ways if (told := _told(way, peeled.stamp))), None)


def _told(body: str, stamp: str | None) -> tuple[str, dict[str, Any]] | None:
    fields: dict[str, Any] = {"stamp": stamp} if stamp else {}
    whole_line = f"{stamp} {body}" if stamp else body
    if match := _RANGE.match(whole_line):
        fields = {"stamp": match["from"], "end_stamp": match["to"]}
        body = whole_line[match.end() :]
    said = facts(body)
    if error := _ERROR.search(body):
        said["error"] = error[1]
    kind = _kind(body, said, retyped=bool(fields) or bool(re.search(r"\w=\S", body)))
    if kind is None:
        return None
    if kind in ("request", "prefill") and "seconds" in said:
        said["prefill_s"] = said.pop("seconds")
    return kind, fields | said


def _kind(body: str, said: dict[str, Any], *, retyped: bool) -> str | None:
    """What a digest speaks of: the verb in front, else its numbers. `said` gains what the verb tells."""
    if "finish" in said or ("span_end" in said and retyped):
        return "request"
    verb = _VERB.search(body)
    short = len(re.findall(r"[A-Za-z]{3,}", body)) <= 12
    if verb and verb.lastgroup and short and (retyped or verb.start() <= _ADJECTIVE):
        if verb.lastgroup in ("stored", "evicted", "kept", "hit", "skipped"):
            if "tokens" not in said and (match := _AFTER_VERB.match(body, verb.end())):
                said["tokens"] = _counted(match["n"], match["k"])
            if match := _REASON.search(body, verb.end()):
                said["reason"] = match[1]
        if verb.lastgroup != "prefill" and not said.keys() & _TELLING:
            return None
        return verb.lastgroup if said else None
    return "miss" if said.keys() & {"common", "live"} and short else None


_SETTING: Final = {
    "=": re.compile(r"\s*(?P<key>[A-Za-z][\w .()/-]{0,40}?)\s+=\s+(?P<value>\S.*)"),
    ":": re.compile(r"\s*(?P<key>[a-z_]+): (?P<value>.*)"),
}


def is_setting(text: str) -> bool:
    """Whether a line reads `key = value`, with blanks around the sign."""
    return _SETTING["="].fullmatch(text.rstrip()) is not None


def settings(lines: Sequence[str], sign: str) -> dict[str, Any]:
    """`key = value` (or `key: value`) lines as a mapping; numbers as numbers."""
    found: dict[str, Any] = {}
    for line in lines:
        if match := _SETTING[sign].fullmatch(line.rstrip()):
            found[match["key"].strip().lower().replace(" ", "_")] = number(match["value"])
    return found


def number(text: str) -> int | float | str:
    """The number that a cell or value begins with (marks of emphasis and `~` ignored), else its text."""
    bare = text.strip().strip("*_`~≈ ")
    if match := re.match(rf"(?:{_INT})(?![\d.])(?=$|[\s*_`)])", bare):
        return whole(match[0])
    if match := re.match(r"(\d+(?:\.\d+)?)\s?[kK](?=$|[\s*_`)])", bare):
        return _counted(match[1], "k")
    match = re.match(r"-?\d+\.\d+(?=$|[\s*_`)])", bare)
    return float(match[0]) if match else bare[:200]


# -- tables ------------------------------------------------------------------------------------------------

_STATUS_HEAD: Final = re.compile(r"status|\bhttp\b|\bcode\b|result|outcome|answer|ok\??$", re.IGNORECASE)
_LENGTH_HEAD: Final = re.compile(r"length|token|prompt|size|ctx|context|input", re.IGNORECASE)


def table(rows: Sequence[str]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """(row, "outcome" or "row", fields): outcomes where a column holds HTTP states or says ok and failed."""
    if not rows:
        return
    heads = [cell.strip("*_` ") or str(at) for at, cell in enumerate(_cells(rows[0]))]
    for at, row in enumerate(rows[1:], start=1):
        cells = _cells(row)
        named = {head: number(cell) for head, cell in zip(heads, cells, strict=False)}
        outcome = _outcome(named)
        yield at, *(("outcome", outcome) if outcome else ("row", named))


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))]


def _outcome(named: dict[str, Any]) -> dict[str, Any] | None:
    lengths = [value for head, value in named.items() if _LENGTH_HEAD.search(head) and isinstance(value, int)]
    states = [value for value in named.values() if isinstance(value, int) and value in _HTTP]
    words = [
        str(value) for head, value in named.items() if _STATUS_HEAD.search(head) and isinstance(value, str)
    ]
    said = next((state for word in words if (state := _said_ok(word)) is not None), None)
    if not lengths or not (states or said is not None):
        return None
    status = next((state for state in states if state != lengths[0]), None)
    ok = said if status is None else status < 400
    fields = {
        "tokens": lengths[0],
        "status": status,
        "ok": ok,
        "error": next((w for w in words if not ok and w), None),
    }
    return {name: value for name, value in fields.items() if value is not None}


_HTTP: Final = frozenset(
    {200, 201, 204, 400, 401, 403, 404, 408, 409, 413, 422, 429, 499, 500, 502, 503, 504}
)


def _said_ok(word: str) -> bool | None:
    if re.search(r"✗|❌|\bfail|error|crash|\bno\b|hang|garbage|oom|\bbad\b", word, re.IGNORECASE):
        return False
    return (
        True
        if re.search(r"✓|✔|✅|\bok\b|fine|pass|works|success|\byes\b|good", word, re.IGNORECASE)
        else None
    )
