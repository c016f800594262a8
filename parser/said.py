"""What prose says: options of the server, figures with units, errors that engines and HTTP answers print."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from parser.digest import mib, seconds, whole
from parser.peel import unescaped

#: Options of ds4-server that say something about its caches, and what value follows: a number, a word, none.
OPTIONS: Final = {
    "--batched-session": "number", "--ctx": "number", "-c": "number", "--prefill-chunk": "number",
    "--mixed-prefill-quantum": "number",
    "--kv-disk-dir": "word", "--kv-disk-space-mb": "number", "--kv-cache-min-tokens": "number",
    "--kv-cache-cold-max-tokens": "number", "--kv-cache-continued-interval-tokens": "number",
    "--kv-cache-boundary-trim-tokens": "number", "--kv-cache-boundary-align-tokens": "number",
    "--kv-cache-reject-different-quant": "", "--disable-exact-dsml-tool-replay": "",
    "--decode-coalesce-us": "number", "--vision": "", "--mtp": "", "--dspark": "", "--metal": "",
    "--cuda": "", "--rocm": "", "--cpu": "", "--backend": "word", "--model": "word", "-m": "word",
    "--trace": "word", "--ssd-streaming": "", "--role": "word", "--power": "word", "--host": "word",
    "--port": "number",
}  # fmt: skip
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
_OPTION: Final = re.compile(
    r"(?<![\w-])(?P<name>--[a-z][a-z0-9-]+|-[cm])(?:(?:=|[ \t]+)(?P<value>(?!-)[^\s`,;)\]]+))?"
)
_PLACEHOLDER: Final = re.compile(r"[A-Z]|[.…]+|<.*|\[.*|\$.*")
_NEGATED: Final = re.compile(
    r"\b(?:without|no|not|drop(?:ping)?|remov(?:e|ing)|omit(?:ting)?|never)\s+[`*(]*$", re.IGNORECASE
)
_COMMAND: Final = re.compile(r"(?:^|[\s/`$])ds4-server(?:\s|$)")

_N: Final = r"\d{1,3}(?:[,_']\d{3})+|\d+(?:\.\d+)?"
_FIGURE: Final = re.compile(
    rf"(?<![\w.=/:-])[~≈]?(?P<low>{_N})(?:\s?(?:[–—-]|to)\s?(?P<high>{_N}))?[ \u00a0-]?"
    r"(?P<k>[kKM](?=[\s\u00a0-]))?[ \u00a0-]?(?:more |new |fresh |cached |prompt |shared |identical )?"
    r"(?P<unit>tokens?|tok/s|t/s|tokens/s|tok|ms|secs?|seconds?|s|minutes?|mins?|hours?|h|[KMGT]i?B|%"
    r"|turns?|misses|miss|slots?|sessions?|conversations?|requests?|restores?|evictions?|checkpoints?|images?|retries|times"
    r"|system prompt)\b(?:\s?(?:/|per |each |a )\s?(?P<per>turn|request|switch|hour|minute|day|message))?"
)
_UNITS: Final = {
    "tok": "tokens", "token": "tokens", "t/s": "tps", "tok/s": "tps", "tokens/s": "tps",
    "system prompt": "tokens", "image": "images", "checkpoint": "checkpoints",
    "miss": "misses", "slot": "slots", "turn": "turns", "session": "sessions",
    "conversation": "conversations",
    "request": "requests", "restore": "restores", "eviction": "evictions",
}  # fmt: skip
_THOUSANDS: Final = {"k": 1e3, "K": 1e3, "M": 1e6}

_MESSAGE: Final = re.compile(r"""["']message["']\s*:\s*["'](?P<text>[^"]{1,600})""")
_STATUS: Final = re.compile(
    r"\b(?:HTTP(?:/[\d.]+)?|status(?:[ _]code)?|error|code|API Error|returns?(?: an?)?|answers?(?: with)?"
    r"|gives?|got(?: an?)?|an?)\W{1,4}(?P<a>[45]\d\d)\b"
    r"|\b(?P<b>[45]\d\d)\s+(?:Bad Request|Not Found|Conflict|Internal|Service"
    r"|Too Many|Payload|error|Unprocessable)",
    re.IGNORECASE,
)
_TOOL_ID: Final = re.compile(
    r"\b(?:toolu|call|fc|chatcmpl-tool)[_-](?:[A-Za-z0-9]{6,64}|(?=[A-Za-z]*\d)[A-Za-z0-9]{4,5})\b"
)
_ENGINE: Final = re.compile(
    r"(?:\b(?:metal|cuda|rocm|hip|graph|kernel|tensor|backend|gpu|prefill|decode|batch|gate|session|alloc(?:ation)?)\b[^.\n]{0,60}?)"
    r"(?<!\w)(?:failed|out of memory|internal error)\b(?! ?\.\.\. ?falling back)",
    re.IGNORECASE,
)
_LOST_CALL: Final = re.compile(
    r"continuation state is not available|unknown tool[_ ]call|no (?:live )?state for", re.IGNORECASE
)
_POSITION: Final = re.compile(r"\bat (?:token|position|pos)\s?=?\s?(\d+)")


def options(text: str) -> Iterator[dict[str, Any]]:
    """Options of ds4-server that the text names, with their values."""
    command = bool(_COMMAND.search(text))
    found = [match for match in _OPTION.finditer(unescaped(text)) if match["name"] in OPTIONS]
    ours = command or any(match["name"].startswith("--") for match in found)
    for match in found:
        name = match["name"]
        if not ours:  # `-c` and `-m` are options of half the world
            continue
        fields: dict[str, Any] = {"name": name, "where": "command" if command else "prose"}
        value = (match["value"] or "").rstrip(".")
        if _fits(OPTIONS[name], value):
            fields["value"] = value
        if _NEGATED.search(text[: match.start()]):
            fields["negated"] = True
        yield fields


def _fits(wanted: str, value: str) -> bool:
    """Whether a value can be that of the option: "--ctx the user chose" names no number."""
    if wanted == "number":
        return _NUMBER.fullmatch(value) is not None
    return bool(wanted and value) and _PLACEHOLDER.fullmatch(value) is None


def figures(text: str) -> Iterator[dict[str, Any]]:
    """Quantities with a unit: `24–28 s/turn`, `18 minutes`, `11K tokens`. `about` is the text around."""
    for match in _FIGURE.finditer(text):
        unit = match["unit"]
        scale = _THOUSANDS.get(match["k"] or "", 1.0)
        low, high = (_scaled(match[end], unit, scale) if match[end] else None for end in ("low", "high"))
        fields = {
            "value": low, "high": high, "unit": _unit(unit), "per": match["per"],
            "about": " ".join(text[max(0, match.start() - 60) : match.end() + 40].split()),
        }  # fmt: skip
        yield {name: value for name, value in fields.items() if value is not None}


def _unit(unit: str) -> str:
    if unit.endswith("B"):
        return "mib"
    if re.fullmatch(r"ms|s|secs?|seconds?|mins?|minutes?|h|hours?", unit):
        return "s"
    return _UNITS.get(unit, unit)


def _scaled(number: str, unit: str, scale: float) -> float | int:
    if _unit(unit) == "s":
        return seconds(number, unit)
    if unit.endswith("B"):
        return mib(number, unit[0])
    value = float(re.sub(r"[,_']", "", number)) * scale
    return whole(str(round(value))) if value == int(value) else value


def errors(lines: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, fields) of each error that the lines of one block tell; a message may run over several lines."""
    block = "\n".join(lines)
    spans = [(match.start("text"), match["text"]) for match in _MESSAGE.finditer(block)]
    covered = [(start, start + len(text)) for start, text in spans]
    for match in _ENGINE.finditer(block):
        if "stream" not in match[0] and not any(start <= match.start() < end for start, end in covered):
            line = block[block.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0]
            spans.append((match.start(), line.strip()))
    if not spans and (status := _STATUS.search(block)):
        spans = [(status.start(), lines[block.count("\n", 0, status.start())].strip())]
    for start, text in spans:
        yield block.count("\n", 0, start), _error(text, block)


def _error(text: str, block: str) -> dict[str, Any]:
    status = _STATUS.search(block)
    position = _POSITION.search(text)
    ids = _TOOL_ID.findall(text) if _TOOL_ID.search(text) else []
    fields: dict[str, Any] = {
        "message": " ".join(text.replace("**", "").split())[:400],
        "engine": bool(_ENGINE.search(text)),
    }
    if status:
        fields["status"] = int(status["a"] or status["b"])
    if position:
        fields["position_tokens"] = int(position[1])
    if ids:
        fields["tool_ids"] = list(dict.fromkeys(ids))
    if _LOST_CALL.search(text.replace("\n", " ")):
        fields["lost_call"] = True
    return fields
