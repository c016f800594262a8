"""Merge: the signs of a long log's stretches as one sign a mechanism, with summed figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from triage.episodes import total, total_s
from triage.figures import LISTED
from triage.mechanism import GRADES
from triage.ranking import Judged, weight

#: figures of which the largest counts; all other numbers are summed
_LARGEST: Final = frozenset(
    {
        "common_tokens", "conversations", "slots", "longest_tokens", "deepest_tokens", "largest_mib", "write_ratio",
        "streams", "cold_max_tokens", "anchor_tokens", "restart_tokens", "ctx_tokens", "context_mib", "prompt_tokens",
        "pinned_common_tokens", "step_tokens", "store_spacing_tokens", "wall_gap_seconds", "ratio_to_final_state",
        "life_seconds", "budget_mib", "limit_tokens", "span_seconds",
    }
)  # fmt: skip
#: parts of names whose figures cannot be added up
_NO_SUM: Final = ("percent", "rate", "tps", "median", "ratio", "per_hour", "usual", "step_ms")
#: requests and lines that one finding of a long log names
_NAMED: Final = 400


def merged(judged: Iterable[Judged], rate: float | None) -> list[Judged]:
    """One `Judged` a mechanism, in the order of first appearance."""
    groups: dict[str, list[Judged]] = {}
    for one in judged:
        groups.setdefault(one.id, []).append(one)
    return [same[0] if len(same) == 1 else _one(same, rate) for same in groups.values()]


def slim(judged: Judged) -> Judged:
    """The same without its episodes, so that a stretch's events can be let go."""
    sign = judged.sign
    return Judged(
        judged.mechanism,
        replace(sign, numbers=sign.requests[: 4 * _NAMED], episodes=(), lines=sign.lines[:_NAMED]),
    )


def _one(same: Sequence[Judged], rate: float | None) -> Judged:
    worst = max(same, key=lambda j: weight(j, rate))
    signs = [j.sign for j in same]
    figures = _figures([s.figures for s in signs], worst.sign.figures)
    grade = min((s.grade for s in signs), key=lambda g: GRADES.index(g))
    sign = replace(
        worst.sign,
        explanation=_explanation(worst, figures, len(same)),
        numbers=_spread([s.requests for s in signs]),
        lines=_spread([s.lines for s in [worst.sign, *(s for s in signs if s is not worst.sign)]]),
        figures=figures,
        avoidable_tokens=total(s.avoidable_tokens for s in signs),
        avoidable_s=total_s(s.avoidable_s for s in signs),
        grade=grade,
        confidence=max(s.confidence for s in signs),
        triggers=frozenset().union(*(s.triggers for s in signs)),
        episodes=(),
    )
    return Judged(worst.mechanism, sign)


def _explanation(worst: Judged, figures: Mapping[str, Any], stretches: int) -> str:
    counted = [
        f"{figures[name]} {words}"
        for name, words in (("episodes", "requests"), ("avoidable_tokens", "tokens avoidable"))
        if isinstance(figures.get(name), int)
    ]
    head = f"{worst.mechanism.title}" + (f" ({', '.join(counted)})" if counted else "")
    return f"{head}; in {stretches} stretches of the log, the worst: {worst.sign.explanation}"


def _spread(parts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Some of each part, so that no stretch is left unnamed."""
    share = max(4, _NAMED // len(parts))
    return tuple(sorted({number for part in parts for number in part[:share]}))


def _figures(parts: Sequence[Mapping[str, Any]], worst: Mapping[str, Any]) -> dict[str, Any]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: _figure(name, [p[name] for p in parts if name in p], worst.get(name)) for name in names}


def _figure(name: str, values: Sequence[Any], worst: Any) -> Any:
    first = values[0]
    if isinstance(first, bool):
        return any(values)
    if isinstance(first, (int, float)):
        if name in _LARGEST:
            return max(values)
        if any(part in name for part in _NO_SUM):
            return worst if worst is not None else first
        return round(sum(values), 3)
    if isinstance(first, dict):
        return {
            key: round(sum(v.get(key, 0) for v in values), 3)
            for key in dict.fromkeys(k for v in values for k in v)
        }
    if name == "avoidable_seconds_range":
        return [round(sum(v[0] for v in values), 3), round(sum(v[1] for v in values), 3)]
    return [x for v in values for x in v][:LISTED] if isinstance(first, list) else first


def merged_totals(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Totals of stretches as one: sums, and of speeds the range over all."""
    names = dict.fromkeys(name for part in parts for name in part)
    out: dict[str, Any] = {}
    for name in names:
        values = [p[name] for p in parts if p.get(name) is not None]
        if not values:
            out[name] = None
        elif name == "prefill_tps_range":
            out[name] = [min(v[0] for v in values), max(v[1] for v in values)]
        elif name == "seconds_lost_range":
            out[name] = [round(sum(v[0] for v in values), 3), round(sum(v[1] for v in values), 3)]
        elif name == "prefill_tps":
            out[name] = sorted(values)[len(values) // 2]
        else:
            out[name] = _figure(name, values, values[0])
    return out
