"""Images of a conversation, as far as a log tells: that there are some, and how many (R3.14)."""

from __future__ import annotations

from collections.abc import Mapping

from replay.evidence import Evidence
from replay.strings import canonical
from replay.workload import Image


def pictures(evidence: Evidence, talk: Mapping[int, int]) -> dict[int, tuple[Image, ...]]:
    """Index -> the images of its prompt. Where they stand is not logged: each is one token at the end of the
    first prompt that is known to hold it; a prompt holds those of its conversation's earlier ones."""
    held: dict[int, tuple[Image, ...]] = {}
    found: dict[int, tuple[Image, ...]] = {}
    for index, request in enumerate(evidence.requests):
        images = held.get(talk[index], ())
        end = evidence.lengths[canonical(index)]
        images = tuple(image for image in images if image.at < end)
        for number in range(len(images), request.images or 0):
            at = max(images[-1].at + 1 if images else 0, end - 2 - (request.images or 0) + number)
            images += (Image(at, 1, f"i{talk[index] + 1}.{number + 1}"),)
        if images:
            held[talk[index]] = found[index] = images
    return found
