"""Conversations that take turns in a slot (mechanisms 3.1.5).

A displaced state comes back when a later disk hit has its length (H = L), when the parser follows the
conversation to a later request (whole logs), or when a later prompt extends it, or repeats its last prompt,
after a prompt of another size took the slot in between (excerpts: the numbers alone).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from parser.request import Request
from triage.episodes import Episode
from triage.view import View

#: a prompt that returns is at most this much longer than the state it continues (tokens, share)
_RETURN_TOKENS: Final = 4096
_RETURN_SHARE: Final = 0.35
#: new text of a usual turn, tokens
_NEXT_TURN: Final = 2048
#: the longest reply that is believed between a prompt and the live length it left
_REPLY: Final = 16_384


@dataclass(frozen=True, slots=True)
class Return:
    """`episode` brings back the state that `displaced` pushed out; `how` is "hit", "conversation" or "length"."""

    episode: Episode
    displaced: Episode
    how: str


@dataclass(eq=False)
class Alternation:
    """Misses with the same shared head whose conversations take turns."""

    common: int | None
    members: list[Episode]
    returns: list[Return] = field(default_factory=list)
    conversations: int = 2

    @cached_property
    def side_calls(self) -> bool:
        """One side is small: its prompts are below a third of what they push out, and the big one returns."""
        back = {id(r.episode) for r in self.returns}
        switches = [m for m in self.members if m.live and m.prompt and id(m) not in back] or self.members
        small = [m for m in switches if (m.prompt or 0) < (m.live or 0) / 3]
        return bool(small) and len(small) * 2 >= len(switches)


def displaces(episode: Episode) -> bool:
    """The request pushed a live state out: a miss line, or (before the miss line existed) an evict store."""
    return episode.live is not None and (episode.miss is not None or episode.evict_store is not None)


def alternations(view: View) -> list[Alternation]:
    """The groups in which conversations take turns; a group without any return is left out."""
    if "alternations" not in view.memo:
        view.memo["alternations"] = _alternations(view)
    found: list[Alternation] = view.memo["alternations"]
    return found


def _alternations(view: View) -> list[Alternation]:
    known = [*returns_by_hit(view), *returns_by_conversation(view)]
    of: dict[int, list[int]] = {}  # episode -> the places in `known` that it takes part in
    for place, back in enumerate(known):
        for part in {id(back.episode), id(back.displaced)}:
            of.setdefault(part, []).append(place)
    found = []
    for group in groups(view):
        seen: set[int] = set()
        for place in sorted({p for m in group.members for p in of.get(id(m), ())}):
            back = known[place]
            if id(back.episode) not in seen:
                seen.add(id(back.episode))
                group.returns.append(back)
        if not followed(view):
            group.returns += [r for r in returns_by_length(group.members) if id(r.episode) not in seen]
        if group.returns and (len(group.members) > 1 or _pushed_and_back(group)):
            found.append(group)
    _count_together(found, view)
    return found


def _pushed_and_back(group: Alternation) -> bool:
    """A single miss alternates only where the state that it pushed out itself comes back."""
    return any(r.displaced is group.members[0] for r in group.returns)


def groups(view: View) -> list[Alternation]:
    """Displacing episodes by run and shared head (C within the tolerance; all C < 64 together)."""
    slack, head = view.limits.same_common_tokens, view.limits.head_tokens
    found: dict[tuple[int, str], list[Alternation]] = {}
    for episode in (e for e in view.episodes if displaces(e)):
        common = episode.common
        if common == 0 or (common is not None and common == episode.prompt):
            continue
        kind = "?" if common is None else "head" if common < head else "shared"
        scope = episode.request.run if view.reading.kind == "log" else 0
        here = found.setdefault((scope, kind), [])
        for group in reversed(here[-64:]):
            if kind != "shared" or abs((group.common or 0) - (common or 0)) <= slack:
                group.members.append(episode)
                break
        else:
            here.append(Alternation(common, [episode]))
    return [group for same in found.values() for group in same]


# -- how a state comes back ------------------------------------------------------------------------------


def returns_by_hit(view: View) -> list[Return]:
    """H equal to the length of a state that an earlier request pushed out."""
    slack = view.limits.restored_slack_tokens
    displaced: dict[int, Episode] = {}  # by length in steps of the slack, the newest
    step = 2 * slack + 1
    found = []
    same = _same_conversation(view)
    for episode in view.episodes:
        hit = episode.hit_tokens
        if hit is not None:
            near = (displaced.get(hit // step + shift) for shift in (0, -1, 1))
            match = next((e for e in near if e is not None and abs((e.live or 0) - hit) <= slack), None)
            if match is not None and match.request.run == episode.request.run and not _stays(episode, same):
                found.append(Return(episode, match, "hit"))
        if displaces(episode) and id(episode) not in same:
            displaced[(episode.live or 0) // step] = episode
    return found


def _same_conversation(view: View) -> set[int]:
    """Episodes that go on with the conversation their slot held, as far as the parser follows it."""
    if not followed(view):
        return set()
    return {
        id(e)
        for e in view.episodes
        if (mate := view.mate(e)) is not None
        and mate.conversation is not None
        and mate.conversation == e.request.conversation
    }


def _stays(episode: Episode, same: set[int]) -> bool:
    """The request continues what its slot held (C reaches into the last prompt): no return from elsewhere."""
    before, common = episode.previous, episode.common
    if id(episode) in same:
        return True
    return before is not None and common is not None and common >= 0.9 * before.prompt and common > 64


def followed(view: View) -> bool:
    """The parser follows conversations through this input (a whole log, not a pasted piece)."""
    if "followed" not in view.memo:
        labelled = sum(r.conversation is not None and r.slot_confidence == "certain" for r in view.requests)
        enough = view.reading.kind == "log" and len(view.requests) >= 4
        view.memo["followed"] = enough and labelled * 2 >= len(view.requests)
    return bool(view.memo["followed"])


def returns_by_conversation(view: View) -> list[Return]:
    """A request whose conversation was pushed out of its slot by another one before."""
    if not followed(view):
        return []
    pushed: dict[tuple[int, str], Episode] = {}
    found = []
    for episode in view.episodes:
        own = episode.request.conversation
        mate = view.mate(episode)
        key = (episode.request.run, own or "")
        if own is not None and key in pushed and (mate is None or mate.conversation != own):
            found.append(Return(episode, pushed.pop(key), "conversation"))
        if displaces(episode) and mate is not None and mate.conversation not in (None, own):
            pushed[(episode.request.run, mate.conversation or "")] = episode
    return found


def _extends(prompt: int, live: int) -> bool:
    return live - 16 <= prompt <= live + max(_RETURN_TOKENS, int(live * _RETURN_SHARE))


def _repeats(prompt: int, displaced: Episode) -> bool:
    """The same prompt again that had left the displaced state."""
    return displaced.previous is not None and abs(displaced.previous.prompt - prompt) <= 2


def returns_by_length(members: Sequence[Episode]) -> list[Return]:
    """P extends a state pushed out two or more turns ago, after a prompt of another size took the slot.

    One growing conversation also extends every earlier length; so a return counts only where the turn in
    between was a drop (its P below the L it pushed out, or below the prompt before it), or it is one itself; one
    that drops to just above the state pushed out needs no other to prove it.
    """
    found: list[Return] = []
    big = False
    for k, episode in enumerate(members):
        prompt, live = episode.prompt, episode.live
        if prompt is None or live is None:
            continue
        for earlier in reversed(members[max(0, k - 5) : k]):
            if earlier.live is None or earlier.prompt is None:
                continue
            if not (_extends(prompt, earlier.live) or _repeats(prompt, earlier)):
                continue
            fell, own = _fell(earlier), _fell(episode)
            dropped = not fell and own == 2 and 0 <= prompt - earlier.live <= _NEXT_TURN
            if not dropped and not (fell or own == 1):
                continue
            if fell == 2 and live > 0.9 * prompt:
                continue
            big = big or fell == 2 or dropped
            found.append(Return(episode, earlier, "length"))
            break
    return found if big or len(found) > 1 else []


def _fell(episode: Episode) -> int:
    """2: the prompt is far below the state it pushed out; 1: below the prompt before it; 0: neither."""
    prompt, live = episode.prompt or 0, episode.live or 0
    if prompt < 0.9 * live:
        return 2
    return 1 if episode.previous is not None and prompt < episode.previous.prompt else 0


# -- how many, and what it costs ---------------------------------------------------------------------------


def _count_together(found: list[Alternation], view: View) -> None:
    """Groups of one run share their conversations (a template head and a common system prompt mix)."""
    by_run: dict[int, list[Alternation]] = {}
    for group in found:
        by_run.setdefault(group.members[0].request.run, []).append(group)
    for same in by_run.values():
        members = sorted((m for g in same for m in g.members), key=lambda e: e.request.request)
        returns = [r for g in same for r in g.returns]
        count = _labels(returns, view) if followed(view) else _chains(members, returns)
        for group in same:
            group.conversations = count


def _labels(returns: Sequence[Return], view: View) -> int:
    """Conversations that come back, or are pushed out by one that does."""
    names = {r.episode.request.conversation for r in returns}
    for back in returns:
        mate = view.mate(back.episode)
        names.add(mate.conversation if mate is not None else None)
    return max(2, len(names - {None}))


def _chains(members: Sequence[Episode], returns: Sequence[Return]) -> int:
    """The same from the numbers: each displaced state belongs to the conversation whose prompt it contains."""
    back = {id(r.episode): r.displaced for r in returns}
    resident: list[tuple[int, int]] = []  # (conversation, last prompt)
    name: dict[int, int] = {}  # displacing episode -> conversation that it displaced
    known = 0
    for episode in members:
        live = episode.live or 0
        who = max((r for r in resident if r[1] <= live <= r[1] + _REPLY), key=lambda r: r[1], default=None)
        if who is None:
            known += 1
            who = (known, live)
        else:
            resident.remove(who)
        name[id(episode)] = who[0]
        displaced = back.get(id(episode))
        if displaced is not None and id(displaced) in name:
            incoming = name[id(displaced)]
        else:
            known += 1
            incoming = known
        resident.append((incoming, episode.prompt or 0))
    returned = {name[id(r.displaced)] for r in returns if id(r.displaced) in name}
    pushed = {name[id(r.episode)] for r in returns if id(r.episode) in name}
    return max(2, len(returned | pushed))


def goes_unmissed(view: View, episode: Episode) -> bool:
    """The log goes on far enough to see that the conversation pushed out does not come back."""
    mate = view.mate(episode) if followed(view) else None
    if mate is None or mate.conversation is None:
        return False
    if view.last_of_conversation.get((episode.request.run, mate.conversation), 0) > episode.request.request:
        return False
    later, run = view.after(episode.request)[:1], view.run_of(episode)
    return bool(run is not None and run.stopped) or bool(later and later[0].run == episode.request.run)


def owed(view: View, episode: Episode) -> int | None:
    """What a switch between conversations costs in tokens: the re-prefill of the one that returns, above its new text.

    A request that only pushes another conversation out costs that one its live state: counted where the
    owner comes back, or as L (an upper bound) where the input ends before.
    """
    back, gone = _came_back(view)
    mine = back.get(id(episode))
    if mine is not None:
        n, prompt = episode.reprefill, episode.prompt or 0
        return None if n is None else max(0, n - max(0, prompt - _left(view, mine)))
    if id(episode) in gone or goes_unmissed(view, episode):
        return 0
    return episode.live


def split(view: View, episode: Episode) -> tuple[int | None, int | None]:
    """A re-prefill as (lost to the cache, changed or new text), in tokens.

    Lost is C - S (or E - S, or H - S); for a conversation that another one pushed out, what it held when it
    last left a slot. The rest of n is text that no cache could have known; P - C where n is not in the input.
    """
    mine = _came_back(view)[0].get(id(episode))
    n = episode.reprefill
    if mine is not None:
        lost = owed(view, episode)
        return lost, None if n is None or lost is None else n - lost
    lost = episode.cache_loss(view.limits.incoming_slack_tokens)
    if episode.wasted_hit:
        lost = max(lost or 0, episode.wasted_hit)
    if n is None or lost is None:
        return lost, episode.changed
    return min(lost, n), max(0, n - lost)


def _came_back(view: View) -> tuple[dict[int, Return], set[int]]:
    """id of an episode -> its return; ids of the episodes whose victim came back."""
    if "came_back" not in view.memo:
        returns = [r for group in alternations(view) for r in group.returns]
        view.memo["came_back"] = ({id(r.episode): r for r in returns}, {id(r.displaced) for r in returns})
    found: tuple[dict[int, Return], set[int]] = view.memo["came_back"]
    return found


def _left(view: View, back: Return) -> int:
    """Live length that the returning conversation had when it last left a slot."""
    request = back.episode.request
    if back.how != "length" and request.conversation is not None and followed(view):
        before = _last_of(view, request)
        if before is not None and before.live_after is not None:
            return before.live_after
    return back.displaced.live or 0


def _last_of(view: View, request: Request) -> Request | None:
    """The request before it of the same conversation."""
    if "before_in_conversation" not in view.memo:
        last: dict[tuple[int, str | None], Request] = {}
        before: dict[int, Request] = {}
        for each in (*view.earlier, *view.requests):
            key = (each.run, each.conversation)
            if key in last:
                before[each.request] = last[key]
            last[key] = each
        view.memo["before_in_conversation"] = before
    found: Request | None = view.memo["before_in_conversation"].get(request.request)
    return found


def switch_seconds(view: View, episodes: Sequence[Episode]) -> float:
    """Seconds that storing and loading took at these switches: from the miss to its `prompt start`, or save and load."""
    spent = 0.0
    for episode in episodes:
        work = sum(e.get("save_ms") or 0.0 for e in episode.of("kv_stored") if e.get("reason") == "evict")
        work += sum(e.get("load_ms") or 0.0 for e in episode.of("kv_hit"))
        began, decided = episode.request.start_s, episode.request.decided_s
        waited = (
            began - decided if episode.miss is not None and began is not None and decided is not None else 0.0
        )
        spent += max(work / 1000, waited if waited < 600 else 0.0)
    return round(spent, 3)
