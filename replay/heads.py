"""Shared heads: prefixes that prompts of different conversations have in common (a system prompt).

A miss prints how many tokens the prompt shares with what was in the slot. Where the same number recurs with
different prompts, it is the end of a head, not of what one conversation holds.
"""

from __future__ import annotations

from collections import Counter

from replay.evidence import Evidence
from replay.prefixes import Tree
from replay.strings import canonical, owner

#: a shared head shorter than this is not a system prompt but the first words of a chat template
LEAST_HEAD = 64
#: two occurrences may differ by the first words that two messages happen to share
_NEAR = 2


def heads(evidence: Evidence, tree: Tree) -> dict[int, int]:
    """Index of a request -> tokens of the longest head that its prompt is known to share."""
    lengths = sorted(_recurring(evidence, tree))
    found: dict[int, int] = {}
    for head in lengths:
        groups: dict[int, list[int]] = {}
        for index in range(len(evidence.requests)):
            if evidence.lengths[canonical(index)] >= head:
                groups.setdefault(tree.carrier(canonical(index), head), []).append(index)
        for members in groups.values():
            if len(members) > 2:
                found.update(dict.fromkeys(members, head))
    return found


def _recurring(evidence: Evidence, tree: Tree) -> set[int]:
    counts: Counter[int] = Counter()
    for index, request in enumerate(evidence.requests):
        before, common = evidence.occupant.get(index), request.common
        if before is None or not common or common == evidence.lengths[canonical(index)]:
            continue
        if _in_first_prompt(evidence, tree, canonical(before), common):
            counts[common] += 1
    return {
        common
        for common in counts
        if sum(counts[near] for near in range(common - _NEAR, common + _NEAR + 1)) > 1
    }


def _in_first_prompt(evidence: Evidence, tree: Tree, string: int, common: int) -> bool:
    """The place lies in a prompt that does not go on from an earlier request: not in a reply, not in a later
    message."""
    carrier = tree.carrier(string, common)
    first = carrier == canonical(owner(carrier)) and owner(carrier) not in evidence.placed
    return first and common < evidence.lengths[carrier]
