"""Ropes to token identities: 64 bits a token, hashed from (segment, position), or from (image, row)."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from replay.models.model import IMAGE_ROW, Tokens
from replay.models.scale import Scale
from replay.models.weights import key, mix
from replay.rope import Piece, Rope
from replay.workload import Asked, Image, Workload

#: images by the tokens of the segment they cover: segment -> (start, end, fingerprint, row at start)
Covers = dict[str, list[tuple[int, int, str, int]]]
_KEPT = 12


class TokenMap:
    """Identities of ropes, one for `scale.factor` tokens; `vision`: the server knows images."""

    def __init__(self, workload: Workload, scale: Scale, vision: bool = True) -> None:
        self.workload, self.scale, self.vision = workload, scale, vision
        self._covers: dict[int, Covers] = {}
        self._recent: OrderedDict[tuple[Rope, int | None], Tokens] = OrderedDict()

    def of(self, rope: Rope, request: int | None) -> Tokens:
        """The tokens of a rope; the images in it are those of `request` (None: there are none)."""
        known = self._recent.get((rope, request))
        if known is not None:
            self._recent.move_to_end((rope, request))
            return known
        covers = self._of_request(request)
        parts = [_piece(piece, covers.get(piece.segment, [])) for piece in rope]
        whole = np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)
        tokens = sampled(whole, self.scale.factor)
        self._recent[rope, request] = tokens
        if len(self._recent) > _KEPT:
            self._recent.popitem(last=False)
        return tokens

    def inherit(self, request: int, owner: int, by_ids: bool) -> None:
        """The live state that `request` goes on from was made for `owner`: if that one's images are all unchanged
        in it (R3.10), or the ids of tool calls decide (`by_ids`, R3.2), they lie where the live tokens have
        them, which need not be the canonical ones."""
        old, new = self.workload.by_number[owner].images, self.workload.by_number[request].images
        if self.vision and (by_ids or new[: len(old)] == old):
            merged = {name: list(spans) for name, spans in covers(self.workload.by_number[request]).items()}
            for name, spans in self._of_request(owner).items():
                merged.setdefault(name, []).extend(spans)
            self._covers[request] = merged

    def _of_request(self, request: int | None) -> Covers:
        if request is None or not self.vision:
            return {}
        if request not in self._covers:
            self._covers[request] = covers(self.workload.by_number[request])
        return self._covers[request]


def sampled(tokens: Tokens, factor: int) -> Tokens:
    """Tokens 0, N, 2N, ...; each stands for itself and the N-1 before it, so that two texts that differ in one
    of those differ from there on, as they would at full size."""
    if factor == 1:
        return tokens
    cells = tokens[1 : 1 + (len(tokens) - 1) // factor * factor].reshape(-1, factor)
    weights = mix(np.arange(factor, dtype=np.uint64)) | np.uint64(1)
    sums = mix((mix(cells) * weights).sum(axis=1, dtype=np.uint64)) & ~IMAGE_ROW
    return np.concatenate([tokens[:1], sums | (cells[:, -1] & IMAGE_ROW)])


def covers(asked: Asked) -> Covers:
    """Where a request's images lie in the segments of its canonical prompt: there too in any effective
    prompt."""
    found: Covers = {}
    at = 0
    for piece in asked.prompt if asked.images else ():
        for image in asked.images:
            span = _overlap(piece, at, image)
            if span:
                found.setdefault(piece.segment, []).append(span)
        at += piece.end - piece.start
    return found


def _overlap(piece: Piece, at: int, image: Image) -> tuple[int, int, str, int] | None:
    start, end = max(at, image.at), min(at + piece.end - piece.start, image.at + image.tokens)
    if start >= end:
        return None
    return piece.start + start - at, piece.start + end - at, image.fingerprint, start - image.at


def _piece(piece: Piece, images: list[tuple[int, int, str, int]]) -> Tokens:
    tokens = _run(piece.segment, piece.start, piece.end) & ~IMAGE_ROW
    for start, end, fingerprint, row in images:
        first, last = max(start, piece.start), min(end, piece.end)
        if first < last:
            rows = _run(f"image {fingerprint}", row + first - start, row + last - start)
            tokens[first - piece.start : last - piece.start] = rows | IMAGE_ROW
    return tokens


def _run(name: str, start: int, end: int) -> Tokens:
    return mix(key(name) + np.arange(start, end, dtype=np.uint64))
