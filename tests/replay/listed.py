"""A session that only lists its tokens: the tensor replay's bookkeeping at the speed of a property test."""

import json

import numpy as np

from replay.models.cache import RewindRefused, Verdict


class Listed:
    """Goes back wherever `reach` (tokens back from the end; None: anywhere) or a saved point allows."""

    def __init__(self, reach=None):
        self.reach, self.points = reach, set()
        self.tokens, self.last = np.zeros(0, dtype=np.uint64), None

    @property
    def length(self):
        return len(self.tokens)

    def common(self, tokens):
        count = min(self.length, len(tokens))
        differ = np.flatnonzero(self.tokens[:count] != tokens[:count])
        return int(differ[0]) if differ.size else count

    def extend(self, tokens):
        if len(tokens):
            self.tokens = np.concatenate([self.tokens, tokens])
            self.last = self.tokens.copy()

    def logits(self):
        if self.last is None:
            return None
        return np.random.default_rng(self.last).standard_normal(4).astype(np.float32)

    def can_rewind(self, position):
        if not 0 <= position <= self.length:
            return Verdict("not within")
        near = self.reach is None or self.length - position <= self.reach
        return Verdict(
            "" if near or position in self.points or position == 0 else f"{position} is out of reach"
        )

    def rewind(self, position):
        verdict = self.can_rewind(position)
        if not verdict:
            raise RewindRefused(verdict.reason)
        if position != self.length:
            self.tokens, self.last = self.tokens[:position], None
        self.points = {point for point in self.points if point <= position}

    def save_point(self):
        self.points.add(self.length)

    def reset(self):
        self.tokens, self.last, self.points = self.tokens[:0], None, set()

    def fork(self):
        twin = Listed(self.reach)
        twin.tokens, twin.last, twin.points = self.tokens, self.last, set(self.points)
        return twin


class ListEngine:
    """The cache's reach by family: rows can be cut anywhere, a ring 12 tokens back, recurrent state nowhere."""

    name, tolerance = "lists", 0.0

    def __init__(self, family):
        self.family = family
        self.reach = {"glm": None, "qwen-next": 0}.get(family, 12)

    def new(self):
        return Listed(self.reach)

    def decode(self, residents, tokens):
        for resident, token in zip(residents, tokens, strict=True):
            resident.extend(np.array([token], dtype=np.uint64))

    def save(self, resident, path):
        path.write_text(json.dumps([resident.tokens.tolist(), resident.last is not None]))
        return path.stat().st_size

    def load(self, path):
        tokens, known = json.loads(path.read_text())
        resident = self.new()
        resident.tokens = np.array(tokens, dtype=np.uint64)
        resident.last = resident.tokens.copy() if known else None
        return resident

    def session_bytes(self, tokens):
        return tokens
