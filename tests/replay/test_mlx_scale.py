"""`--scale N`: decisions are the same in a world of N times as many tokens."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from worlds import COSTS, configs, workloads

from replay.rope import Piece
from replay.server import replay
from replay.sizes import LinearSizes
from replay.workload import Image


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(workloads(), configs(), st.sampled_from((2, 5, 16)))
def test_decisions_are_invariant_under_scale(workload, config, factor):
    """A world of N times as many tokens, all thresholds N times as high, on a machine N times as fast: each
    decision is the same, N times as large. (One request at a time: who meets whom is a matter of seconds.)"""
    workload, config = one_by_one(workload), replace(config, reuse="ladder")
    config = replace(config, generation=replace(config.generation, exact_retry=False))  # goes back one token
    if config.scheduler == "min-prefix":
        config = replace(config, scheduler="min-prefix:8")
    small, big = [], []
    replay(workload, config, COSTS, small)
    replay(enlarged(workload, factor), thresholds(config, factor), Faster(factor), big)
    assert [shape(row, factor) for row in big] == [shape(row, 1) for row in small]


def one_by_one(workload):
    segments = {name: replace(s, bytes=s.tokens, text=None) for name, s in workload.segments.items()}
    asked = [
        replace(
            a, after=a.request - 1 or None, arrival_s=None if a.request > 1 else 0.0, gives_up_s=None, fault=None,
            prompt=tuple(a.prompt), think_s=1.0,
        )
        for a in workload.requests
    ]  # fmt: skip
    return replace(workload, segments=segments, requests=tuple(asked), stops=())


def enlarged(workload, n):
    def rope(pieces):
        return None if pieces is None else tuple(Piece(p.segment, p.start * n, p.end * n) for p in pieces)

    segments = {
        name: replace(s, tokens=s.tokens * n, bytes=s.bytes * n, tool_map=s.tool_map * n)
        for name, s in workload.segments.items()
    }
    asked = [
        replace(
            a, prompt=rope(a.prompt), reply=rope(a.reply), shown=rope(a.shown), generated=a.generated * n,
            drop=a.drop * n, anchor=None if a.anchor is None else a.anchor * n, tool_tail=a.tool_tail * n,
            images=tuple(Image(i.at * n, i.tokens * n, i.fingerprint) for i in a.images),
            tool_block=tuple(place * n for place in a.tool_block),
        )
        for a in workload.requests
    ]  # fmt: skip
    return replace(workload, segments=segments, requests=tuple(asked))


def thresholds(config, n):
    names = (
        "ctx", "kv_disk_space_mb", "kv_cache_min_tokens", "kv_cache_cold_max_tokens", "prefill_chunk", "prefill_quantum",
        "kv_cache_continued_interval_tokens", "kv_cache_boundary_trim_tokens", "kv_cache_boundary_align_tokens",
        "mixed_prefill_quantum", "ring_rows",
    )  # fmt: skip
    scheduler = config.scheduler.replace(":8", f":{8 * n}")
    sizes = LinearSizes(config.sizes.fixed * n, config.sizes.per_token)
    generation = replace(config.generation, resume_min=config.generation.resume_min * n)
    return replace(
        config,
        **{name: getattr(config, name) * n for name in names},
        sizes=sizes,
        generation=generation,
        scheduler=scheduler,
    )


class Faster:
    """The costs of a machine that takes N tokens, or N bytes, for one."""

    def __init__(self, n):
        self.n = n

    def admit_s(self, prompt):
        return COSTS.admit_s(prompt // self.n)

    def prefill_s(self, start, end):
        return COSTS.prefill_s(start, end) / self.n

    def decode_s(self, batch, depth, steps):
        return COSTS.decode_s(batch, depth // self.n, steps) / self.n

    def store_s(self, tokens, size, written):
        return COSTS.store_s(tokens // self.n, size // self.n, written)

    def load_s(self, tokens, size):
        return COSTS.load_s(tokens // self.n, size // self.n)

    def end_s(self, prompt, generated):
        return COSTS.end_s(prompt // self.n, generated // self.n)


def shape(row, n):
    """A decision without its seconds, its tokens divided by N."""
    tokens = (
        "live",
        "prompt",
        "common",
        "kept",
        "tokens",
        "trimmed",
        "cached",
        "start",
        "end",
        "generated",
        "target",
    )
    plain = ("request", "slot", "reason", "why", "source", "file", "hits", "finish", "bound", "silent", "fit")
    said = [(name, getattr(row, name)) for name in plain if hasattr(row, name)]
    counted = [(name, getattr(row, name)) for name in tokens if isinstance(getattr(row, name, None), int)]
    assert all(value % n == 0 for _, value in counted)
    return type(row).__name__, said, [(name, value // n) for name, value in counted]
