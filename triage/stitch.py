"""Stitch: pieces of one request that the parser's rows keep apart, joined again where their numbers meet.

A report often shows each line in a fence of its own; and a disk hit that no prompt used fits no span.
"""

from __future__ import annotations

from triage.episodes import Episode
from triage.view import View


def stitched(episodes: list[Episode], view: View) -> list[Episode]:
    """The episodes, with pieces given back to the miss that they follow; in order."""
    found = _adopt_hits(episodes, view)
    return _join_fences(found, view) if view.reading.kind == "report" else found


def _take(episode: Episode, piece: Episode, view: View) -> None:
    episode.take(piece.events, piece.request if piece.spanned else None)
    view.owner.update({e.seq: episode for e in piece.events})


def _adopt_hits(episodes: list[Episode], view: View) -> list[Episode]:
    """Between a miss and its `prompt start` no other request can load a file (log-formats 6)."""
    alone = [e for e in episodes if e.hit is not None and not e.spanned and e.miss is None]
    taken = set()
    for lonely in alone:
        hit = lonely.hit
        assert hit is not None
        for episode in episodes:
            start = next((e.seq for e in episode.of("prompt_start")), None)
            around = episode.miss is not None and start is not None and episode.miss.seq < hit.seq < start
            if around and episode.hit is None and (episode.start or 0) < (lonely.hit_tokens or 0):
                _take(episode, lonely, view)
                taken.add(id(lonely))
                break
    return [e for e in episodes if id(e) not in taken]


def _join_fences(episodes: list[Episode], view: View) -> list[Episode]:
    kept: list[Episode] = []
    open_miss: Episode | None = None
    for episode in episodes:
        if episode.miss is not None:
            open_miss = None if episode.spanned else episode
        elif open_miss is not None and _belongs(open_miss, episode):
            _take(open_miss, episode, view)
            if episode.spanned:
                open_miss = None
            continue
        kept.append(episode)
    return kept


def _belongs(miss: Episode, piece: Episode) -> bool:
    """The evict store has the live length of the miss; the span ends at its prompt."""
    if piece.spanned:
        return piece.request.prompt_tokens == miss.prompt
    if any(not e.kind.startswith("kv_") for e in piece.events):
        return False
    return piece.evict_store is not None and piece.evict_store.get("tokens") == miss.live
