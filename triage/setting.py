"""Setting: what the trigger rules need beside one miss: turns of conversations, repeated figures, slots in use."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from triage.episodes import Episode
from triage.turns import Alternation, Return, alternations, followed
from triage.view import View

#: so many requests before one are looked at for those that still run
_NEAR: Final = 64


@dataclass(frozen=True, slots=True)
class Trigger:
    """The mechanism, how sure (`grade` as in `Sign`), why, and what else the input would allow.

    `cheap`: the disk healed the switch (H within max(1024, 5 %) of what was lost), a note under `healthy`.
    """

    mechanism: str
    why: str
    grade: str = "log"
    alternatives: tuple[str, ...] = ()
    cheap: bool = False


@dataclass(slots=True)
class Setting:
    """Keys are `id(episode)`, of `used_slots` the server run."""

    view: View
    turning: dict[int, Alternation]
    returned: dict[int, Return]
    comes_back: dict[int, Return]
    pinned: set[int]
    repeated_distance: set[int]
    creeping: set[int]
    used_slots: dict[int, int]


def setting_of(view: View) -> Setting:
    """Turns of conversations, pinned and repeated distances, slots in use."""
    turning, returned, back = {}, {}, {}
    for group in alternations(view):
        turning.update({id(m): group for m in group.members})
        returned.update({id(r.episode): r for r in group.returns})
        back.update({id(r.displaced): r for r in group.returns})
    return Setting(
        view, turning, returned, back, _pinned(view), _repeated(view), _creeping(view), _used_slots(view)
    )


def _used_slots(view: View) -> dict[int, int]:
    """Slots that were used, by run: the parser's labels in a whole log; in an excerpt 1 where one chain of lengths explains all."""
    seen: dict[int, set[int]] = {}
    if followed(view):
        for request in view.requests:
            if request.slot is not None:
                seen.setdefault(request.run, set()).add(request.slot)
        return {run: len(slots) for run, slots in seen.items()}
    steps = [
        (a.prompt or 0) <= (b.live or 0) <= (a.prompt or 0) + 16_384
        for a, b in pairwise(e for e in view.episodes if e.miss)
    ]
    return {run.run: 1 for run in view.reading.runs} if len(steps) > 1 and all(steps) else {}


def _plain_misses(view: View) -> list[Episode]:
    """Misses that are neither invalid, nor retries, nor too small to matter."""
    least = view.limits.large_tokens
    return [
        e
        for e in view.misses
        if e.common and e.common != e.prompt and max(e.live or 0, e.prompt or 0) >= least
    ]


def _pinned(view: View) -> set[int]:
    """The same C in three or more misses with different P, while L and P are alike."""
    limits = view.limits
    alike = [
        e
        for e in _plain_misses(view)
        if e.live and abs(e.live - (e.prompt or 0)) < limits.alike_share * max(e.live, e.prompt or 0)
        and (e.common or 0) >= limits.head_tokens
    ]  # fmt: skip
    found: set[int] = set()
    for same in _near(alike, lambda e: e.common or 0, lambda _: limits.same_common_tokens):
        if len(same) >= limits.pinned_misses and len({e.prompt for e in same}) >= limits.pinned_misses:
            found.update(id(e) for e in same)
    return found


def _near(
    episodes: list[Episode], value: Callable[[Episode], int], slack: Callable[[int], int]
) -> Iterator[list[Episode]]:
    """For each episode those whose value lies within the slack of its own."""
    ordered = sorted(episodes, key=value)
    values = [value(e) for e in ordered]
    for own in dict.fromkeys(values):
        low, high = bisect_left(values, own - slack(own)), bisect_right(values, own + slack(own))
        yield ordered[low:high]


def _repeated(view: View) -> set[int]:
    """C below P' by about the same distance on two or more turns, inside the last user message."""
    limits = view.limits
    below = [
        e
        for e in _plain_misses(view)
        if e.previous is not None
        and limits.reply_slack_tokens < e.previous.prompt - (e.common or 0) <= limits.transient_tokens
        and (e.common or 0) >= limits.head_tokens
    ]
    groups = _near(below, _distance, lambda d: max(limits.reply_slack_tokens, d // 20))
    return {id(e) for same in groups if len(same) > 1 for e in same}


def _distance(episode: Episode) -> int:
    """P' - C."""
    return episode.previous.prompt - (episode.common or 0) if episode.previous is not None else 0


def _creeping(view: View) -> set[int]:
    """C creeps forward over three or more misses, each time behind the place before."""
    run: list[Episode] = []
    found: set[int] = set()
    for episode in _plain_misses(view):
        common = episode.common or 0
        if run and not (run[-1].common or 0) < common <= (run[-1].common or 0) * 1.25 + 256:
            run = []
        run.append(episode)
        if len(run) >= 3:
            found.update(id(e) for e in run)
    return found


def instructions_end(view: View) -> int:
    """Where the first user message begins: a cold store that is cut there (no multiple of the alignment); 0 if unknown."""
    if "instructions_end" not in view.memo:
        view.memo["instructions_end"] = _instructions_end(view)
    found: int = view.memo["instructions_end"]
    return found


def _instructions_end(view: View) -> int:
    align = view.config(None, "kv_cache_boundary_align_tokens") or 2048
    cut = [
        int(e.get("tokens"))
        for e in view.of("kv_stored")
        if e.get("reason") == "cold" and e.get("trimmed") and align > 1 and (e.get("tokens") or 0) % align
    ]
    return max(cut, default=0)


def opens_again(episode: Episode, view: View) -> bool:
    """An earlier request without predecessor had a prompt of the same length (within 3 %)."""
    prompt = episode.prompt or 0
    if "openings" not in view.memo:
        view.memo["openings"] = [
            (r.request, r.prompt_tokens)
            for r in view.requests
            if r.prompt_tokens and (r.cached_tokens == 0 or r.disk_hit_tokens)
        ]
    openings: list[tuple[int, int]] = view.memo["openings"]
    end = bisect_left(openings, (episode.request.request, 0))
    return any(abs(p - prompt) <= max(64, prompt * 0.03) for _, p in openings[max(0, end - 200) : end])


def running_beside(view: View, episode: Episode) -> int:
    """Requests of its run that began before its miss and went on behind it: their slots were busy."""
    miss, own = episode.miss, episode.request
    if miss is None or not view.requests:
        return 0
    place = own.request - view.requests[0].request
    near = [r for r in view.requests[max(0, place - _NEAR) : max(0, place)] if r.run == own.run and r.events]
    return sum(min(r.events) < miss.seq < max(r.events) for r in near)
