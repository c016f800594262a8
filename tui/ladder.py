"""The cache ladder of one request: the steps that failed and the one that held (cache-behaviour section 3).

The server takes the first step that fits and logs only that one, so the steps before it failed for certain;
why they failed is said as far as the numbers of the request tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from parser.request import Request
from parser.sanitise import sanitise

Verdict = Literal["held", "failed", "not tried", "unknown"]
_ORDER: Final = (
    "responses-visible",
    "responses-tool-output",
    "anthropic-tool-output",
    "memory-rewind",
    "memory-token",
    "thinking-visible",
    "memory-text",
)
_PLAIN: Final = {
    "responses-visible": "the visible text of the last /v1/responses turn goes on",
    "responses-tool-output": "tool results for exactly the calls this slot made (/v1/responses)",
    "anthropic-tool-output": "tool results for exactly the calls this slot made (/v1/messages)",
    "memory-rewind": "the same prompt again: live state cut back to its end (GLM)",
    "memory-token": "the prompt begins with all live tokens",
    "thinking-visible": "the prompt begins with the remembered turn without its reasoning",
    "memory-text": "the prompt's text begins with the live text",
    "disk-text": "a checkpoint on disk begins this prompt",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its name (a `source` of `docs/outputs.md`, "evict" or "cold"), what it needs, how it went."""

    name: str
    needs: str
    verdict: Verdict
    because: str = ""


def ladder(request: Request, *, disk: bool | None, family: str | None) -> tuple[Step, ...]:
    """All steps in the order tried. `disk`: a disk cache is configured (None: not known)."""
    held = request.source
    if held is None:
        return (Step("?", "", "unknown", "the input does not say what was reused"),)
    steps = [*_memory_steps(request, held, family)]
    in_memory = held in (*_ORDER, "memory")
    steps.append(_evict_step(request, in_memory, disk))
    steps.append(_disk_step(request, held, in_memory, disk))
    cold = held == "cold"
    cold_words = f"all {_count(request.prompt_tokens)} tokens computed" if cold else ""
    steps.append(Step("cold", "nothing: computed from token 0", "held" if cold else "not tried", cold_words))
    return tuple(steps)


def _memory_steps(request: Request, held: str, family: str | None) -> list[Step]:
    if not request.live_before and held in ("cold", "disk-text"):
        empty = request.live_before == 0
        because = (
            "the slot was empty" if empty else "the slot was empty, or the log does not say what it held"
        )
        return [Step("memory", "live state in the slot", "failed" if empty else "unknown", because)]
    reached = _ORDER.index(held) if held in _ORDER else None
    steps = []
    for number, name in enumerate(_ORDER):
        if held == "memory" and name in ("memory-token", "memory-text"):
            steps.append(Step(name, _PLAIN[name], "held", "one of these two; the log does not tell which"))
        elif reached is None or number < reached:
            steps.append(Step(name, _PLAIN[name], "failed", _why_not(name, request, family)))
        else:
            verdict: Verdict = "held" if number == reached else "not tried"
            steps.append(Step(name, _PLAIN[name], verdict, _reused(request) if verdict == "held" else ""))
    return [step for step in steps if held != "memory" or step.verdict == "held" or step.verdict == "failed"]


def _why_not(name: str, request: Request, family: str | None) -> str:
    """Why a memory step did not hold, as far as live, common and prompt tell."""
    live, common = request.live_before, request.common
    prompt = request.canonical_prompt_tokens or request.prompt_tokens
    if name.startswith("responses"):
        return "" if "RESPPROTO" in request.flags else "not a /v1/responses request"
    if name == "memory-rewind":
        if family not in (None, "glm"):
            return "this model cannot cut its live state"
        return (
            ""
            if common is None or common == prompt
            else f"only {common:,} of {_count(prompt)} prompt tokens fit"
        )
    if name == "memory-token" and live is not None and common is not None:
        return f"{common:,} of {live:,} live tokens shared; all or nothing"
    return ""


def _evict_step(request: Request, in_memory: bool, disk: bool | None) -> Step:
    needs = "what the slot held is written to disk first"
    if in_memory:
        return Step("evict", needs, "not tried")
    if not request.evicted_live_tokens:
        return Step("evict", needs, "not tried", "nothing to save" if request.live_before == 0 else "")
    tokens = f"{request.evicted_live_tokens:,} tokens"
    if request.evict_stored:
        store = next((store for store in request.stores if store.reason == "evict"), None)
        size = f", {store.size_mib:,.1f} MiB" if store is not None and store.size_mib is not None else ""
        return Step("evict", needs, "held", f"{tokens} saved{size}")
    why = "no disk cache" if disk is False else "no store line: not saved, or the same file was there already"
    return Step("evict", needs, "failed", f"{tokens} overwritten; {why}")


def _disk_step(request: Request, held: str, in_memory: bool, disk: bool | None) -> Step:
    needs = _PLAIN["disk-text"]
    if in_memory:
        return Step("disk-text", needs, "not tried")
    if held == "disk-text":
        name = f", file {sanitise(request.hit_file)[:12]}" if request.hit_file else ""
        load = f" in {request.load_ms:,.0f} ms" if request.load_ms is not None else ""
        return Step("disk-text", needs, "held", f"{_count(request.disk_hit_tokens)} tokens read{load}{name}")
    if disk is False:
        return Step("disk-text", needs, "failed", "no disk cache")
    if request.disk_hit_tokens:
        return Step("disk-text", needs, "failed", f"{request.disk_hit_tokens:,} tokens read, but not used")
    return Step("disk-text", needs, "failed", "no file fits" if disk else "no file fits, or no disk cache")


def _reused(request: Request) -> str:
    return f"{_count(request.cached_tokens)} tokens reused"


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the prompt, `begin`..`end` tokens: "reused", "again" (known, computed again) or "new"."""

    kind: Literal["reused", "again", "new"]
    begin: int
    end: int


def segments(request: Request) -> tuple[Segment, ...]:
    """The prompt cut where reuse and knowledge end; empty where the log does not say.

    "again" is what live state or a deleted checkpoint knew and this request computed all the same.
    """
    prompt, cached = request.prompt_tokens, request.cached_tokens
    if prompt is None or cached is None:
        return ()
    lost = request.lost_to_cache_tokens
    known = cached + lost if lost is not None else max(cached, request.common or 0)
    known = min(max(known, cached), prompt)
    parts = (("reused", 0, cached), ("again", cached, known), ("new", known, prompt))
    return tuple(Segment(kind, begin, end) for kind, begin, end in parts if end > begin)  # type: ignore[arg-type]


def divergence(request: Request) -> int | None:
    """Token at which prompt and live state part: from the trace, else `common` of the miss line."""
    if request.mismatch_first is not None:
        return request.mismatch_first
    live = request.live_before
    return request.common if request.common is not None and live and request.common < live else None
