"""poisoned-checkpoint: every prefill that starts from one disk file fails (4.6)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from parser.event import Event
from parser.request import Request
from triage import engine
from triage.attempts import cancels, failures, unfinished
from triage.episodes import Episode
from triage.evidence import event_sign, plural
from triage.figures import compact
from triage.mechanism import BROKEN, Mechanism, Replay, Sign
from triage.view import View

#: reads of one file in a row that make a loop
_LOOP: Final = 3


def _groups(view: View) -> Iterator[list[Request]]:
    """Requests with the same S > 0 that never reached `prompt done`, by S."""
    by_start: dict[tuple[int, int], list[Request]] = {}
    for request in view.requests:
        if request.cached_tokens and request.prefilled_tokens and unfinished(view, request):
            by_start.setdefault((request.run, request.cached_tokens), []).append(request)
    yield from by_start.values()


def _errors(view: View, group: list[Request]) -> list[Event]:
    """Prefill errors from the first of these attempts on."""
    first = min((min(r.events) for r in group if r.events), default=0)
    return [e for e in (*failures(view), *engine.engine_failures(view)) if e.seq >= first]


def _reread(view: View) -> list[Episode]:
    """The same file read at the same depth again and again while C is pinned and nothing advances."""
    by_file: dict[tuple[int, int | None, int | None], list[Episode]] = {}
    for episode in view.episodes:
        if episode.hit is not None and _stands(episode):
            key = episode.request.run, episode.hit_tokens, episode.common
            by_file.setdefault(key, []).append(episode)
    worst = max(by_file.values(), key=len, default=[])
    loop = len(worst) >= _LOOP and not view.of("prompt_done")
    return worst if loop and (worst[0].common is not None or _one_prompt(view, worst)) else []


def _stands(episode: Episode) -> bool:
    """Its prefill ended in nothing, and no line shows that it got anywhere."""
    request = episode.request
    return request.prefill_s is None and request.finish is None and not request.progress.last_done


def _one_prompt(view: View, attempts: list[Episode]) -> bool:
    """Where no miss line tells C: one prompt, sent again and again to the only slot that is known of."""
    prompts = [e.prompt for e in attempts if e.prompt is not None]
    grown = [b - a for a, b in pairwise(prompts)]
    return (
        len(prompts) == len(attempts)
        and all(0 <= step < view.limits.retry_growth_tokens for step in grown)
        and view.slots(attempts[0]) in (None, 1)
        and all(not e.request.client_gone for e in attempts)
    )


def detect(view: View) -> Iterator[Sign]:
    """The same S > 0 two or more times without `prompt done`, with a prefill error; or a reload loop."""
    for group in _groups(view):
        errors = _errors(view, group)
        gone_client = all(r.client_gone for r in group) and not any(_says_failed(e) for e in errors)
        sure = len(group) > 1 and errors
        single = len(group) == 1 and any(e.kind == "kv_discarded" for e in errors)
        told = not cancels(view) or any(_says_failed(e) for e in errors)
        if gone_client or not (sure or (single and told)):
            continue
        yield _sign(view, group, errors, bool(sure))
        return
    loop = _reread(view)
    if loop:
        yield _sign(view, [e.request for e in loop], [e for ep in loop for e in ep.events], False)


def _says_failed(event: Event) -> bool:
    return event.kind in ("stream_error", "foreign", "unknown") and "failed" in event.text


def _sign(view: View, group: list[Request], errors: list[Event], sure: bool) -> Sign:
    depth = group[0].cached_tokens if group[0].cached_tokens else group[0].disk_hit_tokens
    episodes = [e for e in view.episodes if any(e.request is r for r in group)]
    own = [e for ep in episodes for e in ep.events]
    done = sum(r.progress.last_done or 0 for r in group)
    tokens = sum(r.prefilled_tokens or 0 for r in group)
    return event_sign(
        f"{plural(len(group), 'prefill')} from the restored state of {depth} tokens did not finish: the checkpoint itself "
        + ("is bad" if sure else "may be bad"),
        own + errors,
        compact(
            {
                "restart_tokens": depth,
                "attempts": len(group),
                "prefilled_tokens": done,
                "file": next((r.hit_file for r in group if r.hit_file), None),
            }
        ),
        episodes=episodes,
        tokens=tokens,
        confidence=0.9 if sure else 0.6,
    )


MECHANISM = Mechanism(
    id="poisoned-checkpoint",
    title="A damaged checkpoint fails every prefill that starts from it",
    family="budget",
    grades=("log",),
    severity="critical",
    evidence="`prompt start` with the same S > 0 two or more times without `prompt done`, with a prefill error or `discarded "
    "reason=prefill-failed`; or the same file read at the same depth again and again while C stays and nothing advances",
    not_if="each attempt ends with `prompt done`; S = 0 (engine-prefill-failure)",
    user="delete the named file",
    server="delete the file after a failed prefill, guard against reload loops",
    detect=detect,
    upstream=(251, 253),
    replay=Replay("without the file: one cold prefill instead of the loop", {"no_kv_disk": "true"}),
    place=BROKEN,
)
