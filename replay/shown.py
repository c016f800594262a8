"""What later prompts hold of the replies of thinking turns: they leave the reasoning out (R3.30, R3.32), and no line
prints how many tokens are left. Four things tell it, the surest first:

1. A prompt that goes on from a file found by its visible text: the tokens of the prompt, less those behind the text.
2. `thinking live checkpoint remembered` prints the bytes of prompt and shown reply. What they grow by from one turn to the
   next, in tokens of this log's text, less the message between them, is the reply.
3. Decoding lines say whether the reasoning is still open: where it ended is known to within a line (`replay.marks`).
4. Replies of one log show a usual share of their tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

from parser.request import Request
from replay.marks import Between
from replay.strings import HIDDEN, canonical_tokens, effective_tokens, live_lengths, successors
from replay.workload import BYTES_PER_TOKEN

#: share of a reply that is shown where a log does not tell; by how much the usual share of a log differs from that, and
#: the share of one reply from the usual one
_SHARE, _MEAN_SPREAD, _SHARE_SPREAD = 0.5, 0.25, 0.2
#: text of so many tokens has bytes a token that differ from the log's usual figure by this share, longer text by less
_TEXT_TOKENS, _TEXT_SPREAD = 1000, 0.02


class Turn(NamedTuple):
    """A turn with a visible key: tokens of its reply with the reasoning, bytes of the key (LC9; 0 if no line says them),
    and the tokens (least, most) by which the key is longer than the prompt, as its lines have it."""

    reply: int
    key_bytes: int
    least: int
    most: int

    @property
    def told(self) -> bool:
        """Some line says where its reasoning ended."""
        return self.most - self.least < self.reply - 1


class Link(NamedTuple):
    """A prompt goes on from the visible key of `mother`, with `rest` tokens behind it. `told`: its own length stands in
    the log, so the key's length follows."""

    mother: int
    rest: int
    told: int | None


class Text(NamedTuple):
    """Bytes a token, and the share of a reply's tokens that is shown."""

    ratio: float
    share: float


@dataclass(slots=True)
class Known:
    """Thinking turns and links by index, and the bytes of text that files of known length have."""

    requests: Sequence[Request]
    turns: dict[int, Turn] = field(default_factory=dict)
    links: dict[int, Link] = field(default_factory=dict)


def known(
    requests: Sequence[Request],
    thought: Mapping[int, int],
    read: Mapping[int, int],
    ended: Mapping[int, Between],
) -> Known:
    """`thought`: index -> bytes of its visible key. `read`: index -> index of the turn whose file it read by such a key.
    `ended`: index -> tokens of the reply when its reasoning ended."""
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
        at = ended.get(index, Between(0, reply))
        if index in thought:  # `<think>` gives way to `</think>`; content and stop token follow
            out.turns[index] = Turn(
                reply, thought[index], max(1, reply - at.most + 1), max(1, reply - at.least)
            )
        elif "RESPPROTO" in request.flags and request.finish in ("stop", "tool_calls"):
            # a turn with calls may show its reasoning (R3.30)
            plain = index not in ended or request.finish == "tool_calls"
            least, most = (0, 0) if plain else (at.most - 1, at.least)
            out.turns[index] = Turn(reply, 0, max(1, reply - least + 1), max(1, reply - most + 1))
    return out


def shown(known: Known, talks: Sequence[Sequence[int]] = ()) -> dict[int, int]:
    """Index of each thinking turn -> tokens by which its visible key is longer than its prompt, at least one. With
    `talks`, the conversations (indices), bytes are compared from turn to turn of each."""
    text = _text(known, talks)
    found, lengths = _each(known, text)
    for talk in talks:
        found.update(
            _along(known, text, [i for i in talk if i in known.turns and i not in known.links], lengths)
        )
    _told(known, found)
    return {index: max(1, round(tokens)) for index, tokens in found.items()}


def surely(known: Known) -> set[int]:
    """Indices of the turns of which some prompt tells exactly how much of the reply it holds."""
    return {
        link.mother
        for link in known.links.values()
        if link.told is not None and known.links.get(link.mother, link).told is not None
    }


def _each(known: Known, text: Text) -> tuple[dict[int, float], dict[int, float]]:
    """Each turn for itself, and the lengths of all prompts."""
    found: dict[int, float] = {}
    lengths: dict[int, float] = {}
    for index, request in enumerate(known.requests):
        link = known.links.get(index)
        lengths[index] = canonical_tokens(request)
        if link is not None and link.told is None and link.mother in found:
            lengths[index] = lengths[link.mother] + found[link.mother] + link.rest
        turn = known.turns.get(index)
        if turn is None:
            continue
        grown = _grown(known, index, text)
        if grown is not None:
            found[index] = _within(turn, grown)
        else:
            found[index] = _mixed(text, turn, lengths[index])
    return found, lengths


def _grown(known: Known, index: int, text: Text) -> float | None:
    """Tokens of the reply by what the visible key grew by since the turn that its prompt is linked to."""
    link = known.links.get(index)
    mother = None if link is None else known.turns.get(link.mother)
    if link is None or mother is None or not min(mother.key_bytes, known.turns[index].key_bytes):
        return None
    return (known.turns[index].key_bytes - mother.key_bytes) / text.ratio - link.rest


def _mixed(text: Text, turn: Turn, prompt: float) -> float:
    """What is usual and what the key's bytes say, weighted by how sure each is."""
    usual, spread = _usual(text, turn)
    if not turn.key_bytes:
        return usual
    said, doubt = turn.key_bytes / text.ratio - prompt, _doubt(prompt)
    weight = spread**2 / (spread**2 + doubt**2)
    return _within(turn, usual + weight * (said - usual))


