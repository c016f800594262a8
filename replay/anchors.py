"""The anchor: the tokens before the first user message, where cold checkpoints are cut (R5.1).

A cold store line says it (`tokens`, with `trimmed` the rest of the prompt); it holds for every prompt that
shares it and the token behind it. Where no line says it, the default is one token (the user tag) before the
end of what a conversation's first prompt shares with another conversation.
"""

from __future__ import annotations

from collections.abc import Sequence

from replay.candidates import Talk
from replay.evidence import Evidence
from replay.heads import LEAST_HEAD
from replay.prefixes import Tree
from replay.strings import canonical, canonical_tokens


def anchors(
    evidence: Evidence, tree: Tree, talks: Sequence[Talk], *, trim: int, align: int
) -> tuple[dict[int, int], set[int]]:
    """Anchors by request index, and the indices for which it is only the default."""
    said = _said(evidence, trim, align)
    found: dict[int, int] = {}
    carriers = {(tree.carrier(canonical(index), place), place) for index, place in said.items()}
    places = sorted({place for _, place in carriers}, reverse=True)
    for index in range(len(evidence.requests)):
        for place in places:
            longer = evidence.lengths[canonical(index)] > place
            if longer and (tree.carrier(canonical(index), place), place) in carriers:
                found[index] = place
                break
    guessed = _guessed(evidence, tree, talks, found)
    return {**guessed, **found}, set(guessed)


def _said(evidence: Evidence, trim: int, align: int) -> dict[int, int]:
    """Cold stores that were cut at the anchor, not at the last multiple of the alignment."""
    said = {}
    for index, request in enumerate(evidence.requests):
        for store in request.stores:
            tokens, prompt = store.tokens, canonical_tokens(request)
            if store.reason == "cold" and tokens < prompt and tokens != (prompt - trim) // align * align:
                said[index] = tokens
    return said


def _guessed(evidence: Evidence, tree: Tree, talks: Sequence[Talk], found: dict[int, int]) -> dict[int, int]:
    heads: dict[int, int] = {}
    first = {canonical(talk[0]): talk for talk in talks}
    for string in first:
        depth, mother = tree.depth[string], tree.parent[string]
        while mother >= 0 and depth >= LEAST_HEAD:
            heads[string] = max(heads.get(string, 0), depth)
            if mother in first:
                heads[mother] = max(heads.get(mother, 0), depth)
            mother, depth = tree.parent[mother], min(depth, tree.depth[mother])
    return {
        turn: heads[string] - 1
        for string, talk in first.items()
        for turn in talk
        if string in heads and turn not in found and evidence.lengths[canonical(turn)] >= heads[string]
    }
