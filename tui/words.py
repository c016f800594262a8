"""What happened to one request, and what the server holds at one instant, in plain words.

A line is a list of (text, role); roles are those of `tui.palette` plus "strong" and "conv:N". Nothing here
knows a terminal. Text that comes from a log passes the sanitiser.
"""

from __future__ import annotations

import re
from typing import Final

from rich.cells import cell_len, chop_cells

from parser.request import Request
from parser.sanitise import sanitise
from tui.glyphs import letter
from tui.moments import Moment
from tui.scene import Scene

Line = list[tuple[str, str]]
_WORD: Final = re.compile(r"\s+|\S+")
_PHASES: Final = {"io": "disk", "prefill": "prefill", "decode": "writing", "idle": "idle", "empty": "empty"}


def request_title(scene: Scene, request: Request, row: int) -> Line:
    """Number, conversation, slot (and how sure), time, line."""
    at = scene.axis.long_label(float(scene.table["begin"][row]))
    who = _conversation(scene, row)
    where = f"{slot_words(request)} · {at}" if scene.axis.kind == "time" else slot_words(request)
    number = f"request {request.request}"
    return [(number, "strong"), (" · ", "dim"), *who, (f" · {where} · line {request.line}", "dim")]


def slot_words(request: Request) -> str:
    """ "slot 1", "slot 1 (not certain: 0 or 1)", "slot not known"."""
    if request.slot is None:
        others = " or ".join(str(slot) for slot in request.slot_alternatives)
        return f"slot not known ({others})" if others else "slot not known"
    if request.slot_confidence != "ambiguous":
        return f"slot {request.slot}"
    others = " or ".join(str(slot) for slot in sorted({request.slot, *request.slot_alternatives}))
    return f"slot {request.slot} (not certain{': ' + others if request.slot_alternatives else ''})"


def request_story(scene: Scene, request: Request, row: int) -> list[Line]:
    """What was reused, what it cost, what was thrown out for it: one to four lines."""
    return [
        line
        for line in (_reuse(request), _eviction(scene, request, row), _loss(request), _end(request))
        if line
    ]


def _reuse(request: Request) -> Line:
    cached, prompt = request.cached_tokens, request.prompt_tokens
    how = _SOURCE_WORDS.get(request.source or "", "reuse not known")
    if request.source == "cold" and request.live_before:
        how = "nothing could be reused"
    if cached is None or prompt is None:
        return [(how, "plain"), (f" · prompt {_count(prompt)} tokens", "dim")]
    share = f" ({100 * cached / prompt:.0f}%)" if prompt else ""
    took = f" in {seconds(request.prefill_s)}" if request.prefill_s is not None else ""
    role = "restore" if cached >= prompt * 0.5 else "fresh-sum"
    computed = f", {_count(request.prefilled_tokens)} computed{took}"
    return [(how, role), (f" · {cached:,} of {prompt:,} reused{share}{computed}", "plain")]


_SOURCE_WORDS: Final = {
    "cold": "first of its kind here: computed from the start",
    "memory": "went on in its slot",
    "memory-token": "went on in its slot",
    "memory-text": "went on in its slot (same text)",
    "memory-rewind": "same prompt again: live state cut back",
    "thinking-visible": "went on in its slot (reasoning left out)",
    "responses-visible": "went on in its slot (visible text)",
    "responses-tool-output": "went on in its slot (tool results)",
    "anthropic-tool-output": "went on in its slot (tool results)",
    "disk-text": "came back from disk",
}


def _eviction(scene: Scene, request: Request, row: int) -> Line:
    gone = request.evicted_live_tokens
    if not gone:
        return []
    conv = int(scene.table["evicted_conv"][row])
    own = conv >= 0 and conv == int(scene.table["conv"][row])
    who = [("its own live state", "plain")] if own else [*name_of(scene, conv)]
    shared = f", {request.common:,} shared" if request.common is not None else ""
    saved = (
        ("saved to disk first", "evict") if request.evict_stored else ("thrown away, no store logged", "lost")
    )
    return [("put out ", "plain"), *who, (f" ({gone:,} tokens{shared}): ", "plain"), saved]


