"""What later prompts hold of the replies of thinking turns: they leave the reasoning out (R3.30, R3.32), and no line
prints how many tokens are left. Two things tell it:

1. A prompt that goes on from a file found by its visible text: the tokens of the prompt, less those behind the text.
2. Decoding lines say whether the reasoning is still open: where it ended is known to within a line (`replay.marks`).

What is open stands in the middle, so a log that is printed of the workload says the same again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

from parser.event import Event
from parser.request import VISIBLE_KEYS, Request
from replay.marks import Between
from replay.strings import HIDDEN, canonical_tokens, effective_tokens, live_lengths, successors

#: tokens from one decoding line to the next
_EACH = 50
#: states of one length that a file may hold, the latest
_LIKE = 32


class Link(NamedTuple):
    """A prompt goes on from the visible key of `mother`, with `rest` tokens behind it. `told`: its own length stands in
    the log, so the key's length follows."""

    mother: int
    rest: int
    told: int | None


@dataclass(slots=True)
class Known:
    """Turns with visible keys and links between prompts and keys, by index."""

    requests: Sequence[Request]
    #: tokens by which the visible key of a turn is longer than its prompt
    turns: dict[int, Between] = field(default_factory=dict)
    links: dict[int, Link] = field(default_factory=dict)


def known(
    requests: Sequence[Request],
    thought: Container[int],
    read: Mapping[int, int],
    ended: Mapping[int, Between],
) -> Known:
    """`thought`: indices of turns whose reasoning was remembered (LC9). `read`: index -> index of the turn whose file it
    read by a visible key. `ended`: index -> tokens of the reply when its reasoning ended."""
    out, lives = Known(requests), live_lengths(requests)
    before = {after: index for index, after in successors(requests).items()}
    for index, request in enumerate(requests):
        rest = effective_tokens(request) - (request.cached_tokens or 0)
        if request.source in HIDDEN and index in before:
            out.links[index] = Link(before[index], rest, None)
        elif index in read:
            out.links[index] = Link(read[index], rest, request.canonical_prompt_tokens)
        reply = lives[index] - effective_tokens(request)
        if reply <= 0:
            continue
        # without a flag it was over by the first decoding line
        at = ended.get(index, Between(0, min(_EACH, reply) if request.progress.decodes else reply))
        if index in thought:  # `<think>` gives way to `</think>`; content and stop token follow
            out.turns[index] = Between(max(1, reply - at.most + 1), max(1, reply - at.least))
        elif "RESPPROTO" in request.flags and request.finish in ("stop", "tool_calls"):
            # a turn with calls may show its reasoning (R3.30)
            plain = index not in ended or request.finish == "tool_calls"
            least, most = (0, 0) if plain else (at.most - 1, at.least)
            out.turns[index] = Between(max(1, reply - least + 1), max(1, reply - most + 1))
    return out


def read_by_key(
    hits: Iterable[Event],
    requests: Sequence[Request],
    of_event: Mapping[int, int],
    thought: Mapping[int, int],
) -> dict[int, int]:
    """Index -> index of the turn whose file it read by a visible key: the latest that left so many tokens, and so many
    bytes of text where it `thought` (index -> bytes, LC9). `of_event`: event number -> index."""
    left: dict[int, list[int]] = {}
    for other, tokens in enumerate(live_lengths(requests)):
        left.setdefault(tokens, []).append(other)
    found = {}
    for event in hits:
        index, text = of_event.get(event.seq), event.get("text")
        if index is None or event.get("key") not in VISIBLE_KEYS:
            continue
        known = left.get(event.get("tokens") or -1, [])
        latest = known[: bisect_left(known, index)][: -_LIKE - 1 : -1]
        same = next((other for other in latest if text in (None, thought.get(other, text))), None)
        if same is not None:
            found[index] = same
    return found


def shown(known: Known) -> dict[int, int]:
    """Index of each turn -> tokens by which its visible key is longer than its prompt, at least one."""
    found = {index: max(1, round(turn.middle)) for index, turn in known.turns.items()}
    for link in known.links.values():
        chain = _chain(known, link) if link.told is not None else []
        if link.told is None or any(turn not in known.turns for turn in chain):
            continue
        total = link.told - link.rest - canonical_tokens(known.requests[chain[-1]])
        total -= sum(known.links[turn].rest for turn in chain[:-1])
        if total >= len(chain):
            found.update(zip(chain, _spread([known.turns[turn] for turn in chain], total), strict=True))
    return found


def surely(known: Known) -> set[int]:
    """Indices of the turns of which some prompt tells exactly how much of the reply it holds."""
    return {
        link.mother
        for link in known.links.values()
        if link.told is not None and known.links.get(link.mother, link).told is not None
    }


def _chain(known: Known, link: Link) -> list[int]:
    """Turns, the last first, back to one whose prompt's length stands in the log."""
    chain = [link.mother]
    while (above := known.links.get(chain[-1])) is not None and above.told is None:
        chain.append(above.mother)
    return chain


def _spread(turns: Sequence[Between], total: int) -> Iterable[int]:
    """Whole tokens of each turn that make `total`: as far from the middle of what is possible as that is wide."""
    width = sum(turn.most - turn.least for turn in turns) / 2
    off = total - sum(turn.middle for turn in turns)
    share = [
        turn.middle + off * ((turn.most - turn.least) / 2 / width if width else 1 / len(turns))
        for turn in turns
    ]
    ends = [0, *(round(end) for end in accumulate(share))]
    return [max(1, end - start) for start, end in pairwise(ends)]
