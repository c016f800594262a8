"""Two outcomes of one workload, request by request: the one operation behind replay, compare and verify.

Slots are labels: those of one outcome are matched with those of the other so that as many requests as
possible agree. A request that follows the same one in its slot is in the same slot, whatever its label: once two
states have changed places, all that goes on from them is served alike. What either outcome does not know is not
compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice, permutations
from typing import Any

from replay.outcome import Outcome, Served

#: what must agree, in the order in which a request decides it
FIELDS = ("slot", "source", "cached_tokens", "evict_store", "disk_hit_tokens")
_MOST_PERMUTED = 4


@dataclass(frozen=True, slots=True)
class Divergence:
    """One request that differs: the first field, both values, and why (one of `replay.causes.CAUSES`)."""

    request: int
    field: str
    observed: Any
    predicted: Any
    why: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """`agree` of `requests` are served alike; `divergences` are the others, in order."""

    requests: int
    agree: int
    divergences: tuple[Divergence, ...]

    @property
    def fraction(self) -> float:
        """Share of requests that agree; 1 for none."""
        return self.agree / self.requests if self.requests else 1.0

    @property
    def first_divergence(self) -> Divergence | None:
        """The first request that differs."""
        return self.divergences[0] if self.divergences else None

    def as_json(self) -> dict[str, Any]:
        """The `fidelity` object of `docs/outputs.md`."""
        rows = [
            {
                "request": d.request,
                "field": d.field,
                "observed": d.observed,
                "predicted": d.predicted,
                "why": d.why,
            }
            for d in self.divergences
        ]
        return {
            "requests": self.requests,
            "agree": self.agree,
            "fraction": self.fraction,
            "first_divergence": rows[0] if rows else None,
            "divergences": rows,
        }


def compare(
    one: Outcome,
    other: Outcome,
    *,
    why: Callable[[Served, Served, str], str] = lambda a, b, field: "",
    sure_slot: Callable[[int], bool] = lambda request: True,
    run_of: Callable[[int], int] = lambda request: 0,
) -> Comparison:
    """Compare request by request, by number. `sure_slot` says whether `one` knows the slot of a request,
    `run_of` which server process served it (slots are matched process by process)."""
    theirs = {row.request: row for row in other.requests}
    pairs = [(row, theirs[row.request]) for row in one.requests if row.request in theirs]
    labels = _labels(pairs, sure_slot, run_of)
    mine, others = _predecessors(one.requests, run_of), _predecessors(other.requests, run_of)
    differing = []
    for a, b in sorted(pairs, key=lambda pair: pair[0].request):
        known = sure_slot(a.request) and mine[a.request] != others[b.request]
        field = _first_difference(a, b, labels[run_of(a.request)] if known else None)
        if field is not None:
            before, after = _value(a, field), _value(b, field)
            if field == "slot":
                after = labels[run_of(a.request)].get(b.slot, b.slot)
            differing.append(Divergence(a.request, field, before, after, why(a, b, field)))
    return Comparison(len(pairs), len(pairs) - len(differing), tuple(differing))


def _predecessors(rows: Sequence[Served], run_of: Callable[[int], int]) -> dict[int, int | None]:
    """Request -> the one that was in its slot before it; None for the first in a process."""
    last: dict[tuple[int, int | None], int] = {}
    found: dict[int, int | None] = {}
    for row in rows:
        place = (run_of(row.request), row.slot)
        found[row.request] = last.get(place)
        last[place] = row.request
    return found


def _first_difference(a: Served, b: Served, labels: Mapping[int | None, int | None] | None) -> str | None:
    for field in FIELDS:
        before, after = _value(a, field), _value(b, field)
        if field == "slot":
            if labels is None:
                continue
            after = labels.get(after, after)
        if before is not None and not _same(field, before, after):
            return field
    return None


def _same(field: str, before: Any, after: Any) -> bool:
    if field == "source" and "memory" in (before, after):
        return str(before).startswith("memory") and str(after).startswith("memory")
    return bool(before == after)


def _value(row: Served, field: str) -> Any:
    if field == "evict_store":
        return None if row.source is None else any(made.reason == "evict" for made in row.stores)
    return getattr(row, field)


def _labels(
    pairs: Sequence[tuple[Served, Served]], sure: Callable[[int], bool], run_of: Callable[[int], int]
) -> dict[int, dict[int | None, int | None]]:
    """Process -> slot of the second outcome -> slot of the first that it is most often."""
    together: dict[int, Counter[tuple[int, int]]] = {}
    for a, b in pairs:
        counts = together.setdefault(run_of(a.request), Counter())
        if a.slot is not None and b.slot is not None and sure(a.request):
            counts[a.slot, b.slot] += 1
    return {run: _matched(counts) for run, counts in together.items()}


def _matched(counts: Counter[tuple[int, int]]) -> dict[int | None, int | None]:
    mine = sorted({a for a, _ in counts})
    theirs = sorted({b for _, b in counts})
    if len(theirs) > _MOST_PERMUTED or len(mine) > _MOST_PERMUTED:
        return _greedy(counts)
    spare = [*mine, *islice(_unused(mine), len(theirs))]
    best = max(
        permutations(spare, len(theirs)),
        key=lambda order: sum(counts[a, b] for a, b in zip(order, theirs, strict=True)),
    )
    return dict(zip(theirs, best, strict=True))


def _greedy(counts: Counter[tuple[int, int]]) -> dict[int | None, int | None]:
    found: dict[int | None, int | None] = {}
    for (a, b), _ in counts.most_common():
        if b not in found and a not in found.values():
            found[b] = a
    fresh = _unused({a for a, _ in counts})
    return found | {b: next(fresh) for b in sorted({b for _, b in counts} - found.keys())}


def _unused(labels: Collection[int]) -> Iterator[int]:
    """Labels for slots that only the second outcome uses."""
    return (label for label in count() if label not in labels)
