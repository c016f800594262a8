"""healthy: reuse as it should be, and no alarm (4.9)."""

from __future__ import annotations

from collections.abc import Iterator

from triage.episodes import Episode
from triage.evidence import event_sign, triggered
from triage.figures import compact, listed
from triage.health import cold_again, good_signs, judged_right
from triage.mechanism import INFORMATION, Mechanism, Sign
from triage.view import View


def detect(view: View) -> Iterator[Sign]:
    """A continuation, a used hit, S = L', a rewind, or a first cold prompt. (The ranking drops it beside an alarm.)"""
    right = judged_right(view)
    doubtful = {id(e) for e in cold_again(view, right)}
    right = [e for e in right if id(e) not in doubtful]
    signs = good_signs(view)
    switches = _cheap(view)
    if not signs and not right and not switches and not _all_plain(view):
        return
    best = [e for e in right if e.start and e.prompt] or right
    requests = view.requests
    reused = sum(r.cached_tokens or 0 for r in requests)
    prompts = sum(r.prompt_tokens or 0 for r in requests if r.prompt_tokens)
    first = best[0] if best else None
    yield event_sign(
        "the cache works as it should: "
        + (
            ", ".join(sorted({name for name, _ in signs}))
            or ("a switch that cost little" if switches else "a first prompt, computed once")
        ),
        [e for _, e in signs][:12] or [e for ep in best[:3] for e in ep.events][:6],
        compact(
            {
                "reuse_percent": 100.0 * (first.start or 0) / first.prompt
                if first is not None and first.prompt
                else None,
                "reuse_percent_overall": 100.0 * reused / prompts if prompts else None,
                "new_tokens": first.prefilled if first is not None else None,
                "prefill_seconds": first.seconds if first is not None else None,
                "cheap_switches": len(switches) or None,
                "each": listed([*best, *switches][:12], view),
            }
        ),
        tokens=0,
        confidence=0.9 if any(ep.start for ep in best) or signs else 0.6,
    )


def _cheap(view: View) -> list[Episode]:
    """Switches that the disk healed, and misses of too few tokens to matter."""
    names = ("side-calls-on-one-slot", "tail-mismatch-no-rewind")
    return [e for name in names for e, _ in triggered(view, name, cheap=True)] + [
        e for e, _ in triggered(view, "")
    ]


def _all_plain(view: View) -> bool:
    """A long log in which no request needed judging."""
    return bool(view.requests) and not view.episodes


MECHANISM = Mechanism(
    id="healthy",
    title="Healthy",
    family="none",
    grades=("log",),
    severity="none",
    evidence="at least one request that shows reuse as it should be (continuation line, used hit, S = L', rewind) or a first cold "
    "prompt, and no alarm; cheap switches count as healthy",
    not_if="any alarm",
    user="nothing to do",
    server="nothing to do",
    detect=detect,
    place=INFORMATION,
)
