"""A log or report -> a copy that can be shared: paths, ids, names and model text replaced, numbers kept.

Lines of the server keep the words of its own templates (the grammar's) and lose all others; lines of the
engine and prose keep their words but for what names a person, a machine, a file or a call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from parser.peel import RAW_BYTES, RAW_TEXT
from parser.pseudonym import Pseudonyms

_HEAD: Final = r"(?:\d{3,4} )?\d{1,2}:\d\d:\d\d (?:\x1b\[[0-9;]*m)?(?:ds4-server|ds4-agent): "
_REQUEST: Final = (
    r"(?:chat|completion) ctx=\d+\.\.\d+:\d+(?: gen=\d+)?(?: (?:RESPPROTO|TOOLS|THINKING|DSML_\w+))*"
)
#: Nearly all lines of a long log: nothing in them is anyone's.
_CLEAN: Final = re.compile(
    rf"{_HEAD}(?:{_REQUEST} (?:prompt start|prompt done [\d.]+s"
    r"|decoding chunk=[\d.]+ t/s avg=[\d.]+ t/s [\d.]+s"
    r"|prefill chunk \d+/\d+ \([\d.]+%\) chunk=[\d.]+ t/s avg=[\d.]+ t/s [\d.]+s|finish=\w+ [\d.]+s)"
    r"|decode batch count=\d+ elapsed=[\d.]+ ms status=\w+"
    r"|live kv cache miss(?: RESPPROTO)? live=\d+ prompt=\d+ common=\d+(?: vision=\w+)? reason=[a-z-]+"
    r"|kv cache stored tokens=\d+ trimmed=-?\d+ reason=[a-z-]+(?: key=[a-z-]+)? size=[\d.]+ MiB"
    r" save=[\d.]+ ms"
    r")(?:\x1b\[0m)?\r?"
)
_SERVER: Final = re.compile(
    rf"{_HEAD}|\b(?:ds4-server|ds4-agent): "
    r"|(?:^|(?<=[\s`|>]))(?:(?:\d{3,4} )?\d\d:\d\d:\d\d )?(?=live kv cache |kv cache |KV disk cache "
    r"|tool calls ctx=|(?:chat|completion) ctx=|tracing session to )"
)
_ENGINE: Final = re.compile(
    r"\bds4[\w-]*: +(?!ds4)|\btp: |\bworker: |^tensor parallelism|^\s*(?:GLM|DSML|MTP)\b"
)
_LONGEST: Final = 32 << 10  # bytes of a line that are read
_MASK: Final = bytes(byte if byte in b" \t\r\v\f" else ord("x") for byte in range(256))

_LISTS: Final = re.compile(r"(?P<key>\b(?:ids|names)=\[)(?P<list>[^\]]*)")
_ID: Final = re.compile(r"\b(?:toolu|call|fc|rs|msg|resp|chatcmpl(?:-tool)?|req)_[A-Za-z0-9]{4,80}\b")
_HASH: Final = re.compile(r"(?<![\w.])(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{8,64}(?![\w-])")
_MAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_MENTION: Final = re.compile(r"(?<![\w@/])@[A-Za-z][\w-]{2,38}\b")
_URL: Final = re.compile(
    r"\b(?P<scheme>[a-z][a-z0-9+.-]{1,12}://)(?P<host>\[[0-9a-fA-F:]+\]|[^\s/:\"'<>)\]\0]+)(?P<port>:\d+)?(?P<path>/[^\s\"'<>)\]]*)?"
)
_ADDRESS: Final = re.compile(
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)|(?<![\w:])(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}(?![\w:])"
)
_PATH: Final = re.compile(
    r"(?<![\w/<])(?:~|\.{1,3}|…|[A-Za-z]:)?[/\\](?:[\w@%+=~.,…-]+[/\\])*[\w@%+=~.,…-]+|(?<![\w/.-])[\w.-]+/[\w.-]+\.(?:kv|gguf|log|txt)\b"
)
_ENDPOINT: Final = re.compile(r"/v1/|/debug/(?:bench|prefill|levers)")
_FILE: Final = re.compile(r"(?<![\w/.-])[\w.-]+\.(?:gguf|kv|safetensors)\b")
_OPTION_PATH: Final = re.compile(
    r"(?P<option>(?:--(?:kv-disk-dir|trace|model|host|chdir)|(?<!\S)-m)[ =]+)(?P<value>[^\s`]+)"
)
_MIXED: Final = re.compile(r"[A-Za-z][\w.-]*")

#: A literal of the line -> where the path stands in it, which may hold blanks.
_PATHS_IN: Final = {
    " file=": re.compile(r"\bfile=(?P<path>\S.*?)(?=: [A-Z][a-z ]+$|\s+(?:←|#|->|→|<-).*$|\x1b|\r?$)"),
    "KV disk cache ": re.compile(r"\bKV disk cache (?P<path>.+?)(?= \(budget=|$)"),
    "tracing session": re.compile(r"\btracing session to (?P<path>.+?)(?=\x1b|\r?$)"),
    "failed to ": re.compile(
        r"\bfailed to (?:open trace file|chdir to|create KV cache directory|create) "
        r"(?P<path>[/~.].*?)(?=: |\r?$)"
    ),
    "incompatible file": re.compile(r"\bincompatible file (?P<path>.+?)(?=\x1b|\r?$)"),
    "load failed": re.compile(r"\bload failed(?: RESPPROTO| key=\S+)* (?P<path>.+?)(?=: )"),
    "discarded corrupt": re.compile(
        r"\bcorrupt (?:text-prefix payload|token prefix)(?: RESPPROTO| key=\S+)* (?P<path>.+?)(?=\x1b|\r?$)"
    ),
}
_HOST_IN: Final = re.compile(r"\blistening on http://(?P<host>\[[^\]]*\]|[^\s:/]+)")
_ERROR_IN: Final = re.compile(r'\b(?:error|reason)="(?P<text>.*)"')

#: Heads that other programs put before a line of the server; the named groups name machines and services.
_WRAPPED: Final = tuple(
    re.compile(one)
    for one in (
        r"(?:<\d+>\d?\s*)?[A-Z][a-z]{2}\s+\d{1,2}\s+(?:\d{4}\s+)?[\d:.]+\s+(?P<a>[\w.-]+)\s+(?P<b>[\w./@-]+)(?:\[\d+\])?:",
        r"(?:<\d+>\d?\s*)?\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]?\s+(?!std|INFO|WARN|ERR)"
        r"(?P<a>[\w.-]+)\s+(?P<b>[\w./@-]+)(?:\[\d+\])?:",
        r"\[\s*\d+\.\d+\]\s+(?P<a>[\w.-]+)\s+(?P<b>[\w./@-]+)(?:\[\d+\])?:",
        r"(?:\d+\|)?(?P<a>[\w./@-]+)\s*\|",
        r"\[(?P<a>[^\]\d][^\]]*)\]",
        r"(?P<path>[\w./~+@-]*\w\.(?:log|txt|out|err)(?:\.\d+)?(?:\.gz)?)[:-]",
    )
)
_KNOWN_SERVICES: Final = re.compile(
    r"(?:ds4[\w-]*|server|stderr|stdout|INFO|WARN|WARNING|ERROR|DEBUG|llm|localhost)", re.IGNORECASE
)
_TRACE_BODY: Final = re.compile(
    r"\s*--- (?:raw request json|rendered prompt|generated text|parsed message) ---"
)
_TRACE_END: Final = re.compile(r"\s*(?:===== (?:end )?request \d+|```)")
_TRACE_ROW: Final = re.compile(r"(\s*\d+ +(?:==|!=|prompt-only|live-only) +)(live .*)")
_JSON: Final = re.compile(r"\s*\{.*\}\s*")


@lru_cache(maxsize=1)
def _vocabulary() -> frozenset[str]:
    """Every word of the grammar of record: what the server itself can print."""
    text = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return frozenset(re.findall(r"[A-Za-z][A-Za-z_-]*", text)) | _WORDS


_WORDS: Final = frozenset(
    re.findall(
        r"\S+",
        """
        client stream write failed shutdown requested decode interrupted disconnected no such file or
        directory permission denied left on device space quota exceeded read-only system input output
        error invalid header cached checkpoint was written for a different model text is longer than
        prompt truncated hash mismatch prefix payload staging session has valid to stage distributed KV
        shard tensor size overflow stays unused unterminated call recovery returned tokens select non-
        EOS token metal cuda rocm cpu hip internal graph embed tool stop length cold continued evict
        agent-system agent-session interval-catchup token-mismatch live-prefix-match incoming-prompt-
        shorter-than-live-checkpoint unknown match mismatch token-text responses-visible thinking-
        visible visible-transcript visible-prefix tool-output-ids fingerprint-match none memory memory-
        token memory-text memory-rewind disk disk-text full canonical-tail-rewrite preserve-image-state
        ms MiB GiB t s prefill-failed disk-cache-full ladder accept reject true false falling back the
        path not restorable
        """,
    )
)


def redact(chunks: Iterable[bytes], key: bytes, *, report: bool = False) -> Iterator[bytes]:
    """The lines of `chunks` (pieces that end at line ends, UTF-8) without what is private.

    Line ends, line numbers, stamps and every number of the server's lines stay. `report` says that the text
    is prose with log lines in it (`parser.report.is_report`).
    """
    redactor = Redactor(Pseudonyms(key), report=report)
    for chunk in chunks:
        lines = chunk.split(b"\n")
        yield (
            b"\n".join(redactor.line(line) for line in lines[:-1])
            + (b"\n" if len(lines) > 1 else b"")
            + (redactor.line(lines[-1]) if lines[-1] else b"")
        )


class Redactor:
    """The state from line to line: how much raw model text is still to come, or a body of a trace record."""

    def __init__(self, names: Pseudonyms, *, report: bool) -> None:
        self.names, self.report = names, report
        self.room = 0  # bytes of a snippet that may still follow
        self.bracketed = False
        self.body = False

    def line(self, raw: bytes) -> bytes:
        """One physical line, without its line end."""
        text = raw[:_LONGEST].decode("utf-8", "surrogateescape")
        if self.room <= 0 and not self.body and _CLEAN.fullmatch(text):
            return raw
        tail = raw[_LONGEST:].translate(_MASK)  # nothing that the server prints is so long
        return self._line(text).encode("utf-8", "surrogateescape") + tail

    def _line(self, text: str) -> str:
        if self.room > 0 and (tail := self._snippet_goes_on(text)) is not None:
            return tail
        if self.body or _TRACE_BODY.match(text):
            return self._trace_body(text)
        if _JSON.fullmatch(text) and (record := self._record(text)) is not None:
            return record
        if match := _TRACE_ROW.fullmatch(text):
            return match[1] + re.sub(r"[^\s|]", "x", match[2])
        return self._plain(text)

    def _plain(self, text: str) -> str:
        snippet = RAW_TEXT.search(text)
        if snippet:
            head, tail = text[: snippet.end()], text[snippet.end() :]
            self._begin(snippet["what"], tail)
            return self._plain_text(head) + self.names.masked(tail)
        return self._plain_text(text)

    def _plain_text(self, text: str) -> str:
        head = _SERVER.search(text) or _ENGINE.search(text)
        if head is None:
            return self._other(text)
        message = text[head.end() :]
        message = self._message(message) if head.re is _SERVER else self._prose(message)
        return self._wrapper(text[: head.start()]) + head[0] + message

    # -- parts of a line ---------------------------------------------------------------------------------

    def _wrapper(self, text: str) -> str:
        """What stands before the server's or engine's own head: names of machines and services go."""
        bare = text.lstrip()
        match = next((found for pattern in _WRAPPED if (found := pattern.match(bare))), None)
        if match is None:
            return self._prose(text) if self.report else self._known(self._prose(text))
        return text[: len(text) - len(bare)] + self._unhosted(bare, match)

    def _unhosted(self, bare: str, match: re.Match[str]) -> str:
        groups = sorted((name for name in match.groupdict() if match[name]), key=match.start, reverse=True)
        for group in groups:
            bare = bare[: match.start(group)] + self._service(match[group], group) + bare[match.end(group) :]
        return bare

    def _other(self, text: str) -> str:
        """A line of another program (it says which, and on which host) loses its words; prose keeps them."""
        match = next((found for pattern in _WRAPPED[:3] if (found := pattern.match(text))), None)
        if match is not None:
            return self._unhosted(match[0], match) + self._known(self._prose(text[match.end() :]))
        return self._prose(text) if self.report else self._known(self._prose(text))

    def _service(self, name: str, group: str) -> str:
        if group == "path":
            return self.names.path(name)
        return name if _KNOWN_SERVICES.fullmatch(name) else self.names.word(name, "host")

    def _message(self, text: str) -> str:
        """A line of the server: fields that hold private text, then words that no template knows."""
        kept: list[str] = []

        def hold(value: str) -> str:
            kept.append(value)
            return f"\0{len(kept) - 1}\0"

        for literal, pattern in _PATHS_IN.items():
            if literal in text:
                text = _in_group(pattern, "path", text, lambda found: hold(self.names.path(found)))
        text = _in_group(_HOST_IN, "host", text, lambda found: hold(self.names.host(found)))
        if '="' in text:
            text = _in_group(_ERROR_IN, "text", text, lambda found: hold(self._known(self._prose(found))))
        if "=[" in text:
            text = _LISTS.sub(lambda found: hold(self._list(found)), text)
        text = self._prose(text) if self.report else self._known(self._prose(text))
        return re.sub(r"\0(\d{1,4})\0", lambda m: kept[int(m[1])] if int(m[1]) < len(kept) else m[0], text)

    def _list(self, found: re.Match[str]) -> str:
        name = self.names.call_id if found["key"].startswith("ids") else self.names.tool
        return found["key"] + ",".join(name(one) for one in found["list"].split(","))

    def _known(self, text: str) -> str:
        """Only words of the server's vocabulary, keys before `=`, and stand-ins made before."""
        words = _vocabulary()

        def one(found: re.Match[str]) -> str:
            """The stand-in of one word, or the word where it is the log's own."""
            word = found[0]
            if (
                word.rstrip(".-") in words
                or text[found.end() : found.end() + 1] == "="
                or _STAND_IN.fullmatch(word)
            ):
                return word
            return self.names.word(word)

        return re.sub(r"(?<![\w\0%])[A-Za-z][\w.-]*(?!\w*\0)", one, text)

    def _prose(self, text: str) -> str:
        """Text without what names a person, a machine, a file or a call."""
        names = self.names
        if "-m" in text or "--" in text:
            text = _OPTION_PATH.sub(self._option, text)
        if "://" in text:
            text = _URL.sub(self._url, text)
        if "@" in text:
            text = _MAIL.sub(lambda m: names.word(m[0], "mail"), text)
            text = _MENTION.sub(lambda m: names.word(m[0], "@user"), text)
        if "/" in text or "\\" in text:
            text = _PATH.sub(lambda m: m[0] if _ENDPOINT.match(m[0]) else names.path(m[0]), text)
        if "_" in text:
            text = _ID.sub(lambda m: names.call_id(m[0]), text)
        if "." in text:
            text = _FILE.sub(lambda m: names.path(m[0]), text)
        text = _HASH.sub(lambda m: names.hex(m[0]), text)
        return _ADDRESS.sub(lambda m: names.host(m[0]), text)

    def _option(self, found: re.Match[str]) -> str:
        value = found["value"]
        return found["option"] + (value if value in _vocabulary() else self.names.path(value))

    def _url(self, found: re.Match[str]) -> str:
        path = self.names.path(found["path"]) if found["path"] else ""
        if found["host"] == "github.com" and (found["path"] or "").startswith("/antirez/ds4"):
            return found[0]
        return found["scheme"] + self.names.host(found["host"]) + (found["port"] or "") + path

    # -- text of the model -------------------------------------------------------------------------------

    def _begin(self, what: str, tail: str) -> None:
        self.bracketed = what == "text_snippet"
        closed = self.bracketed and tail.rstrip("\r").endswith("]")
        self.room = (
            0
            if closed or tail.startswith("(none)")
            else RAW_BYTES[what] - len(tail.encode("utf-8", "replace"))
        )

    def _snippet_goes_on(self, text: str) -> str | None:
        """The masked line where it is still text of the model, else None."""
        self.room -= len(text.encode("utf-8", "replace")) + 1
        if self.room < -1 or (not self.bracketed and _SERVER.match(text)):
            self.room = 0
            return None
        if self.bracketed and text.rstrip("\r").endswith("]"):
            self.room = 0
        return self.names.masked(text)

    def _trace_body(self, text: str) -> str:
        if _TRACE_BODY.match(text):
            self.body = True
            return text
        if _TRACE_END.match(text):
            self.body = False
            return text
        return self.names.masked(text)

    def _record(self, text: str) -> str | None:
        """A journald or docker JSON record: its message redacted, its other texts replaced."""
        import json

        try:
            record = json.loads(text)
        except ValueError:
            return None
        if not isinstance(record, dict):
            return None
        return json.dumps(
            {name: self._value(name, value) for name, value in record.items()}, ensure_ascii=False
        )

    def _value(self, name: str, value: object) -> object:
        if isinstance(value, list) and all(
            isinstance(one, int) for one in value
        ):  # bytes, where colour is in it
            value = bytes(one & 255 for one in value).decode("utf-8", "replace")
        if not isinstance(value, str):
            return (
                value
                if isinstance(value, (int, float, bool)) or value is None
                else self.names.word(repr(value))
            )
        if name in ("MESSAGE", "log", "message", "msg", "line"):
            return "\n".join(self._plain(line) for line in value.split("\n"))
        return value if re.fullmatch(r"[\d.:TZ+-]*|stderr|stdout", value) else self.names.word(value)


_STAND_IN: Final = re.compile(
    r"(?:@?[a-z]+-[0-9a-f]{8}.*)|(?:toolu|call|fc|rs|msg|resp|chatcmpl|req)[_-][0-9a-f]+"
)


def _in_group(pattern: re.Pattern[str], group: str, text: str, change: Callable[[str], str]) -> str:
    match = pattern.search(text)
    if match is None:
        return text
    return text[: match.start(group)] + change(match[group]) + text[match.end(group) :]
