"""Lines of the engine and of other programs: failures, memory, distributed runs, which model is loaded.

They have no stamps and no ids; a line counts by its head and its words (mechanisms 2.2.8 and 4.8).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from parser.event import Event
from triage.view import View

_ENGINE = re.compile(r"^(?:ds4|ds4-server|ds4-engine): ")
_PAIR = re.compile(
    r"^(?:(?:ds4-tp|tp|ds4-dist|distributed(?: worker| leader| coordinator)?):|tp (?:worker|leader)\b)"
)
_WENT_WRONG = re.compile(
    r"\b(?:failed|failure|closed|lost|timed? ?out|timeout (?:after|while|waiting)|disconnected|reset by peer|broken pipe|"
    r"aborted|unreachable|refused|no response|died|exited)\b",
    re.I,
)
_PAIR_FAULT = re.compile(
    r"\btransport marked failed\b|\bTP\b.*\bfailed\b|\bgate (?:window )?(?:barrier )?failed\b"
)
_HARMLESS = re.compile(r"[Ff]alling back|\bFAILED\b|gate-timeout=|warm-up ok|oom_score|planned|failed=0")
_MEMORY = re.compile(r"\bout of memory\b|\balloc(?:ation)? failed\b", re.I)
_NOT_MEMORY = re.compile(r"oom_score_adj|memory plan|planned|size overflow|staging failed", re.I)
#: the kernel's own word for it (its line goes on with `oom_score_adj:0`)
_KILLED = re.compile(r"out of memory: kill(?:ed)? process \d+ \(ds4[\w-]*\)", re.I)
_FAILED = re.compile(r"\bfailed\b")
#: what tells two models apart, by the words of the engine's start lines
_MODEL: Final = (
    ("mapped MiB", re.compile(r"mapped (\d+(?:\.\d+)?) MiB from offset")),
    ("resident model GiB", re.compile(r"resident model (\d+(?:\.\d+)?) GiB")),
    ("tensor span GiB", re.compile(r"(?<![\d.])(\d+(?:\.\d+)?) GiB tensor span")),
    ("support model", re.compile(r"support model (?:loaded|detected): (\S+)")),
    ("model", re.compile(r"\b(?:model|loading|loaded|from)[ =:]+(\S+\.gguf)\b")),
)


def pair_failures(view: View) -> list[Event]:
    """Failed gates, closed connections, failed transports of a distributed run."""
    return [e for e in view.engine if _is_pair_failure(e)]


def _is_pair_failure(event: Event) -> bool:
    text = event.text
    if _HARMLESS.search(text):
        return False
    if _PAIR.match(text):
        return bool(_WENT_WRONG.search(text))
    return bool(_ENGINE.match(text) and _PAIR_FAULT.search(text))


def memory_failures(view: View) -> list[Event]:
    """`alloc failed: out of memory`, and sessions that could not be created, a server that the kernel killed."""
    lines = [
        e
        for e in view.engine
        if _MEMORY.search(e.text) and not _NOT_MEMORY.search(e.text) and not _HARMLESS.search(e.text)
    ]
    lines = [e for e in lines if _ENGINE.match(e.text) or e.kind != "foreign"]
    lines += [e for e in view.engine if _KILLED.search(e.text)]
    return sorted(
        {e.seq: e for e in (*lines, *view.of("startup", "session_failed"))}.values(), key=lambda e: e.seq
    )


def engine_failures(view: View) -> list[Event]:
    """Engine lines `… failed` inside an open request (not a fallback notice, not memory, not the other node)."""
    lines = [
        e
        for e in view.engine
        if _ENGINE.match(e.text)
        and _FAILED.search(e.text)
        and not _HARMLESS.search(e.text)
        and not _MEMORY.search(e.text)
        and e.kind != "startup"
    ]
    return [e for e in lines if in_open_request(view, e)]


def in_open_request(view: View, event: Event) -> bool:
    """A request has started and neither finished nor ended its prefill before `event`."""
    opened = [e.seq for e in view.of("prompt_start") + view.of("prefill_chunk") if e.seq < event.seq]
    if not opened:
        return any(e.seq < event.seq for k in ("live_miss", "kv_hit") for e in view.of(k))
    last = max(opened)
    ended = view.of("finish") + view.of("prompt_done")
    return not any(last < e.seq < event.seq for e in ended)


# -- which model -----------------------------------------------------------------------------------------


def model_items(text: str) -> Iterator[tuple[str, str]]:
    """(what, value) pairs by which a start line names the model."""
    for what, pattern in _MODEL:
        found = pattern.search(text)
        if found is not None:
            yield what, found[1].rsplit("/", 1)[-1]


def starts(view: View) -> list[tuple[int, dict[str, str]]]:
    """(first seq, what the model lines say) of each server start in the input, in order."""
    lines = sorted({e.seq: e for e in (*view.of("startup"), *view.engine)}.values(), key=lambda e: e.seq)
    served = sorted(
        e.seq
        for kind in ("kv_stored", "kv_hit", "prompt_start", "prompt_done", "finish", "live_miss")
        for e in view.of(kind)
    )
    found: list[tuple[int, dict[str, str]]] = []
    last = -1
    for event in lines:
        items = dict(model_items(event.text))
        if not items and event.kind != "startup":
            continue
        if not found or bisect_right(served, last) < bisect_left(served, event.seq):
            found.append((event.seq, {}))
        found[-1][1].update(items)
        last = event.seq
    return found
