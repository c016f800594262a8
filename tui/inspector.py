"""One request looked at closely: its story, the cache ladder, the prompt as segments, where it diverged."""

from __future__ import annotations

import textwrap
from typing import Final

from parser.request import Request
from parser.sanitise import sanitise
from parser.trace import TraceRequest
from tui.ladder import Step, divergence, ladder, segments
from tui.scene import Scene
from tui.words import Line, request_story, request_title, seconds

_VERDICT: Final = {
    "held": ("✓", "restore"),
    "failed": ("✗", "lost"),
    "not tried": ("·", "dim"),
    "unknown": ("?", "mixed"),
}
_SEGMENT: Final = {"reused": ("▒", "restore"), "again": ("█", "lost"), "new": ("▓", "plain")}
_SEGMENT_WORDS: Final = {
    "reused": "reused",
    "again": "known a moment ago, computed again",
    "new": "new or changed, computed",
}


def inspect(
    scene: Scene,
    request: Request,
    row: int,
    *,
    width: int,
    trace: TraceRequest | None = None,
    family: str | None = None,
) -> list[Line]:
    """All there is to say about one request, for a pane `width` cells wide."""
    return [
        request_title(scene, request, row),
        *request_story(scene, request, row),
        *_numbers(request),
        [],
        [("Cache ladder", "strong"), ("  first step that fits wins", "dim")],
        *(
            line
            for step in ladder(request, disk=scene.setting.disk, family=family)
            for line in _step(step, width)
        ),
        [],
        *_prompt(request, width),
        *_divergence(request, trace),
        *_doubts(request),
    ]


def _numbers(request: Request) -> list[Line]:
    generated = "?" if request.generated_tokens is None else f"{request.generated_tokens:,}"
    finish = f" · {sanitise(request.finish)}" if request.finish else ""
    flags = f" · {sanitise(' '.join(request.flags))}" if request.flags else ""
    took = f"prefill {seconds(request.prefill_s)}, whole request {seconds(request.total_s)}"
    lines: list[Line] = [[(f"wrote {generated} tokens{finish} · {took}{flags}", "dim")]]
    for store in request.stores:
        size = f", {store.size_mib:,.1f} MiB" if store.size_mib is not None else ""
        lines.append([(f"stored {store.tokens:,} tokens ({sanitise(store.reason)}{size})", "dim")])
    return lines


def _step(step: Step, width: int) -> list[Line]:
    sign, role = _VERDICT[step.verdict]
    name_role = "strong" if step.verdict == "held" else "plain" if step.verdict == "failed" else "dim"
    needs = f"needs: {step.needs}" if step.needs and step.verdict == "failed" else ""
    because = step.because or needs
    name: Line = [(f" {sign} ", role), (f"{step.name:<22}", name_role)]
    if len(because) <= width - 25:
        return [[*name, (because, "dim")]]
    return [name, *([(f"     {part}", "dim")] for part in textwrap.wrap(because, max(20, width - 5)))]


def _prompt(request: Request, width: int) -> list[Line]:
    parts = segments(request)
    if not parts:
        return [[("Prompt", "strong"), ("  its parts are not in the log", "dim")]]
    total = parts[-1].end
    bar: Line = []
    room = max(10, width - 2)
    for part in parts:
        sign, role = _SEGMENT[part.kind]
        cells = round(part.end / total * room) - round(part.begin / total * room)
        bar.append((sign * max(1, cells), role))
    lines: list[Line] = [[("Prompt", "strong"), (f"  {total:,} tokens", "dim")], bar]
    for part in parts:
        sign, role = _SEGMENT[part.kind]
        words = f" {part.begin:>8,} – {part.end:<8,} {part.end - part.begin:>8,}  {_SEGMENT_WORDS[part.kind]}"
        lines.append([(sign, role), (words, "plain")])
    return lines


def _divergence(request: Request, trace: TraceRequest | None) -> list[Line]:
    at = divergence(request)
    if at is None:
        return []
    lines: list[Line] = [
        [],
        [("Divergence", "strong"), (f"  prompt and live state part at token {at:,}", "plain")],
    ]
    window = _window(trace)
    if not window:
        return [*lines, [("the tokens there are in a --trace file, if the server wrote one", "dim")]]
    return lines + window


def _window(trace: TraceRequest | None) -> list[Line]:
    """The trace's token window: what the slot held, and what the prompt says in its place."""
    if trace is None or not trace.window:
        return []
    head: Line = [(f"{'':<21}{'live':<25} prompt", "dim")]
    return [head, *(_token(*row) for row in trace.window)]


def _token(index: int, mark: str, live: int | None, held: str, prompt: int | None, said: str) -> Line:
    role = "plain" if mark == "==" else "lost"
    left = f'"{sanitise(held)}"' if live is not None else "–"
    right = f'"{sanitise(said)}"' if prompt is not None else "–"
    return [(f"{index:>8} ", "dim"), (f"{mark:<12}", role), (f"{left:<25} {right}", role)]


def _doubts(request: Request) -> list[Line]:
    """Which figures are inferred, and why."""
    if not request.why:
        return []
    lines: list[Line] = [[], [("How sure", "strong")]]
    return lines + [
        [(f" {sanitise(name)}: {sanitise(str(why))}", "dim")] for name, why in request.why.items()
    ]
