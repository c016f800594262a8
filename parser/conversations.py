"""Which requests belong to one conversation, and which earlier request each one extends.

Evidence, strongest first: the trace's texts; a hit in memory (the prompt extends what its slot held); a disk
hit of a length that one live state left behind, or of a file known from an earlier hit (same name, same
text); a miss whose common prefix ends where the last prompt of the slot ended. What is left is a guess by
lengths, and says so. A request is named a little late, because what follows tells two conversations that
share a head from one that was edited: the displaced one comes back, or the common length recurs.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from parser.losses import set_losses
from parser.request import Request

#: |C - P'| up to this: the prompt of the request before was sent again, its reply was not (mechanisms 3.1)
_SAME_PROMPT: Final = 16
#: a prompt that grew by more than this over the conversation's last length is not taken for its next turn
_MOST_NEW: Final = 65_536
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#: requests looked at ahead of the one that is named
_AHEAD: Final = 64
#: conversations and checkpoints remembered, so that an endless log needs bounded memory
_REMEMBERED: Final = 4096
_TALKS: Final = 96
#: how often, in requests, old entries are dropped
_SWEEP: Final = 256
_BY_LENGTH: Final = "guess by length: it outgrows that conversation's last turn by least"


@dataclass(slots=True)
class _Talk:
    label: str
    last: int  # request number of its last turn
    first: int  # P of its first turn: no other conversation shares more with it
    prompt: int  # P of its last turn
    length: int  # live length after it (P where unknown)
    most: int  # what its next prompt is believed not to exceed
    speaks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Link:
    """A request, the one before it in its slot, and the one whose state it surely extends, and why."""

    row: Request
    before: Request | None
    parent: int | None
    why: str


class Conversations:
    """Labels requests; `add` in order of `prompt start`, with the request before it in its slot."""

    def __init__(self) -> None:
        self._ahead: deque[_Link] = deque()
        self._talks: dict[str, _Talk] = {}
        self._of: dict[int, str] = {}  # request -> label
        self._left: dict[int, int] = {}  # length of a whole stored live state -> the request that left it
        self._files: dict[str, int] = {}  # checkpoint file -> the request whose state it holds
        self._resumed: dict[int, int] = {}  # request -> the one that surely extends it
        self._commons: Counter[int] = Counter()  # where misses part, away from the end of a prompt
        self._resident: dict[int, int] = {}  # slot -> the request last in it
        self._count = 0
        self._run = 0

    def add(self, row: Request, before: Request | None, extends: int | None) -> list[Request]:
        """Take a request; `extends` is the one whose whole prompt the trace shows at its beginning.

        Returns the requests that are named by now, in order.
        """
        parent, why = self._sure_parent(row, before, extends)
        if parent is not None:
            self._resumed.setdefault(parent, row.request)
        common = _common(row)
        stranger = before is None or parent != before.request
        if common is not None and stranger and not _near_end(row, before, common):
            self._commons[common] += 1
        self._note_checkpoint(row, before, parent)
        self._ahead.append(_Link(row, before, parent, why))
        return [self._name(self._ahead.popleft())] if len(self._ahead) > _AHEAD else []

    def flush(self) -> list[Request]:
        """Name all that waits (the input ends)."""
        return [self._name(self._ahead.popleft()) for _ in range(len(self._ahead))]

    def waiting(self) -> list[Request]:
        """The requests that are not named yet, in order."""
        return [link.row for link in self._ahead]

    def shut_down(self, persisted: dict[int, int], last_in_slot: dict[int, Request]) -> None:
        """A process ended: what its slots held went to the disk (SD2), no slot holds anything now."""
        for slot, tokens in persisted.items():
            if slot in last_in_slot:
                self._left[tokens] = last_in_slot[slot].request

    # -- what is sure when a request comes ---------------------------------------------------------------

    def _sure_parent(
        self, row: Request, before: Request | None, extends: int | None
    ) -> tuple[int | None, str]:
        if extends is not None:
            return extends, "certain: the trace shows that prompt as the beginning of this one"
        if row.cached_tokens and row.source not in ("cold", "disk-text", "memory-rewind", None):
            return (before.request, "certain: it extends what its slot held") if before else (None, "")
        if row.disk_hit_tokens is not None:
            known = self._files.get(row.hit_file or "", self._left.get(row.disk_hit_tokens))
            if known is not None:
                return known, "inferred: it loads what that request left in a slot"
        return None, ""

    def _note_checkpoint(self, row: Request, before: Request | None, parent: int | None) -> None:
        if row.hit_file and parent is not None and row.source == "disk-text":
            self._files[row.hit_file] = parent
        if row.evict_stored and before is not None and row.evicted_live_tokens is not None:
            self._left[row.evicted_live_tokens] = before.request
        if not row.request % _SWEEP:
            for table in (self._left, self._files, self._resumed, self._of):
                _bound(table)

    # -- naming --------------------------------------------------------------------------------------------

    def _name(self, link: _Link) -> Request:
        row = link.row
        if row.run != self._run:
            self._run = row.run
            self._resident.clear()
        talk, continues, why = self._find(link)
        kept = talk.length if talk is not None and why == _BY_LENGTH else 0
        if talk is None:
            talk, why = self._new(row), "nothing before it that it could extend"
        row.conversation, row.continues, row.why["conversation"] = talk.label, continues, why
        self._of[row.request] = talk.label
        self._talks[talk.label] = self._talks.pop(talk.label)  # the latest last
        talk.last, talk.prompt = row.request, _prompt(row) or talk.prompt
        talk.length = row.live_after or talk.prompt
        talk.most = talk.length + min(_MOST_NEW, max(4096, talk.length))
        set_losses(row, kept)
        if row.slot is not None:
            self._resident[row.slot] = row.request
        return row

    def _find(self, link: _Link) -> tuple[_Talk | None, int | None, str]:
        talk = self._talk_of(link.parent)
        if talk is not None and link.why.startswith("certain"):
            return talk, link.parent, link.why
        again = self._same_prompt(link)
        if talk is not None and (again is None or again[0] is not talk):
            return talk, link.parent, link.why
        return again or self._edited(link) or self._by_length(link) or (None, None, "")

    def _talk_of(self, request: int | None) -> _Talk | None:
        return self._talks.get(self._of.get(request, "")) if request is not None else None

    def _same_prompt(self, link: _Link) -> tuple[_Talk, int | None, str] | None:
        """The slot's own conversation, resent without its last reply, or the same prompt again."""
        row, before, common = link.row, link.before, _common(link.row)
        if before is None or common is None or (talk := self._talk_of(before.request)) is None:
            return None
        if not _near_end(row, before, common) or (self._is_shared(common, talk) and self._others(link)):
            return None
        return talk, before.request, "inferred: it parts from its slot's state where the last prompt ended"

    def _edited(self, link: _Link) -> tuple[_Talk, int | None, str] | None:
        """The slot's own conversation with a change further up, unless someone else comes back to it."""
        row, before, common = link.row, link.before, _common(link.row)
        if before is None or common is None or (talk := self._talk_of(before.request)) is None:
            return None
        prompt, live = _prompt(row) or 0, row.live_before or 0
        begins = (
            common <= talk.first and prompt < 0.75 * live
        )  # its head alone, and a short prompt: a new one
        if self._others(link) or self._is_shared(common, talk) or begins or 2 * common < min(prompt, live):
            return None
        return talk, None, "inferred: most of its slot's state comes again, with a change in it"

    def _others(self, link: _Link) -> bool:
        """Is the state before it in the slot surely extended by another request?"""
        before = link.before
        return before is not None and self._resumed.get(before.request, link.row.request) != link.row.request

    def _is_shared(self, common: int, talk: _Talk) -> bool:
        """A head that conversations share: misses part there twice or more, away from the ends of prompts.

        It lies within the first prompt of each of them; what parts later is one conversation, changed.
        """
        return common <= talk.first and sum(self._commons[common + off] for off in (-2, -1, 0, 1, 2)) >= 2

    def _by_length(self, link: _Link) -> tuple[_Talk, int | None, str] | None:
        """A conversation in no slot whose last length this prompt outgrows by least.

        One that sits idle in another slot would have been served there, one that is busy has no reply yet.
        """
        row, prompt = link.row, _prompt(link.row)
        resident = set(self._resident.values())
        if link.before is not None and _common(row) is None and row.evicted_live_tokens:
            resident.discard(link.before.request)  # no miss line says that it parts from its slot's state
        if prompt is None:
            return None
        floor = _common(row) or row.cached_tokens or 0
        near = [
            talk
            for talk in self._talks.values()
            if floor <= talk.length < prompt <= talk.most or talk.prompt == prompt
        ]
        speaks = _speaks(row)
        fits = [
            (0 if talk.prompt == prompt else prompt - talk.length, talk)
            for talk in near
            if talk.last not in resident
            and talk.speaks == speaks
            and self._resumed.get(talk.last, row.request) == row.request
        ]
        if not fits:
            return None
        talk = min(fits, key=lambda fit: fit[0])[1]
        return talk, talk.last, _BY_LENGTH

    def _new(self, row: Request) -> _Talk:
        talk = _Talk(_label(self._count), row.request, _prompt(row) or 0, 0, 0, 0, _speaks(row))
        self._count += 1
        self._talks[talk.label] = talk
        _bound(self._talks, _TALKS)
        return talk


def _common(row: Request) -> int | None:
    """Where prompt and live state part: the miss line says, and a rewind goes back to it."""
    return row.cached_tokens if row.source == "memory-rewind" and row.common is None else row.common


def _near_end(row: Request, before: Request | None, common: int) -> bool:
    """Does the common prefix reach the end of the last prompt in the slot, or of this whole prompt?"""
    prompt = _prompt(row)
    last = before.prompt_tokens if before is not None else None
    ends = [end for end in (prompt, last) if end is not None]
    return bool(ends) and common >= 64 and common >= min(ends) - _SAME_PROMPT


def _prompt(row: Request) -> int | None:
    return row.canonical_prompt_tokens or row.prompt_tokens


def _bound(table: dict[Any, Any], most: int = _REMEMBERED) -> None:
    for key in list(islice(table, max(0, len(table) - most))):
        del table[key]


def _speaks(row: Request) -> tuple[str, ...]:
    """What a conversation does not change: api, Responses protocol, tools."""
    return (row.api or "", *(flag for flag in row.flags if flag in ("RESPPROTO", "TOOLS")))


def _label(number: int) -> str:
    """A … Z, AA, AB, …"""
    label = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        label = _LETTERS[digit] + label
    return label
