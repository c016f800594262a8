"""The fallback of one miss: why nothing else caught the fall (mechanisms 3.2). Judged apart from the trigger."""

from __future__ import annotations

from dataclasses import dataclass

from parser.event import Event
from triage.episodes import Episode
from triage.trigger import triggers
from triage.turns import alternations, displaces
from triage.view import View


@dataclass(frozen=True, slots=True)
class Fallback:
    """The mechanism, its share of the loss in tokens, why, and how sure."""

    mechanism: str
    share: int | None
    why: str
    grade: str = "log"
    events: tuple[Event, ...] = ()


def fallbacks(view: View) -> dict[int, Fallback]:
    """`id(episode)` -> fallback, for every episode whose fall was not caught (once per view)."""
    if "fallbacks" not in view.memo:
        anchors = stale_anchors(view)
        unmatched = never_matched(view)
        named = ((id(e), _name(e, view, anchors, unmatched)) for e in view.episodes)
        view.memo["fallbacks"] = {key: found for key, found in named if found is not None}
    found: dict[int, Fallback] = view.memo["fallbacks"]
    return found


def _name(
    episode: Episode, view: View, anchors: dict[int, int], unmatched: dict[int, Event]
) -> Fallback | None:
    for found in (
        _not_used(episode),
        _incoming(episode, view),
        _stale(episode, anchors),
        _aligned(episode, view),
        _consumed(episode, view),
        _shallow(episode, view),
        _never(episode, unmatched),
    ):
        if found is not None:
            return found
    return None


