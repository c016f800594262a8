"""Ranking (mechanisms 5): broken runs, cost, trigger before fallback, consequences, information, hearsay last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from triage.mechanism import BROKEN, CONSEQUENCE, INFORMATION, Mechanism, Sign
from triage.mechanisms import BUILT_IN

#: 5.1: the order among broken runs, the most specific first
BROKEN_ORDER: Final = (
    "out-of-memory", "distributed-failure", "poisoned-checkpoint", "engine-prefill-failure", "foreign-checkpoint",
)  # fmt: skip
#: verdicts that nothing is wrong: never beside an alarm that rests on events
_ALL_CLEAR: Final = ("healthy", "slow-but-right")
#: tokens a second that turn seconds into tokens where the log shows no speed of its own (ranking only)
_ASSUMED_RATE: Final = 200.0


@dataclass(frozen=True, slots=True)
class Judged:
    """A mechanism with its sign, before it becomes a numbered finding."""

    mechanism: Mechanism
    sign: Sign

    @property
    def id(self) -> str:
        """The mechanism's id."""
        return self.mechanism.id

    @property
    def alarm(self) -> bool:
        """Anything but information."""
        return self.mechanism.place != INFORMATION


def rank(judged: Sequence[Judged], rate: float | None) -> list[Judged]:
    """The order of findings; `rate` is the log's own prefill speed (tokens a second).

    The all-clear verdicts are dropped beside an alarm, `nothing-to-judge` beside any finding from events.
    """
    kept = _without_contradictions(judged)
    found = {j.id for j in kept}
    led = [j for j in kept if _has_cause(j, found)]
    own = [j for j in kept if j not in led]
    ordered = sorted(own, key=lambda j: _key(j, rate))
    ordered = _trigger_first(ordered, rate)
    return _insert_consequences(ordered, sorted(led, key=lambda j: _key(j, rate)))


def _without_contradictions(judged: Sequence[Judged]) -> list[Judged]:
    broken = any(
        j.mechanism.place == BROKEN for j in judged
    )  # also where only quoted: then nothing is healthy
    alarm = broken or any(j.alarm and j.sign.grade != "hearsay" for j in judged)
    kept = [j for j in judged if not (j.id in _ALL_CLEAR and alarm)]
    events = [j for j in kept if j.sign.grade != "hearsay" and j.id != "nothing-to-judge"]
    return [j for j in kept if not (j.id == "nothing-to-judge" and events)]


def _has_cause(judged: Judged, found: set[str]) -> bool:
    return judged.mechanism.place == CONSEQUENCE and bool(found & set(judged.mechanism.causes))


def weight(judged: Judged, rate: float | None) -> float:
    """Cost in tokens: avoidable tokens, or seconds at the log's own speed, whichever is larger."""
    seconds = judged.sign.avoidable_s or 0.0
    return max(float(judged.sign.avoidable_tokens or 0), seconds * (rate or _ASSUMED_RATE))


def _key(judged: Judged, rate: float | None) -> tuple[float, ...]:
    order = BUILT_IN.index(judged.id) if judged.id in BUILT_IN else len(BUILT_IN)
    hearsay = judged.sign.grade == "hearsay"
    place = judged.mechanism.place
    if place == BROKEN:
        broken = BROKEN_ORDER.index(judged.id) if judged.id in BROKEN_ORDER else len(BROKEN_ORDER)
        return (hearsay, 0, broken, 0, 0, order)
    if place == INFORMATION:
        last = judged.id == "nothing-to-judge"
        return (hearsay or last, 3 + last, order, 0, 0, order)
    possible = judged.sign.grade == "possible"
    leads = judged.mechanism.fallback and judged.mechanism.repeats
    return (
        hearsay,
        1,
        -weight(judged, rate) * (0.9 if possible else 1.0),
        possible,
        not leads,
        -len(judged.sign.requests),
        order,
    )


def _trigger_first(ordered: list[Judged], rate: float | None) -> list[Judged]:
    """5.3: within one episode the trigger before the fallback, but for repeating fallbacks and possible triggers."""
    result = list(ordered)
    for fallback in ordered:
        if not fallback.mechanism.fallback:
            continue
        mine = set(fallback.sign.requests)
        partners = [
            j for j in result
            if j.mechanism.trigger and mine & set(j.sign.requests) and j.mechanism.place != INFORMATION
        ]  # fmt: skip
        for trigger in partners:
            if _fallback_leads(fallback, trigger, rate):
                _before(result, fallback, trigger)
            else:
                _before(result, trigger, fallback)
    return result


def _fallback_leads(fallback: Judged, trigger: Judged, rate: float | None) -> bool:
    if fallback.id == "hit-not-used":
        return True  # a defect of its own
    triggers = fallback.sign.triggers
    if fallback.mechanism.repeats and (len(triggers) != 1 or triggers <= {"unrelated-prompt"}):
        return True  # it repeats while triggers differ, or are no fault of anybody
    # a trigger that is only possible ranks behind a certain fallback of the same size
    possible = trigger.sign.grade == "possible" and fallback.sign.grade != "possible"
    return (
        possible
        and fallback.id != "shallow-disk-checkpoint"
        and weight(fallback, rate) >= 0.9 * weight(trigger, rate)
    )


def _before(result: list[Judged], first: Judged, second: Judged) -> None:
    """Move `first` to just before `second` if it stands behind it."""
    if result.index(first) > result.index(second):
        result.remove(first)
        result.insert(result.index(second), first)


def _insert_consequences(ordered: list[Judged], led: list[Judged]) -> list[Judged]:
    """5.4: a consequence ranks behind its cause, before information."""
    at = 1 + max((i for i, j in enumerate(ordered) if j.alarm), default=-1)
    return [*ordered[:at], *led, *ordered[at:]]


def role(judged: Judged, ranked: Sequence[Judged]) -> str:
    """`primary` or `contributing`: a fallback beside its trigger and a consequence beside its cause contribute."""
    if judged.sign.role is not None:
        return judged.sign.role
    if ranked and judged is ranked[0]:
        return "primary"
    found = {j.id for j in ranked}
    if not judged.alarm or _has_cause(judged, found):
        return "contributing"
    first, mine = set(ranked[0].sign.requests), set(judged.sign.requests)
    if judged.mechanism.fallback or ranked[0].mechanism.fallback:
        return "contributing" if not mine or mine & first else "primary"
    return "primary" if not mine & first else "contributing"
