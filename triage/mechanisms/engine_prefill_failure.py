"""engine-prefill-failure: the engine could not compute the prompt (4.8)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from parser.event import Event
from triage import engine
from triage.attempts import unfinished
from triage.evidence import event_sign, plural
from triage.figures import compact
from triage.hearsay import PREFILL
from triage.mechanism import BROKEN, Mechanism, Sign
from triage.view import View

_POSITION = re.compile(r"\bat token (\d+)")
_BACKEND = re.compile(r"\b(?:prefill|decode|graph|kernel|embed tokens|sync|batch)\b[^\"]*\bfailed\b")


def _lines(view: View) -> list[Event]:
    """Prefill errors: stream lines that name one, engine lines inside an open request, backend texts at the finish."""
    streams = [e for e in view.of("stream_error", "prefill_failed", "sse_error") if "failed" in e.text]
    finishes = [e for e in view.of("finish") if _BACKEND.search(str(e.get("error") or ""))]
    pair = {e.seq for e in engine.pair_failures(view)}
    inside = [e for e in engine.engine_failures(view) if e.seq not in pair or "gate failed" in e.text]
    return sorted({e.seq: e for e in (*streams, *finishes, *inside)}.values(), key=lambda e: e.seq)


def detect(view: View) -> Iterator[Sign]:
    """`prefill failed …`, engine lines `… failed` inside an open request; no `prompt done`."""
    lines = _lines(view)
    if not lines:
        yield from _quoted(view)
        return
    owners = {id(view.owner[e.seq]): view.owner[e.seq] for e in lines if e.seq in view.owner}
    last = [e for e in view.of("prompt_start") if e.seq < lines[0].seq]
    yield event_sign(
        f"the engine failed in the middle of a request ({plural(len(lines), 'line')})",
        [*last[-1:], *lines[:100]],
        compact(
            {
                "failures": len(lines),
                "position_tokens": _position(view, lines),
                "prompt_tokens": last[-1].get("span_end") if last else None,
                "cached_tokens": last[-1].get("span_start") if last else None,
            }
        ),
        episodes=list(owners.values()),
        tokens=last[-1].get("span_tokens") if last else 0,
    )


def _position(view: View, lines: list[Event]) -> int | None:
    """Where it failed: as a line says, as the client was told, else as far as the last chunk before it."""
    said = [int(m[1]) for e in lines if (m := _POSITION.search(e.text))]
    told = [int(m[1]) for h in view.reading.hearsay if h.kind == "error" and (m := _POSITION.search(h.text))]
    begun = [r for r in view.requests if r.prompt_line is not None and r.prompt_line <= lines[0].line]
    last = begun[-1] if begun else None
    reached = last.progress.last_done if last is not None else None
    depth = [(last.cached_tokens or 0) + reached] if last is not None and reached is not None else []
    return next(iter((*said, *told, *depth)), None)


def _quoted(view: View) -> Iterator[Sign]:
    """An error text that the client was given, while the log shows prefills without an end."""
    said = [
        h for h in view.reading.hearsay
        if h.kind == "error" and PREFILL.search(str(h.fields.get("message") or h.text))
    ]  # fmt: skip
    broken = [r for r in view.requests if r.prompt_line is not None and unfinished(view, r)]
    if said and broken:
        numbers = {r.request for r in broken}
        episodes = [e for e in view.episodes if e.request.request in numbers]
        yield event_sign(
            f"{plural(len(broken), 'prefill')} without an end, and the client was told of a failed prefill",
            [e for ep in episodes for e in ep.events],
            compact(
                {
                    "failures": len(broken),
                    "http_status": said[0].fields.get("status"),
                    "prompt_tokens": broken[-1].prompt_tokens,
                }
            ),
            episodes=episodes,
            tokens=sum(r.prefilled_tokens or 0 for r in broken),
            confidence=0.8,
        )


MECHANISM = Mechanism(
    id="engine-prefill-failure",
    title="The engine fails in the prefill",
    family="engine",
    grades=("log",),
    severity="critical",
    evidence="`prefill failed …`, engine lines `… failed` inside an open request, an HTTP 500 with such a text; no `prompt done`",
    not_if="the word FAILED stands in a fallback notice; the request ends normally; a restored checkpoint is the start "
    "(poisoned-checkpoint)",
    user="another build or other settings",
    server="by case",
    detect=detect,
    upstream=(251, 735, 890),
    place=BROKEN,
)
