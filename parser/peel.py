"""One physical line as people paste it -> the message: colour, wrappers, stamp and program name peeled off.

Used where lines come from a report (`parser.report`). Everything is bounded: one line, a dozen peels.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass, replace
from typing import Final

#: Month and day; `_LOST` is the same with the first digit cut off by a careless selection.
_DATE: Final = r"(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
_LOST: Final = r"\d(?:0[1-9]|[12]\d|3[01])"
_CLOCK: Final = r"(?:[01]?\d|2[0-4]):[0-5]\d:[0-6]\d"
_STAMP: Final = re.compile(
    rf"\[?(?:(?P<date>{_DATE}|{_LOST})[ \t]+)?(?P<clock>{_CLOCK})(?:[.,]\d{{1,9}})?\]?(?=[ \t]|$|ds4)[ \t]*"
)
#: Any name may stand before what the server and the agent print about the disk store.
_ANY_NAME: Final = (
    r"kv cache |KV disk cache |context buffers \d|\d+ resident sessions |batched mode enabled"
    r"|listening on http|session checkpoints are|exact DSML tool|failed to create \w+ session"
    r"|tracing session|shutdown requested"
)
_PROGRAM: Final = re.compile(
    rf"(?P<name>(?i:ds4-(?:server|agent))|(?!ds4:)[\w.-]{{1,40}}(?=: (?:{_ANY_NAME})))(?:\[\d+\])?:[ \t]*"
)
_START: Final = rf"(?=(?:\[?(?:(?:{_DATE}|{_LOST})[ \t]+)?{_CLOCK}\b|ds4(?:-\w+)?(?:\[\d+\])?: ))"
_GLUED: Final = re.compile(rf"{_DATE} {_CLOCK} (?=\S)|(?<![\d:.,]){_CLOCK} (?=ds4-(?:server|agent): )")
_OWN_HEAD: Final = re.compile(r"ds4-(?:server|agent): ")
_TAG: Final = re.compile(r"\[[^\[\]=]{1,40}\]")
_HOST_TAG: Final = r"(?:(?:[\w.:-]+[ \t]+)?(?!ds4-\w+: )[\w./@-]+(?:\[\d+\])?:[ \t]+)?"

#: What other programs and people put in front. Their own times may be of another zone: they count only in a report
#: that shows no stamp of the server's (`Peeled.worn`).
_WRAPPER: Final = re.compile(
    "|".join(
        f"(?:{one})"
        for one in (
            # syslog, journald, `ts`: Aug 19 09:31:14 node7 ds4-server[4121]:
            rf"(?:<\d{{1,3}}>)?[A-Z][a-z]{{2}}[ \t]+\d{{1,2}}[ \t]+(?:\d{{4}}[ \t]+)?{_CLOCK}(?:[.,]\d+)?"
            rf"[ \t]+{_HOST_TAG}",
            # ISO dates, containers: 2026-08-19T09:31:14.123+02:00 node7 ds4-server[4121]:
            rf"(?:<\d{{1,3}}>1[ \t]+)?\[?\d{{4}}[-/]\d\d[-/]\d\d[T \t]+{_CLOCK}(?:[.,]\d+)?"
            rf"(?:Z|[ \t]?[+-]\d\d:?\d\d)?\]?[ \t]+(?:std(?:out|err)[ \t]+[FP][ \t]+)?{_HOST_TAG}",
            rf"\[?\d\d[-/.]\d\d\.?[T \t]+{_CLOCK}(?:[.,]\d+)?\]?[ \t]+",
            r"(?:>[ \t]?)+",  # quote
            r"\[[ \t]*\d+\.\d+\][ \t]+",  # seconds since boot
            r"\[[^\[\]=]{1,40}\]:?[ \t]+",  # [tag]
            r"\d+\|[\w.@-]+[ \t]*\|[ \t]+",  # pm2
            r"[\w./@-]{1,60}[ \t]*\|[ \t]+(?!.*\|[ \t]*$)",  # docker compose
            r"[\w./~+@-]*\w\.(?:log|txt|out|err)(?:\.\d+)?(?:\.gz)?[:-](?:\d{1,9}[:-])?[ \t]*",  # grep -H
            r"\d{1,2}:\d\d[ \t]+(?![→-])",  # a clock without seconds
            r"L?\d{1,9}:(?!\d\d(?:\D|$))(?=\S)",  # grep -n
            rf"L?\d{{1,9}}[:.)|│-]?[ \t]*[|│]?[ \t]*{_START}",  # cat -n, editors, grep -C
            r"(?:[-*+•‣▪◦]|\d{1,3}[.)])[ \t]+",  # lists
            r"[│┃▌▎]+[ \t]*",  # frames of terminals
            r"(?:std(?:err|out)|INFO|WARN(?:ING)?|ERROR|DEBUG|NOTICE|TRACE)\b[\]:|]*[ \t]+",
            rf"[+\-~!→»▶⚠❌✓✗️]+[ \t]*{_START}",  # diffs, marks
            rf'(?:"[^"]{{0,200}}(?:""[^"]{{0,200}}){{0,20}}",){{1,6}}"?{_START}',  # fields of a CSV export
            rf"(?:\w+\[\d+\]|[\w.-]{{1,40}}@[\w.-]{{1,40}}|%):?[ \t]+{_START}",  # a tag with a process number
            rf"[*_~\"'`“”‘’]{{1,3}}{_START}",  # emphasis, quotation marks
        )
    )
)

#: The time in a wrapper that names the day.
_WORN: Final = re.compile(
    rf"(?:\d{{4}}[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T \t]+"
    rf"|(?P<name>[A-Z][a-z]{{2}})[ \t]+(?P<date>\d{{1,2}})[ \t]+(?:\d{{4}}[ \t]+)?)(?P<clock>{_CLOCK})"
)
_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"

_COLOURS: Final = re.compile(
    r"(?:\x1b|\^\[|␛|\\x1b|\\033|\\e|\\u001b|\\u\{1b\})\[[0-9;?]*[ -/]*[A-Za-z]"  # as is, or made visible
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][AB0]"
    r"|\[(?:0|[1-9]\d?|38;5;\d{1,3}|48;5;\d{1,3}|[0-9];[0-9]{1,3})m"  # the escape byte was lost
)
_INVISIBLE: Final = re.compile("[\0-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\u00ad]")
_SPACES: Final = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_TAGS: Final = re.compile(
    r"</?(?:details|summary|pre|b|i|em|strong|p|div|span|font|blockquote|ul|ol|li|sub|sup|a|img"
    r"|table|thead|tbody|tr|td|th)(?:\s[^<>]*)?/?>"
    r"|\[/?(?:code|quote|log|pre|spoiler|b|i|u)(?:=[^\[\]]*)?\]|\{(?:code|noformat|quote)(?::[^{}]*)?\}",
    re.IGNORECASE,
)
_CODE: Final = re.compile(r"</?(?:code|kbd|samp|tt)\b[^<>]*>", re.IGNORECASE)
_BREAK: Final = re.compile(r"<br\s*/?>", re.IGNORECASE)
_TAG_BEFORE: Final = re.compile(r"^\s*(?:<(?:code|kbd|samp|tt|p|li|span|div|b|i)\b[^<>]*>)+", re.IGNORECASE)
_TAG_BEHIND: Final = re.compile(
    r"(?:</(?:code|kbd|samp|tt|p|li|span|div|b|i)\s*>|<br\s*/?>)+\s*$", re.IGNORECASE
)
_ESCAPED: Final = re.compile(r"\\([_*|<>\[\]`#~&.()!=-])")
_QUOTES: Final = str.maketrans("“”„‟″‘’‚‛′＝", "\"\"\"\"\"'''''=")

#: The blanks before a remark; a set in front, which Python's engine looks for quickly.
_GAP: Final = r"[ \t](?<![ \t]{2})[ \t]*"
_REMARK: Final = re.compile(
    _GAP + r"""(?:(?:←|⟵|⇐|<-+|<==?|→|⟶|⇒|-+>|==?>|\#|✓|✗|❌|⚠).*|(?://|;;|--|—|–)(?:[ \t].*)?"""
    r"""|[(\[]\s*(?:[x×]\s?\d+|\d+\s?[x×]|\d+\s+times|repeated.*|same.*)\s*[)\]]|[x×]\s?\d+)$"""
)
_PAREN: Final = re.compile(_GAP + r"\((?P<inner>[^()]*)\)[.,;]?$")
_PAREN_ENDS: Final = (")", ").", "),", ");")
_OWN_PAREN: Final = re.compile(
    r"budget=|ctx=|\d+ tokens,|[\d.]+%|[\d.]+ MiB with safety|\d+ calls recovered|stripped"
)
#: Where a warning about a tool call begins to quote raw model text, and how many bytes of it (TC7, TC7b).
RAW_TEXT: Final = re.compile(r"\b(?P<what>text_snippet|dsml_snippet): ")
RAW_BYTES: Final = {"text_snippet": 300, "dsml_snippet": 500}
MAX_TEXT: Final = 4096  # characters of a line that are read
_GLUED_OR_RAW: Final = re.compile(rf"{RAW_TEXT.pattern}|{_GLUED.pattern}")
_ELISION: Final = re.compile(r"\.\.\.|…|\[snip\]|<snip>|\[cut\]")
_CUT_TOKEN: Final = re.compile(_GAP + r"[A-Za-z_]+=[^\s\"]*[^\s\"=.…](?:\.\.\.|…)$")


@dataclass(frozen=True, slots=True)
class Peeled:
    """What stands on one line: the message, and what was taken off it.

    `stamp` is the server's, as printed. `comment` is a remark
    behind the message. `elided` is true where dots stand in place of fields. `worn` is the time of a wrapper in
    front, written as the server would (`0915 10:00:01`).
    """

    text: str
    stamp: str | None = None
    program: str | None = None
    comment: str | None = None
    elided: bool = False
    worn: str | None = None


def visible(text: str) -> str:
    """The line without colour codes (also made visible, or without their escape byte) and unseen characters;
    odd spaces become plain ones. Tabs stay."""
    return _SPACES.sub(" ", _INVISIBLE.sub("", _COLOURS.sub("", text)))


def in_pieces(text: str) -> list[str]:
    """A very long line cut where other lines of the server stand glued in it, each piece bounded; any other line
    as it is. What lies beyond the bound is no line of a log."""
    if len(text) <= MAX_TEXT:
        return [text]
    cuts, after = [0], 0
    for match in _GLUED_OR_RAW.finditer(text):
        if match["what"]:
            after = match.end() + RAW_BYTES[match["what"]]
        elif match.start() >= after and match.start() > 0:
            cuts.append(match.start())
    return [text[one:two][:MAX_TEXT] for one, two in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def unmarked(text: str) -> list[str]:
    """The line without HTML: entities resolved, known tags dropped, one text for each `<br>`."""
    parts = _BREAK.split(text) if "<" in text else [text]
    return [html.unescape(_TAGS.sub("", _CODE.sub("`", part))) for part in parts]


def unframed(text: str) -> str:
    """A line of a fence, where marks stand as they are: entities resolved, tags around the whole line dropped."""
    if "<" not in text and "&" not in text:
        return text
    return html.unescape(_TAG_BEFORE.sub("", _TAG_BEHIND.sub("", text)))


def unescaped(text: str) -> str:
    """Markdown's backslash escapes resolved, typographic quotation marks made plain."""
    return _ESCAPED.sub(r"\1", text).translate(_QUOTES)


def peel(text: str) -> list[Peeled]:
    """Takes off every wrapper in any combination, then stamp, program name and trailing remark.

    One line gives several where a stamp stands glued behind other text; raw model text is left whole.
    """
    first = _peel(text)
    at = _glued_at(first.text, named=first.program is not None)
    message, comment = split_remark(first.text[:at].rstrip().removesuffix("\\n"))
    front = replace(first, text=message, comment=comment, elided=bool(_ELISION.search(message)))
    return [front] if at is None else [front, *peel(first.text[at:])]


def _glued_at(text: str, *, named: bool) -> int | None:
    """Where in the message another line of the server begins, or None."""
    raw = _raw_text(text)
    end = raw.start() if raw else len(text)
    if text.count(":", 1, end) < 1:
        return None  # most prose
    match = _GLUED.search(text, 1, end) or (None if named else _OWN_HEAD.search(text, 1, end))
    return match.start() if match else None


def _raw_text(text: str) -> re.Match[str] | None:
    return RAW_TEXT.search(text) if "_snippet: " in text else None


def _peel(text: str) -> Peeled:
    line = text = _message_of_json(text.strip())
    stamp: str | None = None
    program: str | None = None
    worn: str | None = None
    for _ in range(12):
        if match := _PROGRAM.match(text):
            program = match["name"]
        elif program is not None:
            break
        elif (match := _STAMP.match(text)) and _is_own(match, stamp):
            stamp = " ".join(part for part in (match["date"], match["clock"]) if part)
        else:
            match = _wrapper(text, dated=stamp is not None)
            worn = worn or (_time_of(match[0]) if match is not None else None)
        if match is None or not match.end():
            break
        text = text[match.end() :]
    return Peeled(_unpaired(text.rstrip(), line), stamp, program, worn=worn)


def is_timed(text: str) -> bool:
    """A time with its day stands in front of the line, of whatever program."""
    found = _WORN.search(text, 0, 80)
    return found is not None and _time_of(found[0]) is not None


def _time_of(wrapper: str) -> str | None:
    """The time that a wrapper carries, as the server writes one; None where it does not name the day."""
    found = _WORN.search(wrapper)
    if found is None:
        return None
    month = int(found["month"] or _MONTHS.find(found["name"]) // 3 + 1)
    return f"{month:02}{int(found['day'] or found['date']):02} {found['clock']:0>8}" if month else None


def _unpaired(text: str, line: str) -> str:
    """Without the marks of emphasis and quotation that close what stands around the whole line."""
    text = text.removesuffix("\\n").rstrip("*~`│┃ ")
    if line[:1] in ('"', "'") or (text.endswith(('"', '",')) and text.count('"') % 2):
        return text.rstrip("\"',")
    return text


def _is_own(match: re.Match[str], before: str | None) -> bool:
    """A second clock is that of a digest (`08:02:10 → 08:16:31`) unless a name or date stands with it."""
    return before is None or bool(match["date"]) or bool(_PROGRAM.match(match.string, match.end()))


def _wrapper(text: str, *, dated: bool) -> re.Match[str] | None:
    """The wrapper in front; behind a stamp only a `[tag]` is one."""
    if dated and not _TAG.match(text):
        return None
    return _WRAPPER.match(text)


def _message_of_json(text: str) -> str:
    """The message of a journald or docker JSON record; any other text as it is."""
    if not (text.startswith("{") and text.rstrip(",").endswith("}")):
        return text
    try:
        record = json.loads(text.rstrip(","))
    except ValueError:
        return text
    for key in ("MESSAGE", "log", "message", "msg", "line"):
        value = record.get(key)
        if isinstance(value, list):  # journald gives bytes where the text holds colour codes
            value = bytes(byte for byte in value if isinstance(byte, int) and 0 <= byte < 256).decode(
                "utf-8", "replace"
            )
        if isinstance(value, str):
            return visible(value.strip())
    return text


def split_remark(text: str) -> tuple[str, str | None]:
    """(message, remark): what a person wrote behind the line: an arrow, `#`, "(x3)", a last bracket."""
    if _raw_text(text):
        return text, None
    quoted = text.rfind('"') + 1  # an error text may hold anything
    match = _REMARK.search(text, quoted)
    if match and match.start() > 0:
        return text[: match.start()].rstrip(), text[match.start() :].strip()
    match = _PAREN.search(text, quoted) if text.endswith(_PAREN_ENDS) else None
    if match and match.start() > 0 and not _OWN_PAREN.match(match["inner"]):
        return text[: match.start()].rstrip(), match["inner"]
    return text, None


def without_cut(text: str) -> str:
    """The line without a last field that the width of a window cut (`key=token-te…`)."""
    return _CUT_TOKEN.sub("", text)
