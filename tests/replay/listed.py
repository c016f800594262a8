"""A session that only lists its tokens: the tensor replay's bookkeeping at the speed of a property test."""

import json

import numpy as np
from worlds import COSTS

from replay.backends.carry import Carrier
from replay.backends.mlx import disagreements
from replay.backends.plan import plan
from replay.backends.prove import Prover
from replay.backends.shelf import Shelf
from replay.backends.tokens import TokenMap
from replay.models.cache import RewindRefused, Verdict
from replay.models.scale import Scale
from replay.server import replay

WINDOW, RING = 128, 140


class Listed:
    """Goes back where the shape of its family's cache, in integers, or a saved point allows."""

    def __init__(self, family):
        self.family, self.points, self.oldest = family, set(), 0
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
            self.oldest = max(self.oldest, self.length - RING)

    def logits(self):
        if self.last is None:
            return None
        return np.random.default_rng(self.last).standard_normal(4).astype(np.float32)

    def can_rewind(self, position):
        if not 0 <= position <= self.length:
            return Verdict("not within")
        fits = {"glm": True, "qwen-next": position == self.length}.get(
            self.family, max(0, position - WINDOW) >= self.oldest
        )
        ok = fits or position in self.points or position in (0, self.length)
        return Verdict("" if ok else f"{position} is out of reach")

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
        self.tokens, self.last, self.points, self.oldest = self.tokens[:0], None, set(), 0

    def fork(self):
        twin = Listed(self.family)
        twin.tokens, twin.last, twin.points, twin.oldest = (
            self.tokens,
            self.last,
            set(self.points),
            self.oldest,
        )
        return twin


class ListEngine:
    """Sessions of a family's shape: rows that can be cut, a ring that forgets, recurrent state."""

    name, tolerance = "lists", 0.0

    def __init__(self, family):
        self.family = family

    def new(self):
        return Listed(self.family)

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
        resident.oldest = max(0, resident.length - WINDOW)
        return resident

    def session_bytes(self, tokens):
        return tokens


def decided(workload, config):
    """(decision log, outcome) of a replay."""
    log = []
    return log, replay(workload, config, COSTS, log)


def carried(workload, config, log, outcome, scale=1, samples=None):
    """The log carried out with lists: the carrier, and where the outcome counts otherwise."""
    engine, todo = ListEngine(config.family), plan(log, samples)
    tokens = TokenMap(workload, Scale(scale), config.generation.images)
    with Shelf() as shelf:
        prover = Prover(engine, todo)
        carrier = Carrier(workload, [config], engine, tokens, shelf, todo, prover, lambda _: None)
        carrier.run(log)
    return carrier, disagreements(outcome, carrier.moved, Scale(scale))
