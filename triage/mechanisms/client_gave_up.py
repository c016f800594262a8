"""client-gave-up: the client was gone before the answer (4.7)."""

from __future__ import annotations

from collections.abc import Iterator

from parser.event import Event
from parser.request import Request
from triage.attempts import FAILED_RULES, cancels, discarded, unfinished
from triage.build import prefill_seconds
from triage.engine import engine_failures
from triage.episodes import Episode, total, total_s
from triage.evidence import event_sign, plural
from triage.figures import compact
from triage.mechanism import CONSEQUENCE, Mechanism, Replay, Sign
from triage.view import View

ERRORS = ("client stream write failed", "client disconnected")


def shutdown_before(view: View, event: Event) -> bool:
    """An orderly shutdown was asked for before `event`, in the same server process."""
    return any(
        e.seq < event.seq and view.run_at(e) == view.run_at(event) for e in view.of("shutdown", "requested")
    )


def gone_lines(view: View) -> list[Event]:
    """Lines that say the client is gone, but for those that an orderly shutdown explains."""
    lines = [e for e in view.of("stream_error") if e.rule not in FAILED_RULES]
    lines += [e for e in view.of("finish") if e.get("error") in ERRORS]
    return sorted((e for e in lines if not shutdown_before(view, e)), key=lambda e: e.seq)


def _dropped(view: View) -> list[Event]:
    """Files deleted without a word of a failure, in a build that does so when the client leaves a restored prefill."""
    failed = view.of("stream_error", *FAILED_RULES) or engine_failures(view)
    return discarded(view) if cancels(view) and not failed else []


def _gone_requests(view: View) -> list[Request]:
    return [r for r in view.requests if r.error in ERRORS]


def _wasted(view: View, episodes: list[Episode]) -> float | None:
    """Seconds computed for nobody: the whole request where the log says it, else its prefill, as far as it came."""
    return total_s(_spent(view, e.request, e.seconds) for e in episodes)


def _spent(view: View, request: Request, prefill: float | None) -> float | None:
    if request.total_s is not None or prefill is not None or not unfinished(view, request):
        return request.total_s if request.total_s is not None else prefill
    if request.start_s is None or request.end_s is None or request.end_s <= request.start_s:
        return request.progress.last_s
    return max(request.end_s - request.start_s, request.progress.last_s or 0.0)


def _computed(view: View, episode: Episode) -> int | None:
    """Tokens that were prefilled for nobody: all, or as far as the chunk lines of a prefill without an end tell."""
    reached = episode.request.progress.last_done
    return reached if reached is not None and unfinished(view, episode.request) else episode.prefilled


def detect(view: View) -> Iterator[Sign]:
    """Stream errors of the client's side, or finish=error with a failed client write."""
    lines = gone_lines(view)
    grade = "log" if lines or _gone_requests(view) else "possible"
    lines = lines or _dropped(view)
    numbers = {view.owner[e.seq].request.request for e in lines if e.seq in view.owner}
    numbers |= {r.request for r in _gone_requests(view) if not view.of("shutdown", "requested")}
    if not lines and not numbers:
        return
    episodes = [e for e in view.episodes if e.request.request in numbers]
    stated = [e.get("elapsed_s") for e in view.of("prompt_done") if e.get("elapsed_s") is not None]
    prefill = prefill_seconds(view, [e.request for e in episodes])
    if prefill is None and stated and not any(e.spanned for e in episodes):
        prefill = stated[-1]
    seconds = _wasted(view, episodes) or prefill
    first = next((e.request for e in episodes if e.spanned), None)
    yield event_sign(
        f"{plural(max(len(numbers), 1), 'request')} ended without its client: what was computed reached nobody"
        + (
            ""
            if grade == "log"
            else " (its file was discarded and no failure is shown: this build does so for both)"
        ),
        lines or [e for ep in episodes for e in ep.events][-8:],
        compact(
            {
                "requests_lost": max(len(numbers), 1),
                "wasted_prefill_seconds": prefill,
                "wasted_seconds": seconds,
                "prefill_tokens": total(e.prefilled for e in episodes),
                "computed_tokens": total(_computed(view, e) for e in episodes),
                "generated_tokens": total(e.request.generated_tokens for e in episodes),
                "cached_tokens": first.cached_tokens if first is not None else None,
                "prompt_tokens": first.prompt_tokens if first is not None else None,
            }
        ),
        episodes=episodes,
        tokens=total(_computed(view, e) for e in episodes),
        seconds=seconds,
        grade=grade,
    )


MECHANISM = Mechanism(
    id="client-gave-up",
    title="The client was gone before the answer",
    family="client",
    grades=("log",),
    severity="high",
    evidence="`sse headers failed`, `stream closed during prefill`, `final stream failed`, `client disconnected`, finish=error with "
    "`client stream write failed`; or a prefill close to a known deadline (300, 600, 1800 s)",
    not_if="a shutdown line stands just before (server-stopped); after a clock jump or a stalled chunk it is a consequence",
    user="longer first-byte and idle deadlines",
    server="keepalive by wall clock, stop the prefill when the client is gone",
    detect=detect,
    upstream=(111, 151, 194, 222, 224, 227, 242, 245, 333, 489, 1006),
    replay=Replay("cancel at the time of the disconnect", {}),
    place=CONSEQUENCE,
    causes=(
        "prefill-stall",
        "host-suspended",
        "poisoned-checkpoint",
        "engine-prefill-failure",
        "distributed-failure",
    ),
)
