"""Conversations that take turns in a slot (mechanisms 3.1.5): seen in the numbers alone.

A displaced state of length L comes back when a later disk hit has that length (H = L), or when a later
prompt extends it (P just above L) after prompts of another size took the slot in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from triage.episodes import Episode
from triage.view import View

#: a prompt that returns is at most this much longer than the state it continues (tokens, share)
_RETURN_TOKENS: Final = 4096
_RETURN_SHARE: Final = 0.35
#: how many displaced states are remembered
_MEMORY: Final = 256


@dataclass(frozen=True, slots=True)
class Return:
    """`episode` brings back the state that `displaced` pushed out; `how` is "hit" or "length"."""

    episode: Episode
    displaced: Episode
    how: str


@dataclass(slots=True)
class Alternation:
    """Misses with the same shared head whose conversations take turns."""

    common: int | None
    members: list[Episode]
    returns: list[Return] = field(default_factory=list)
    conversations: int = 2

    @property
    def side_calls(self) -> bool:
        """One side is small: its prompts are below a third of what they push out, and the big one returns."""
        switches = [
            m for m in self.members if m.live and m.prompt and not any(r.episode is m for r in self.returns)
        ]
        small = [m for m in switches if (m.prompt or 0) < (m.live or 0) / 3]
        return bool(small) and len(small) * 2 >= len(switches)


def displaces(episode: Episode) -> bool:
    """The request pushed a live state out: a miss line, or (before the miss line existed) an evict store."""
    return episode.live is not None and (episode.miss is not None or episode.evict_store is not None)


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
        for group in here:
            if kind != "shared" or abs((group.common or 0) - (common or 0)) <= slack:
                group.members.append(episode)
                break
        else:
            here.append(Alternation(common, [episode]))
    return [group for same in found.values() for group in same]


def returns_by_hit(view: View) -> list[Return]:
    """H equal to the length of a state that an earlier request pushed out."""
    slack = view.limits.restored_slack_tokens
    displaced: list[tuple[int, Episode]] = []
    found = []
    for episode in view.episodes:
        hit = episode.hit_tokens
        if hit is not None:
            match = next((d for d in reversed(displaced) if abs(d[0] - hit) <= slack), None)
            if match is not None and match[1].request.run == episode.request.run:
                found.append(Return(episode, match[1], "hit"))
        if displaces(episode):
            displaced = [*displaced[-_MEMORY:], (episode.live or 0, episode)]
    return found


def _extends(prompt: int, live: int) -> bool:
    return live - 16 <= prompt <= live + max(_RETURN_TOKENS, int(live * _RETURN_SHARE))


def returns_by_length(members: Sequence[Episode]) -> list[Return]:
    """P extends a state pushed out two or more turns ago, after a prompt of another size took the slot.

    One growing conversation also extends every earlier length; so a return counts only where the turn in
    between was a drop (its P below the L it pushed out, or below the prompt before it).
    """
    found: list[Return] = []
    big = False
    for k, episode in enumerate(members):
        prompt, live = episode.prompt, episode.live
        if prompt is None or live is None:
            continue
        for j in range(k - 1, max(-1, k - 6), -1):
            earlier = members[j]
            if earlier.live is None or earlier.prompt is None or not _extends(prompt, earlier.live):
                continue
            fell = _fell(earlier)
            if not fell or (fell == 2 and live > 0.9 * prompt):
                continue
            big = big or fell == 2
            found.append(Return(episode, earlier, "length"))
            break
    return found if big or len(found) > 1 else []


def _fell(episode: Episode) -> int:
    """2: the prompt is far below the state it pushed out; 1: below the prompt before it; 0: neither."""
    prompt, live = episode.prompt or 0, episode.live or 0
    if prompt < 0.9 * live:
        return 2
    before = episode.previous.prompt if episode.previous is not None else live
    return 1 if prompt < before else 0


def _conversations(members: Sequence[Episode], returns: Sequence[Return]) -> int:
    """How many conversations the returns tie together: each return continues one that was counted."""
    back = {id(r.episode): r.displaced for r in returns}
    resident: list[tuple[int, int]] = []  # (conversation, last known length)
    name: dict[int, int] = {}  # displacing episode -> conversation that it displaced
    known = 0
    for episode in members:
        live = episode.live or 0
        held = [r for r in resident if r[1] <= live <= r[1] + 16_384]
        who = max(held, key=lambda r: r[1], default=None)
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
    pushed_by_return = {name[id(r.episode)] for r in returns if id(r.episode) in name}
    return max(2, len(returned | pushed_by_return))


def alternations(view: View) -> list[Alternation]:
    """The groups in which conversations take turns; a group without any return is left out."""
    if "alternations" in view.memo:
        return list(view.memo["alternations"])
    by_hit = returns_by_hit(view)
    found = []
    for group in groups(view):
        inside = {id(m) for m in group.members}
        group.returns = [r for r in by_hit if id(r.episode) in inside or id(r.displaced) in inside]
        seen = {id(r.episode) for r in group.returns}
        group.returns += [r for r in returns_by_length(group.members) if id(r.episode) not in seen]
        if group.returns and (len(group.members) > 1 or _pushed_and_back(group)):
            found.append(group)
    _count_together(found)
    view.memo["alternations"] = found
    return list(found)


def _pushed_and_back(group: Alternation) -> bool:
    """A single miss alternates only where the state that it pushed out itself comes back."""
    return any(r.displaced is group.members[0] for r in group.returns)


def _count_together(found: list[Alternation]) -> None:
    """Groups of one run share their conversations (a template head and a common system prompt mix)."""
    by_run: dict[int, list[Alternation]] = {}
    for group in found:
        by_run.setdefault(group.members[0].request.run, []).append(group)
    for same in by_run.values():
        members = sorted((m for g in same for m in g.members), key=lambda e: e.request.request)
        returns = [r for g in same for r in g.returns]
        count = _conversations(members, returns)
        for group in same:
            group.conversations = count


def owed(view: View, episode: Episode) -> int | None:
    """What a switch between conversations costs in tokens: the re-prefill of the one that returns, above its new text.

    A request that only pushes another conversation out costs that one its live state: counted where the
    owner comes back, or as L (an upper bound) where the input ends before.
    """
    back = {id(r.episode): r for g in alternations(view) for r in g.returns}
    gone = {id(r.displaced) for g in alternations(view) for r in g.returns}
    mine = back.get(id(episode))
    if mine is not None:
        n, prompt = episode.reprefill, episode.prompt or 0
        return None if n is None else max(0, n - max(0, prompt - (mine.displaced.live or 0)))
    if id(episode) in gone:
        return 0
    return episode.live