def _within(turn: Turn, tokens: float) -> float:
    return min(max(turn.least, tokens), turn.most)


def _usual(text: Text, turn: Turn) -> tuple[float, float]:
    """Tokens that are shown, without a look at bytes, and how far that is off."""
    if turn.told or not turn.key_bytes:
        return (turn.least + turn.most) / 2, max(2.0, (turn.most - turn.least) / sqrt(12))
    return text.share * turn.reply, _own(turn.reply)


def _doubt(tokens: float) -> float:
    """Tokens by which so many are off when they are counted by bytes."""
    return _TEXT_SPREAD * sqrt(max(1.0, abs(tokens)) * _TEXT_TOKENS)


def _own(reply: float) -> float:
    """Tokens by which what is shown of a reply differs from what is usually shown of so many."""
    return max(4.0, _SHARE_SPREAD * abs(reply))


def _along(
    known: Known, text: Text, turns: Sequence[int], lengths: Mapping[int, float]
) -> Iterator[tuple[int, float]]:
    """Turns of one conversation whose own lengths stand in the log: what bytes say too much at one turn they say at the
    next, but for the text between. A local level, told forwards and backwards (Rauch, Tung, Striebel)."""
    level, doubt = 0.0, _doubt(lengths[turns[0]]) ** 2 if turns else 0.0
    steps: list[tuple[float, float, float]] = []
    for place, index in enumerate(turns):
        turn = known.turns[index]
        moved = _doubt(lengths[index] - lengths[turns[place - 1]]) ** 2 if place else 0.0
        usual, spread = _usual(text, turn)
        ahead = doubt + moved
        seen = turn.key_bytes / text.ratio - lengths[index] - usual
        gain = ahead / (ahead + spread**2)
        level, doubt = level + gain * (seen - level), (1 - gain) * ahead
        steps.append((level, doubt, ahead))
    for one, other in reversed(list(pairwise(range(len(steps))))):
        (at, sure, _), (then, _, ahead) = steps[one], steps[other]
        back = sure / ahead if ahead else 0.0
        steps[one] = (at + back * (then - at), sure, ahead)
    for index, (level, _, _) in zip(turns, steps, strict=True):
        turn = known.turns[index]
        said = turn.key_bytes / text.ratio - lengths[index] - level
        yield index, _within(turn, said)


def _told(known: Known, found: dict[int, float]) -> None:
    """What is told exactly: the shown replies of a chain of linked prompts, up to one whose length stands in the log. Where
    it spans several, what is missing is shared out by their length."""
    for link in known.links.values():
        if link.told is None:
            continue
        chain = [link.mother]
        while (above := known.links.get(chain[-1])) is not None and above.told is None:
            chain.append(above.mother)
        if any(turn not in known.turns for turn in chain):
            continue
        total = link.told - link.rest - canonical_tokens(known.requests[chain[-1]])
        total -= sum(known.links[turn].rest for turn in chain[:-1])
        said = sum(found[turn] for turn in chain)
        for turn in chain:
            found[turn] *= total / said if total > 0 else 1.0


def _text(known: Known, talks: Sequence[Sequence[int]]) -> Text:
    """Least squares over all that a known number of tokens and replies made in bytes, with the usual share as one row
    more."""
    rows = list(_rows(known, talks))
    xx, xy, yy = _SHARE**2 / _MEAN_SPREAD**2, -_SHARE / _MEAN_SPREAD**2, 1 / _MEAN_SPREAD**2
    xb = yb = 0.0
    for tokens, reply, size in rows:
        weight = 1 / (_doubt(tokens) ** 2 + _own(reply) ** 2)
        xx, xy, yy = xx + weight * tokens**2, xy + weight * tokens * reply, yy + weight * reply**2
        xb, yb = xb + weight * tokens * size, yb + weight * reply * size
    apart = xx * yy - xy * xy
    if not rows or apart <= 0 or xb * yy <= yb * xy:
        return Text(BYTES_PER_TOKEN, _SHARE)
    ratio = (xb * yy - yb * xy) / apart
    return Text(ratio, min(max(0.02, (yb * xx - xb * xy) / apart / ratio), 1.0))


def _rows(known: Known, talks: Sequence[Sequence[int]]) -> Iterator[tuple[float, float, int]]:
    """(tokens known, tokens of replies of which a share is shown, bytes) of what was added to a key. The head of a
    conversation is other text than what follows, so a turn is held against the first of its conversation if that is
    known."""
    turns = {index: turn for index, turn in known.turns.items() if turn.key_bytes}
    first: dict[int, int] = {}
    for talk in talks:
        mine = [index for index in talk if index in turns and index not in known.links]
        first.update((index, mine[0]) for index in mine[1:])
    for index, turn in turns.items():
        link, tokens = known.links.get(index), canonical_tokens(known.requests[index])
        sure, open_ = _parts(turn)
        if link is not None and link.mother in turns:
            yield link.rest + sure, open_, turn.key_bytes - turns[link.mother].key_bytes
        elif index in first:
            other = turns[first[index]]
            less, closed = _parts(other)
            more = tokens - canonical_tokens(known.requests[first[index]])
            yield more + sure - less, open_ - closed, turn.key_bytes - other.key_bytes
        elif link is None:
            yield tokens + sure, open_, turn.key_bytes


def _parts(turn: Turn) -> tuple[float, float]:
    """Tokens of the reply that are known to be shown, and those of which a share is."""
    return ((turn.least + turn.most) / 2, 0.0) if turn.told else (0.0, float(turn.reply))
