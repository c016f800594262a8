"""Requests of two outcomes side by side, and which misses went, stayed or came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher

from parser.reading import Reading
from replay.outcome import Outcome, Served


@dataclass(frozen=True, slots=True)
class Pair:
    """One request in both outcomes; a side is None where the other has no counterpart."""

    before: Served | None
    after: Served | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Misses by what became of them, and the pairs that none of it rests on."""

    gone: tuple[Pair, ...]
    stayed: tuple[Pair, ...]
    new: tuple[Pair, ...]
    unmatched: int

    def metrics(self) -> dict[str, int]:
        """What `--expect` may name besides the totals."""
        return {
            "misses_gone": len(self.gone),
            "misses_stayed": len(self.stayed),
            "misses_new": len(self.new),
            "unmatched": self.unmatched,
        }


def missed(row: Served | None) -> bool:
    """The request found a live state that it could not use (LC3)."""
    return row is not None and row.source not in (None, "memory-rewind") and bool(row.evicted_live_tokens)


def by_number(before: Outcome, after: Outcome) -> list[Pair]:
    """Pairs of one workload: the same request number is the same request."""
    theirs = {row.request: row for row in after.requests}
    mine = [Pair(row, theirs.pop(row.request, None)) for row in before.requests]
    return mine + [Pair(None, row) for row in theirs.values()]


def by_content(before: tuple[Outcome, Reading], after: tuple[Outcome, Reading]) -> list[Pair]:
    """Pairs of two logs of the same clients: the same prompt lengths in the same order, then what is left of
    each length."""
    one, other = list(before[0].requests), list(after[0].requests)
    keys, their_keys = _keys(*before), _keys(*after)
    a = [keys[row.request] for row in one]
    b = [their_keys[row.request] for row in other]
    partner: dict[int, int] = {}
    for match in SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks():
        partner.update({match.a + k: match.b + k for k in range(match.size)})
    _match_rest(a, b, partner)
    taken = set(partner.values())
    pairs = [Pair(row, other[partner[i]] if i in partner else None) for i, row in enumerate(one)]
    return pairs + [Pair(None, row) for j, row in enumerate(other) if j not in taken]


def _keys(outcome: Outcome, reading: Reading) -> Mapping[int, tuple[int | None, str | None]]:
    known = {r.request: r for r in reading.requests}
    return {
        row.request: (known[row.request].canonical_prompt_tokens or row.prompt_tokens, known[row.request].api)
        for row in outcome.requests
    }


def _match_rest(
    a: list[tuple[int | None, str | None]], b: list[tuple[int | None, str | None]], partner: dict[int, int]
) -> None:
    taken = set(partner.values())
    spare: dict[tuple[int | None, str | None], list[int]] = {}
    for j, key in enumerate(b):
        if j not in taken:
            spare.setdefault(key, []).append(j)
    for i, key in enumerate(a):
        if i not in partner and spare.get(key):
            partner[i] = spare[key].pop(0)


def judge(pairs: list[Pair]) -> Verdict:
    """Which misses went, which stayed, which are new."""
    both = [pair for pair in pairs if pair.before is not None and pair.after is not None]
    return Verdict(
        tuple(p for p in both if missed(p.before) and not missed(p.after)),
        tuple(p for p in both if missed(p.before) and missed(p.after)),
        tuple(p for p in both if missed(p.after) and not missed(p.before)),
        len(pairs) - len(both),
    )
