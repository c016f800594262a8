"""The bound that no policy can beat: every token is evaluated at most once, nobody waits for anybody.

A request must evaluate what no earlier prompt or reply began with, and at least one token; it takes what that
takes alone on the machine. Slots, disk and their policies can only add to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from replay.outcome import Outcome, Served, Totals
from replay.rope import Rope, cut, join, length
from replay.seams import Costs
from replay.tally import rank
from replay.workload import Asked, Workload


@dataclass(slots=True)
class _Node:
    """What followed a string: (segment, start) -> end -> what followed that."""

    after: dict[tuple[str, int], dict[int, _Node]] = field(default_factory=dict)


class Seen:
    """All strings that a server has evaluated."""

    def __init__(self) -> None:
        self.root = _Node()

    def add(self, rope: Rope) -> None:
        """Remember a string and all its beginnings."""
        node = self.root
        for piece in rope:
            node = node.after.setdefault((piece.segment, piece.start), {}).setdefault(piece.end, _Node())

    def shared(self, rope: Rope) -> int:
        """Tokens of the longest beginning of `rope` that some string had."""
        node, tokens = self.root, 0
        for piece in rope:
            ends = node.after.get((piece.segment, piece.start))
            if not ends:
                return tokens
            if piece.end not in ends:
                return tokens + min(piece.end, max(ends)) - piece.start
            node, tokens = ends[piece.end], tokens + piece.end - piece.start
        return tokens


def bound(workload: Workload, costs: Costs) -> Outcome:
    """The outcome of a server with every slot and every byte it could wish for, that knows what will come."""
    seen, served, ends = Seen(), [], dict[int, float]()
    for asked in workload.requests:
        sent = asked.arrival_s or 0.0
        if asked.after is not None:
            sent = ends.get(asked.after, 0.0) + asked.think_s
        row = _served(asked, seen, costs, sent)
        ends[asked.request] = sent + (row.latency_s or 0.0)
        served.append(row)
        seen.add(join(asked.prompt, asked.reply))
        if asked.shown is not None:
            seen.add(join(cut(asked.prompt, asked.prompt_tokens - asked.drop), asked.shown))
    return Outcome(tuple(served), _totals(served, ends))


def _served(asked: Asked, seen: Seen, costs: Costs, sent: float) -> Served:
    tokens = asked.prompt_tokens
    kept = max(0, min(seen.shared(asked.prompt), tokens - 1))
    admit, prefill = costs.admit_s(tokens), costs.prefill_s(kept, tokens)
    decode = costs.decode_s(1, tokens, length(asked.reply))
    latency = admit + prefill + decode + costs.end_s(tokens, asked.generated)
    return Served(
        request=asked.request, slot=None, source=None, cached_tokens=kept, prompt_tokens=tokens,
        prefilled_tokens=tokens - kept, live_before=None, common=None, evicted_live_tokens=None,
        disk_hit_tokens=None, stores=(), evicted_files=0, start_s=sent + admit, prefill_s=prefill,
        latency_s=latency,
    )  # fmt: skip


def _totals(served: list[Served], ends: dict[int, float]) -> Totals:
    latencies = sorted(row.latency_s or 0.0 for row in served)
    first = min(((row.start_s or 0.0) for row in served), default=0.0)
    return Totals(
        requests=len(served), live_misses=0, evict_stores=0, disk_hits=0, evictions=0,
        prefilled_tokens=sum(row.prefilled_tokens or 0 for row in served), loaded_tokens=0,
        wall_s=max(ends.values(), default=0.0) - first if served else None,
        latency_s_sum=math.fsum(latencies), latency_s_p50=rank(latencies, 0.5), latency_s_p95=rank(latencies, 0.95),
    )  # fmt: skip
