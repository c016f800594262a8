"""Evidence: from triggers, fallbacks and events to the `Sign` of a mechanism. Shared by the mechanism files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from parser.event import Event
from triage.episodes import Episode, total
from triage.fallback import Fallback, fallbacks
from triage.figures import avoidable, cost_figures, cost_of, lines_of, listed, sums
from triage.mechanism import Sign
from triage.setting import Trigger
from triage.trigger import triggers
from triage.view import View

#: what a grade is worth before anything else is known
CONFIDENCE: Final = {
    "log": 0.95,
    "trace": 0.95,
    "config": 0.9,
    "turns": 0.85,
    "possible": 0.5,
    "hearsay": 0.3,
}

Measure = Callable[[Episode], "int | None"]


def triggered(view: View, mechanism: str, *, cheap: bool | None = None) -> list[tuple[Episode, Trigger]]:
    """Episodes whose trigger is `mechanism`; `cheap` selects those that the disk healed (or did not)."""
    if "by_trigger" not in view.memo:
        named, groups = triggers(view), dict[str, list[tuple[Episode, Trigger]]]()
        for episode in view.episodes:
            trigger = named.get(id(episode))
            if trigger is not None:
                groups.setdefault(trigger.mechanism, []).append((episode, trigger))
        view.memo["by_trigger"] = groups
    found: list[tuple[Episode, Trigger]] = view.memo["by_trigger"].get(mechanism, [])
    return [(e, t) for e, t in found if cheap in (None, t.cheap)]


def fallen(view: View, mechanism: str) -> list[tuple[Episode, Fallback]]:
    """Episodes whose fallback is `mechanism`."""
    named = fallbacks(view)
    return [
        (e, named[id(e)]) for e in view.episodes if id(e) in named and named[id(e)].mechanism == mechanism
    ]


def grade_of(triggers_: Iterable[Trigger]) -> str:
    """The surest grade among several episodes: one sure occurrence proves the mechanism."""
    order = ("log", "config", "turns", "trace", "possible")
    return min((t.grade for t in triggers_), key=order.index, default="possible")


def trigger_sign(
    view: View,
    mechanism: str,
    explain: Callable[[list[Episode], dict[str, Any]], str],
    *,
    extra: Callable[[list[Episode]], dict[str, Any]] | None = None,
    measure: Measure = avoidable,
    cheap: bool | None = None,
    severity: str | None = None,
    overhead: Callable[[list[Episode]], float] | None = None,
    turn_before: bool = False,
) -> Iterator[Sign]:
    """One sign over all episodes with this trigger; none if there are none.

    `turn_before`: how the turn before ended is evidence as well.
    """
    found = triggered(view, mechanism, cheap=cheap)
    if not found:
        return
    episodes = [e for e, _ in found]
    tokens, seconds = cost_of(episodes, view, measure)
    if overhead is not None and (spent := overhead(episodes)):
        seconds = round((seconds or 0.0) + spent, 3)
    figures = {**sums(episodes, view), **cost_figures(tokens, seconds, view)}
    if extra is not None:
        figures.update({k: v for k, v in extra(episodes).items() if v is not None})
    figures["each"] = listed(episodes, view)
    grade = grade_of(t for _, t in found)
    figures.update(traced(view, episodes))
    why = max(found, key=lambda pair: pair[0].reprefill or 0)[1].why
    lines = {line for e in episodes for line in e.lines} | (
        ends_before(view, episodes) if turn_before else set()
    )
    yield Sign(
        f"{explain(episodes, figures)} ({why})",
        tuple(episodes),
        tuple(sorted(lines)),
        figures,
        tokens,
        seconds,
        grade,
        CONFIDENCE[grade],
        severity=severity,
    )


def ends_before(view: View, episodes: Sequence[Episode]) -> set[int]:
    """Lines that tell how the turn before each of these ended: its repairs and its finish."""
    asked = {e.previous.request for e in episodes if e.previous is not None}
    finished = [r for r in view.requests if r.request in asked and r.finish is not None]
    repairs = {b.line for e in episodes for b in e.before if b.kind == "tool_repair"}
    return repairs | {r.lines[-1] for r in finished if r.lines}


def traced(view: View, episodes: Sequence[Episode]) -> dict[str, Any]:
    """What a `--trace` record shows of the costliest of these episodes: the token and both texts where they part."""
    records = view.reading.trace
    shown = [e for e in episodes if e.request.request in records and records[e.request.request].window]
    if not shown:
        return {}
    record = records[max(shown, key=lambda e: e.reprefill or 0).request.request]
    row = next((r for r in record.window if r[1] != "=="), None)
    if row is None:
        return {}
    return {"first_mismatch_token": row[0], "live_text_there": row[3], "prompt_text_there": row[5]}


def fallback_sign(view: View, mechanism: str, explain: str, **extra: Any) -> Iterator[Sign]:
    """One sign over all episodes with this fallback; `explain` may use {count}, {s} (of a plural) and {share}."""
    found = fallen(view, mechanism)
    if not found:
        return
    episodes = [e for e, _ in found]
    shares = {id(e): f.share for e, f in found}
    tokens, seconds = cost_of(episodes, view, lambda e: shares[id(e)])
    order = ("log", "config", "turns", "trace", "possible")
    grade = min((f.grade for _, f in found), key=order.index)
    figures = {
        **sums(episodes, view),
        **cost_figures(tokens, seconds, view),
        "share_tokens": total(f.share for _, f in found),
        **{k: v for k, v in extra.items() if v is not None},
        "each": listed(episodes, view),
    }
    lines = {line for e in episodes for line in e.lines} | set(
        lines_of(x for _, f in found for x in f.events)
    )
    text = explain.format(count=len(found), s="" if len(found) == 1 else "s", share=tokens or 0)
    yield Sign(
        f"{text} ({found[0][1].why})", tuple(episodes), tuple(sorted(lines)), figures, tokens, seconds,
        grade, CONFIDENCE[grade],
        triggers=triggers_of(view, episodes),
    )  # fmt: skip


def triggers_of(view: View, episodes: Iterable[Episode]) -> frozenset[str]:
    """The triggers that stand before a fallback of these episodes."""
    named = triggers(view)
    return frozenset(named[id(e)].mechanism for e in episodes if id(e) in named)


def event_sign(
    explanation: str,
    events: Sequence[Event],
    figures: dict[str, Any],
    *,
    episodes: Sequence[Episode] = (),
    tokens: int | None = None,
    seconds: float | None = None,
    grade: str = "log",
    **more: Any,
) -> Sign:
    """A sign that rests on single lines."""
    return Sign(
        explanation, tuple(episodes), lines_of(events), figures, tokens, seconds, grade,
        more.pop("confidence", CONFIDENCE[grade]), **more,
    )  # fmt: skip


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 miss`, `2 misses`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