def _loss(request: Request) -> Line:
    lost, changed = request.lost_to_cache_tokens, request.changed_text_tokens
    if not lost:
        return []
    new = f" · {changed:,} new or changed" if changed else ""
    return [(f"{lost:,} tokens known a moment ago were computed again", "lost"), (new, "dim")]


def _end(request: Request) -> Line:
    if request.finish is None and not request.client_gone:
        return [("no end in this log", "dim")] if request.end_s is None else []
    if request.finish != "error" and not request.client_gone:
        return []
    text = sanitise(request.error or "")[:80]
    return [("the client went away" if request.client_gone else f"failed: {text or 'no text'}", "lost")]


def moment_lines(scene: Scene, now: Moment) -> list[Line]:
    """Every slot and the disk at an instant, one line each."""
    lines = [_slot_line(scene, number, now) for number in range(len(scene.lanes))]
    return [*lines, _disk_line(scene, now)]


def _slot_line(scene: Scene, number: int, now: Moment) -> Line:
    lane, instant = scene.lanes[number], now.lanes[number]
    name = (f"{lane.name:<8}", "dim")
    if instant.row is None:
        return [name, ("empty", "dim")]
    of = f" of {scene.setting.ctx:,}" if scene.setting.ctx else ""
    live = f"{instant.live:,.0f}{of}" if instant.live is not None else "? tokens"
    doubt = [(" ?", "unsure")] if instant.sure == 2 else []
    number_ = int(scene.table["request"][instant.row])
    words = f"  {live:<18} {_PHASES[instant.phase]:<8} request {number_}"
    return [name, *_conversation(scene, instant.row), *doubt, (words, "plain")]


def _disk_line(scene: Scene, now: Moment) -> Line:
    line: Line = [("disk    ", "dim")]
    budget = scene.setting.budget_mib
    if scene.setting.disk is False:
        return [*line, ("no disk cache", "dim")]
    of = f" of {budget:,.0f}" if budget else ""
    line.append((f"at least {now.disk_mib:,.0f}{of} MiB" if now.disk_mib else "nothing written yet", "plain"))
    if now.waiting:
        line.append((" · waiting: ", "dim"))
    for conv, tokens, saved in now.waiting[-4:]:
        line += [
            *name_of(scene, conv),
            (f" {tokens:,}{'' if saved else ' (not saved)'}  ", "plain" if saved else "lost"),
        ]
    return line


def name_of(scene: Scene, conv: int) -> Line:
    """The letter and label of a conversation."""
    if conv < 0:
        return [("an unknown conversation", "plain")]
    label = sanitise(scene.names[conv])[:24]
    sign = letter(scene.names[conv], conv)
    return [(sign if label == sign else f"{sign}={label}", f"conv:{conv}")]


def _conversation(scene: Scene, row: int) -> Line:
    conv = int(scene.table["conv"][row])
    return name_of(scene, conv) if conv >= 0 else [("?", "unsure")]


def fold(line: Line, width: int) -> list[Line]:
    """A line broken between words into lines of at most `width` cells; longer words are cut."""
    if sum(cell_len(text) for text, _ in line) <= width:
        return [line]
    lines: list[Line] = [[]]
    left = width
    for text, role in line:
        for word in _WORD.findall(text):
            size = cell_len(word)
            if size > left and word.strip():
                lines.append([])
                left = width
            for piece in chop_cells(word, width) if size > width else [word]:
                left = left - cell_len(piece)
                if left < 0 and not piece.isspace():
                    lines.append([])
                    left = width - cell_len(piece)
                lines[-1].append((piece, role))
    return lines


def cut(text: str, width: int) -> str:
    """`text` in at most `width` cells, cut between words."""
    if len(text) <= width:
        return text
    return text[: text.rfind(" ", 0, width)] + "…"


def seconds(value: float | None) -> str:
    """A duration for people: 12 ms, 3.4 s, 2 min 05 s, 1 h 10 min."""
    if value is None:
        return "?"
    if value < 1:
        return f"{1000 * value:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    whole = round(value)
    return (
        f"{whole // 60} min {whole % 60:02} s"
        if whole < 3600
        else f"{whole // 3600} h {whole // 60 % 60:02} min"
    )


def requests_words(count: int) -> str:
    """ "1 request", "24 requests"."""
    return "1 request" if count == 1 else f"{count:,} requests"


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"