def _not_used(episode: Episode) -> Fallback | None:
    """3.2.1: H > 0 but S = 0, or far below H."""
    hit, start = episode.hit_tokens, episode.start
    if not hit or start is None or episode.hit is None:
        return None
    if start == 0 or start < hit - max(64, hit // 20):
        return Fallback(
            "hit-not-used", hit - start, f"{hit} tokens were loaded, the prefill starts at {start}"
        )
    return None


def _incoming(episode: Episode, view: View) -> Fallback | None:
    """3.2.2: the file that the request was about to load was deleted to make room."""
    evicted = episode.needed_eviction(view.limits.incoming_slack_tokens)
    if evicted is None or episode.start is None:
        return None
    needed = int(evicted.get("tokens"))
    if episode.start >= needed or (episode.hit_tokens or 0) >= needed:
        return None
    return Fallback(
        "incoming-prefix-evicted",
        needed - episode.start,
        f"a file of {needed} tokens was deleted between the miss and the prefill",
        events=(evicted,),
    )


def _stale(episode: Episode, anchors: dict[int, int]) -> Fallback | None:
    if id(episode) not in anchors:
        return None
    return Fallback(
        "stale-cold-anchor",
        anchors[id(episode)],
        "fresh sessions all start from the same short file",
        "turns",
    )


def _aligned(episode: Episode, view: View) -> Fallback | None:
    """3.2.4: S = H = length of a cold store that was cut to the alignment."""
    depth = episode.depth
    store = aligned_stores(view).get(depth or -1)
    if store is None or depth is None or episode.hit is None or store.seq > episode.hit.seq:
        return None
    lost = (episode.request.prompt_tokens or episode.prompt or 0) - depth
    if abs(lost - int(store.get("trimmed"))) > view.limits.trim_slack_tokens:
        return None
    return Fallback("alignment-loss", lost, "the cold store was cut to the alignment", events=(store,))


def aligned_stores(view: View) -> dict[int, Event]:
    """Cold stores with `trimmed` > 0 whose length is a multiple of the alignment, by length."""
    if "aligned" not in view.memo:
        align = view.config(None, "kv_cache_boundary_align_tokens") or 2048
        view.memo["aligned"] = {
            int(e.get("tokens")): e
            for e in view.of("kv_stored")
            if e.get("reason") == "cold"
            and e.get("tokens")
            and (e.get("trimmed") or 0) >= view.limits.trim_tokens
            and (align <= 1 or e.get("tokens") % align == 0)
        }
    stores: dict[int, Event] = view.memo["aligned"]
    return stores


def _consumed(episode: Episode, view: View) -> Fallback | None:
    """3.2.6, and the look-alike of 3.2.5: a deeper file of this text was there until a hit deleted it."""
    common, depth, limits = episode.common, episode.depth or 0, view.limits
    if not common or not episode.events:
        return None
    earlier = [
        e for e in view.consumed
        if e.seq < episode.events[0].seq and depth < (e.get("tokens") or 0) <= common
    ]  # fmt: skip
    deepest = max((int(e.get("tokens")) for e in earlier), default=0)
    if deepest - depth < max(limits.shallow_tokens, common * limits.shallow_share):
        return None
    why = f"the file of {deepest} tokens that reached farther was deleted by an earlier hit"
    return Fallback("consumed-on-hit", deepest - depth, why, events=tuple(earlier[-1:]))


def _shallow(episode: Episode, view: View) -> Fallback | None:
    """3.2.5: C - H >= max(1024, C/20). Below that the fallback is good and must not be blamed."""
    common, depth, limits = episode.common, episode.depth, view.limits
    if not common or not depth or depth >= common:
        return None
    if common - depth < max(limits.shallow_tokens, common * limits.shallow_share):
        return None
    if episode.start is not None and episode.hit_tokens is not None and episode.start != episode.hit_tokens:
        return None
    return Fallback(
        "shallow-disk-checkpoint", common - depth, f"the deepest file ends {common - depth} tokens short of C"
    )


def stale_anchors(view: View) -> dict[int, int]:
    """3.2.3: the same H on two or more fresh sessions, no cold store in between. id -> C - H (or n)."""
    limits = view.limits
    by_depth: dict[int, list[Episode]] = {}
    written = {e.get("tokens"): e.get("reason") for e in view.of("kv_stored")}
    for episode in view.episodes:
        depth = episode.depth
        if episode.hit is None and episode.miss is None:
            continue  # a span alone does not say that the disk answered
        if not depth or not episode.prompt or written.get(depth, "cold") != "cold":
            continue
        if _extends(episode) or _goes_on(view, episode):
            continue
        known = episode.common if episode.common is not None else episode.prompt
        if known - depth >= max(limits.shallow_tokens, known * limits.shallow_share):
            by_depth.setdefault(depth, []).append(episode)
    found: dict[int, int] = {}
    for depth, same in by_depth.items():
        fresh = [e for e in same if e.common is None or e.common < (e.prompt or 0)]
        longest, shortest = max(e.prompt or 0 for e in same), min(e.prompt or 1 for e in same)
        alike = longest <= 1.05 * shortest and not _outgrown(view, depth, longest)
        if len(same) > 1 and fresh and alike and not _renewed(view, same):
            found.update({id(e): (e.common or e.prompt or 0) - depth for e in same})
    return found


def _outgrown(view: View, depth: int, prompt: int) -> bool:
    """The store of that file is in the log and its prompt was far shorter: a conversation that grew, no fresh session."""
    stores = [e for e in view.of("kv_stored") if e.get("tokens") == depth and e.get("trimmed") is not None]
    return any(prompt > 1.5 * (depth + e.get("trimmed")) for e in stores)


def _extends(episode: Episode) -> bool:
    """The prompt goes on where the previous one in the slot ended: one conversation, no fresh session."""
    before = episode.previous
    if before is None or episode.prompt is None:
        return False
    if episode.common is None:
        return episode.prompt >= before.prompt
    return episode.prompt > before.prompt and episode.common >= before.prompt - 8


def _goes_on(view: View, episode: Episode) -> bool:
    """A turn of one growing conversation whose tail comes and goes."""
    trigger = triggers(view).get(id(episode))
    grown = episode.live is not None and (episode.prompt or 0) >= episode.live
    return trigger is not None and trigger.mechanism == "client-transient-tail" and grown


def _renewed(view: View, same: list[Episode]) -> bool:
    """A cold store between the sessions wrote a new anchor."""
    first = min(e.events[0].seq for e in same if e.events)
    last = max(e.events[-1].seq for e in same if e.events)
    return any(first < e.seq < last and e.get("reason") == "cold" for e in view.of("kv_stored"))


def _never(episode: Episode, unmatched: dict[int, Event]) -> Fallback | None:
    store = unmatched.get(id(episode))
    if store is None:
        return None
    tokens = int(store.get("tokens"))
    return Fallback(
        "key-never-matches", tokens, f"a file of {tokens} tokens of this conversation exists and is not found",
        "turns", (store,),
    )  # fmt: skip


def never_matched(view: View) -> dict[int, Event]:
    """3.2.6: cold starts although this conversation was stored. id(episode) -> the store never found."""
    found: dict[int, Event] = {}
    for group in alternations(view):
        for back in group.returns:
            store = back.displaced.evict_store
            unread = back.how != "hit" and store is not None and _cold(back.episode)
            if unread and store is not None and not _gone(view, store, back.episode):
                found[id(back.episode)] = store
    found.update(_after_restart(view, found))
    return found


def _cold(episode: Episode) -> bool:
    explained = episode.of("kv_skipped") or episode.of("kv_failed") or episode.of("kv_hit")
    return episode.start == 0 and not explained


def _gone(view: View, store: Event, episode: Episode) -> bool:
    """The stored file was deleted, or consumed by a hit, before the episode asked for it."""
    tokens, begun = store.get("tokens"), episode.request.prompt_line or float("inf")
    lost = view.of("kv_evicted") + view.of("kv_discarded") + view.consumed
    return any(e.seq > store.seq and e.line < begun and e.get("tokens") in (tokens, None) for e in lost)


def _after_restart(view: View, found: dict[int, Event]) -> dict[int, Event]:
    """The typical form: stored at shutdown with key=token-text, and the next process starts it cold."""
    more: dict[int, Event] = {}
    for store in view.of("kv_stored"):
        if store.get("reason") != "shutdown" or store.get("key") not in ("token-text", None):
            continue
        run = view.run_at(store)
        for episode in view.episodes:
            if (
                episode.request.run == run + 1
                and id(episode) not in found
                and _same_start(view, episode, store)
            ):
                more.setdefault(id(episode), store)
    return more


def _same_start(view: View, episode: Episode, store: Event) -> bool:
    """A cold prompt just above the stored length, of a conversation with tools or reasoning."""
    tokens, prompt = int(store.get("tokens")), episode.prompt or 0
    if (
        not tokens <= prompt <= tokens + max(2048, tokens // 20)
        or not _cold(episode)
        or _gone(view, store, episode)
    ):
        return False
    runs = view.reading.runs
    before, after = (
        runs[episode.request.run - 1].config.get("ctx"),
        runs[episode.request.run].config.get("ctx"),
    )
    if before is not None and after is not None and after < before:
        return False  # R4.10: files of a larger context are not found
    return bool({"TOOLS", "THINKING"} & set(episode.flags)) or "thinking" in str(store.get("key"))


def caught(view: View, episode: Episode) -> bool:
    """The disk caught the fall: what was reused is within max(1024, 5 %) of what was lost."""
    trigger, depth = triggers(view).get(id(episode)), episode.depth
    if trigger is None or not displaces(episode) or not depth:
        return False
    lost = episode.common or episode.live or 0
    return lost - depth <= max(view.limits.shallow_tokens, lost * view.limits.shallow_share)
