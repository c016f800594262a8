"""prefill-stall: the prefill stood still (4.7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Final

from parser.clock import Clock
from parser.event import KINDS, Event
from triage.build import SHORT
from triage.episodes import Episode
from triage.evidence import event_sign, plural
from triage.figures import compact
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import Gap, View

#: lines of a request that has started
_RUNNING: Final = ("prompt_start", "prefill_chunk", "prompt_done", "decoding", "finish")
#: a server that is about to stop takes no new requests: so long before its end nothing is said of a wait
_STOPPING_S: Final = 600.0


def stalls(view: View) -> list[Gap]:
    """Chunks at least 20 times slower per token than their neighbours, and a minute or more."""
    return [g for g in view.gaps if g.first.kind == "prefill_chunk" and _stalled(g, view)]


def _stalled(gap: Gap, view: View) -> bool:
    limits, usual = view.limits, gap.usual_s or (1 / view.rate if view.rate else None)
    if not gap.tokens or gap.printed_s is None or gap.printed_s < limits.stall_s or usual is None:
        return False
    if gap.printed_s / gap.tokens < limits.stall_factor * usual:
        return False
    return gap.wall_s is None or abs(gap.wall_s - gap.printed_s) <= max(5.0, 0.1 * gap.printed_s)


def never_started(view: View) -> list[tuple[Episode, float]]:
    """A miss or a hit that no `prompt start` follows while its log or excerpt goes on for a minute or more."""
    log = view.reading.events
    if log is None or sum(view.reading.counts.values()) > SHORT or not view.when:
        return []
    if view.reading.kind != "log" and not _shows_starts(view):
        return []
    left = [e for e in view.episodes if not e.spanned and not _answered(view, e)]
    asked = [(e, line) for e in left if (line := e.miss or e.hit) is not None and line.stamp is not None]
    lines = list(log.rows(*KINDS)) if asked else []
    found = []
    for episode, line in asked:
        run, waited = view.run_of(episode), _goes_on(_unbroken(lines, line), line)
        if waited >= view.limits.stall_s and not (run is not None and run.stopped and waited < _STOPPING_S):
            found.append((episode, waited))
    return found


def _answered(view: View, episode: Episode) -> bool:
    """A later request finds the state that this one left: it was served, and its lines are left out."""
    least, limit = episode.prompt or episode.hit_tokens, view.limits.unknown_reply_tokens
    later = view.episodes[view.episodes.index(episode) + 1 :]
    lives = [e.live for e in later if e.live is not None]
    if least is None or episode.prompt is None:
        return any(least is None or live >= least for live in lives)
    return any(0 <= live - least <= limit for live in lives)


def _unbroken(lines: Sequence[Event], line: Event) -> Iterator[Event]:
    """The lines of its excerpt behind a line, up to the first gap (dots, a blank line): what may lie there is unknown."""
    last = line
    for event in lines:
        if event.seq <= line.seq:
            continue
        if (event.source, event.excerpt) != (line.source, line.excerpt) or event.line > last.line + 1:
            return
        last = event
        yield event


def _goes_on(lines: Iterable[Event], line: Event) -> float:
    """Seconds for which requests go on behind a line; 0 where the `prompt start` of one was left out."""
    clock, shown, last = Clock(), set[int | None](), 0.0
    begin = clock.seconds(line.stamp) or 0.0
    for event in lines:
        if event.kind not in _RUNNING:
            continue
        at, elapsed, prompt = clock.seconds(event.stamp), event.get("elapsed_s"), _prompt_of(event)
        if event.kind == "prompt_start":
            if prompt is not None and prompt == line.get("prompt"):
                return 0.0  # it started, whatever the numbers before it say
            shown.add(prompt)
        elif prompt not in shown and at is not None and elapsed is not None and at - elapsed > begin + 1.0:
            return 0.0  # it began behind the line, and its start is not shown
        last = last if at is None else at - begin
    return last


def _prompt_of(event: Event) -> int | None:
    """P: the end of the span, but for the tokens that a line of decoding counts in."""
    end: int | None = event.get("span_end")
    return end - (event.get("gen") or 0) if event.kind == "decoding" and end is not None else end


def _shows_starts(view: View) -> bool:
    """A pasted piece that shows the `prompt start` of every miss and hit but one left none out."""
    return sum(not e.spanned for e in view.episodes if e.miss is not None or e.hit is not None) == 1


def detect(view: View) -> Iterator[Sign]:
    """One chunk stands still, or a request never gets to its prefill."""
    found, waiting = stalls(view), never_started(view)
    if not found and not waiting:
        return
    seconds = sum(g.printed_s or 0.0 for g in found)
    should = sum((g.usual_s or 0.0) * (g.tokens or 0) for g in found)
    owners = {id(ep): ep for ep in view.episodes for g in found if _owns(ep, g)}
    yield event_sign(
        f"{plural(len(found) + len(waiting), 'prefill')} stood still"
        + (f": {found[0].tokens} tokens took {found[0].printed_s:.0f} s" if found else ""),
        [e for g in found for e in (g.first, g.second)] + [e for ep, _ in waiting for e in ep.events],
        compact(
            {
                "stall_seconds": seconds or None,
                "stall_tokens": sum(g.tokens or 0 for g in found) or None,
                "stalls": len(found) or None,
                "median_gap_seconds": median([g.printed_s or 0.0 for g in found]) if found else None,
                "usual_seconds_per_token": found[0].usual_s if found else None,
                "never_started": len(waiting) or None,
                "waited_seconds": max((s for _, s in waiting), default=None),
            }
        ),
        episodes=[*owners.values(), *(ep for ep, _ in waiting)],
        tokens=0,
        seconds=round(max(0.0, seconds - should) + sum(s for _, s in waiting), 3),
        confidence=0.9 if found else 0.5,
    )


def _owns(episode: Episode, gap: Gap) -> bool:
    request, line = episode.request, gap.second
    same = (request.prompt_tokens, request.prefilled_tokens) == (
        line.get("span_end"),
        line.get("span_tokens"),
    )
    return same and bool(request.events) and min(request.events) <= line.seq


MECHANISM = Mechanism(
    id="prefill-stall",
    title="The prefill stood still",
    family="client",
    grades=("log",),
    severity="high",
    evidence="one chunk at least 20 times slower per token than its neighbours and >= 60 s, with the printed seconds growing by the "
    "same amount as the stamps; or a miss (or hit) that is never followed by `prompt start` while the log goes on for >= 60 s",
    not_if="stamps jump but printed seconds do not (host-suspended); all chunks are slow alike (slow-but-right); a last, short "
    "chunk that is merely somewhat slower",
    user="look at memory pressure and other GPU work",
    server="keepalive independent of chunks",
    detect=detect,
    upstream=(222, 224, 227),
    replay=Replay("the median rate in place of the stall", {}),
)
