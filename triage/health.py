"""Health: which requests were served as they should be, and whether the input speaks about reuse at all (4.9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from parser.event import Event
from triage.episodes import Episode
from triage.fallback import fallbacks
from triage.trigger import triggers
from triage.view import View

#: kinds of which one line speaks about reuse
SPEAKING: Final = (
    "live_miss", "live_rewind", "live_continuation", "multimodal_hit", "kv_hit", "prompt_start", "prompt_done",
    "slot_evicting",
)  # fmt: skip


def speaks_of_reuse(view: View) -> bool:
    """Any line that tells something about reuse (a chunk or a finish line does where its span starts above 0)."""
    if any(view.reading.counts.get(kind) for kind in SPEAKING):
        return True
    return any(r.cached_tokens for r in view.requests)


def judged_right(view: View) -> list[Episode]:
    """Episodes that reused what there was: no trigger, no fallback, nothing lost below L'."""
    if "right" not in view.memo:
        named, fell = triggers(view), fallbacks(view)
        view.memo["right"] = [
            e
            for e in view.episodes
            if e.spanned and id(e) not in named and id(e) not in fell and e.request.error is None and _full(e)
        ]
    found: list[Episode] = view.memo["right"]
    return found


def _full(episode: Episode) -> bool:
    """S = L' (or a rewind to the prompt's end, a used hit, a first prompt)."""
    before, start = episode.previous, episode.start or 0
    if episode.of("live_rewind") or episode.hit is not None or before is None or before.generated is None:
        return True
    return start >= before.prompt + before.generated - 1 or before.how != "slot"


def cold_again(view: View, episodes: Sequence[Episode]) -> list[Episode]:
    """Prompts from zero behind one of nearly their length, in a paste that leaves out what stands before a prefill."""
    found, before = [], dict[int, int]()
    if view.of("live_miss") or view.of("prompt_start"):
        return []
    for episode in episodes:
        last, prompt, run = before.get(episode.request.run), episode.prompt or 0, episode.request.run
        if last is not None and not episode.start and last <= prompt <= (1 + view.limits.alike_share) * last:
            found.append(episode)
        before[run] = prompt
    return found


def good_signs(view: View) -> list[tuple[str, Event]]:
    """(what, line) of each continuation, rewind, used hit and image hit."""
    found: list[tuple[str, Event]] = [
        ("live continuation", e) for e in view.of("live_continuation", "continuation")
    ]
    found += [("images reused live", e) for e in view.of("multimodal_hit")]
    found += [("rewound to the prompt's end", e) for e in view.of("live_rewind", "rewound", "point_hit")]
    fell = fallbacks(view)
    for episode in view.episodes:
        if (
            episode.hit is not None
            and id(episode) not in fell
            and (episode.start or 0) >= (episode.hit_tokens or 1)
        ):
            found.append(("disk hit used", episode.hit))
        elif (
            episode.hit is not None
            and id(episode) not in fell
            and episode.start is None
            and episode.miss is None
        ):
            found.append(("disk hit read", episode.hit))
        elif episode.miss is None and episode.start and episode.hit is None and episode.events:
            found.append(("live state continued", episode.events[0]))
    return found
