"""Where in a reply its reasoning ends and its tool call begins: the flags of decoding lines say it to within a line
(THINKING, DSML_START), which is 50 tokens."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from parser.reading import Reading

#: so many requests of one length may run at once
_AT_ONCE = 16


class Between(NamedTuple):
    """More than `least` tokens of the reply, at most `most`."""

    least: int
    most: int

    @property
    def middle(self) -> float:
        """The likeliest place."""
        return (self.least + self.most) / 2


class Marks(NamedTuple):
    """By request index: tokens of the reply up to the end of its reasoning, and up to the begin of its tool-call block."""

    reasoning: dict[int, Between]
    block: dict[int, Between]


def marks(reading: Reading) -> Marks:
    """As the decoding lines of the log have it; nothing of a request without such a line."""
    of_prompt: dict[int, list[tuple[int, int, int]]] = {}
    for index, request in enumerate(reading.requests):
        if request.prompt_tokens and request.events:
            place = (min(request.events), max(request.events), index)
            insort(of_prompt.setdefault(request.prompt_tokens, []), place)
    found = Marks({}, {})
    for flag, seq, prompt, gen, made in _flagged(reading):
        began = of_prompt.get(prompt, [])
        near = began[max(0, bisect_left(began, (seq,)) - _AT_ONCE) : bisect_left(began, (seq,))]
        for index in (index for first, last, index in near if first < seq < last):
            reply = reading.requests[index].generated_tokens or gen
            if flag == "THINKING":
                found.reasoning[index] = Between(gen, max(gen, min(gen + made, reply)))
            else:
                found.block.setdefault(index, Between(gen - made, gen))
    return found


def _flagged(reading: Reading) -> Iterator[tuple[str, int, int, int, int]]:
    """(flag, event number, tokens of the prompt, tokens of the reply, tokens since the line before), in file order."""
    log = reading.events
    if log is None or not log.counts.get("decoding"):
        return
    frame = log.frame("decoding")
    if "flags" not in frame.columns:
        return
    lines = frame.drop_nulls(["flags", "span_end", "span_tokens", "gen"])
    for flag in ("THINKING", "DSML_START"):
        rows = lines.filter(pl.col("flags").list.contains(flag))
        for seq, end, made, gen in rows.select("seq", "span_end", "span_tokens", "gen").iter_rows():
            yield flag, seq, end - gen, gen, made
