"""What another policy would have done: replays beside what was observed, request by request.

Pure. The observed side comes from the log; `own` is the same server replayed (it shows the scores that the
log never prints, and how far the model agrees with the log); `other` is the server asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from parser.errors import Ds4scopeError, UsageError
from parser.reading import Reading
from parser.request import Request, Store
from replay.compare import Divergence, compare
from replay.decisions import Begun, Decision, Dispatched, EvictedFile, Finished, Restored, Stored
from replay.outcome import Outcome, Served, Totals
from replay.study import Study, study_of
from tui.tables import Deleted, Frozen, Tables

MIB: Final = 1 << 20
_WORDS: Final = {
    "ds4-2026-05": "one slot; a disk hit deletes long files",
    "ds4-2026-07": "several slots; a disk hit deletes long files",
    "ds4-2026-08": "several slots, slot by shared prefix",
    "ds4-2026-09-vision": "September with images",
    "ds4-2026-09-reuse": "September, slot by what it can reuse",
    "scheduler=common-prefix": "the slot that shares the longest prefix",
    "scheduler=visible-key": "shared prefix, or remembered visible text",
    "scheduler=reuse-aware": "real reuse, else empty, else stale slot",
    "scheduler=empty-first": "an empty slot before overwriting more",
    "scheduler=min-prefix": "short shared prefixes count nothing",
    "scheduler=lru": "the slot that idles longest",
    "scheduler=clairvoyant": "knows the future: a bound",
    "reuse=ladder": "what this generation does",
    "reuse=rewind-to-common": "cut live state back to the shared part",
    "reuse=rewind-in-ring": "the same, as far as the ring allows",
    "reuse=rewind-points": "back to remembered points",
    "store=profile": "what this generation stores",
    "store=images-on-disk": "conversations with images go to disk too",
    "store=load-before-store": "look up before the evict store",
    "store=protect-incoming": "never delete the file about to be read",
    "store=clairvoyant": "knows the future: a bound",
}
_NAMES: Final = ("server", "scheduler", "reuse", "store", "family")
_SWITCHES: Final = ("kv_disk", "exact_tool_replay")
_MOST_SLOTS: Final = 256  # as many lanes as anybody looks at
_HINT: Final = (
    "a profile (ds4-2026-09-reuse) or scheduler=lru slots=3 reuse=rewind-to-common store=FILE.py:Class"
)


def parse_policy(text: str) -> dict[str, Any]:
    """ "ds4-2026-09-reuse scheduler=lru slots=3" -> options of `replay.configure`. Raises UsageError."""
    options: dict[str, str] = {}
    for word in text.split():
        name, sign, value = word.partition("=")
        options.update({name.replace("-", "_").lstrip("_"): value} if sign else _bare(word))
    if not options:
        raise UsageError("E-POLICY", "no policy is named", hint=_HINT)
    values = {name: _value(name, text) for name, text in options.items()}
    return {"kv_disk": True, **values} if "kv_disk_space_mb" in values else values


def _value(name: str, text: str) -> Any:
    """An option as the server model takes it."""
    if name not in _known():
        raise UsageError("E-POLICY", f"a server has no option {name!r}", hint=_HINT)
    if name in _NAMES or (name, text) == ("slots", "single"):
        return text
    if name in _SWITCHES:
        if text not in ("on", "off"):
            raise UsageError("E-POLICY", f"{name} is on or off, not {text!r}", hint=_HINT)
        return text == "on"
    if not (text.isdecimal() and len(text) < 10):
        raise UsageError("E-POLICY", f"{name} needs a number, not {text!r}", hint=_HINT)
    if name == "slots" and int(text) > _MOST_SLOTS:
        raise UsageError("E-POLICY", f"at most {_MOST_SLOTS} slots can be compared", hint=_HINT)
    return int(text)


def _known() -> set[str]:
    """Options that a server has."""
    from replay.config import ServerConfig

    return {"server", *(part.name for part in fields(ServerConfig))} - {"generation", "sizes"}


def _bare(word: str) -> dict[str, str]:
    from replay.plugins import BUILT_IN
    from replay.profiles import PROFILES

    if word in PROFILES:
        return {"server": word}
    for seam, names in BUILT_IN.items():
        if word.partition(":")[0] in names:
            return {seam: word}
    if ".py:" in word:
        return {"scheduler": word}
    raise UsageError("E-POLICY", f"no profile or policy is called {word!r}", hint=_HINT)


def choices() -> list[tuple[str, str]]:
    """(what to type, what it is) for the list of policies."""
    from replay.plugins import BUILT_IN
    from replay.profiles import PROFILES

    profiles = [(name, _WORDS.get(name, "a server profile")) for name in PROFILES]
    policies = [
        (f"{seam}={name}", _WORDS.get(f"{seam}={name}", f"this server with that {seam}"))
        for seam, names in BUILT_IN.items()
        for name in names
    ]
    return profiles + policies


@dataclass(frozen=True, slots=True)
class Side:
    """One way the requests went: outcome, columns to draw, and by request the dispatch (scores by slot)."""

    name: str
    outcome: Outcome
    frozen: Frozen
    slots: int
    dispatched: Mapping[int, Dispatched] = field(default_factory=dict)
    served: Mapping[int, Served] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Versus:
    """Observed, own and other side. `different`: requests that `other` serves another way than the log says,
    with what differs first; `agree` of the requests are served by `own` as the log says."""

    observed: Side
    own: Side
    other: Side
    numbers: tuple[int, ...]
    different: Mapping[int, Divergence]
    agree: int


def versus(
    reading: Reading, options: Mapping[str, Any], name: str, stopped: Callable[[], bool]
) -> Versus | None:
    """Replay `reading` as it was and under `options`; None when stopped.

    Raises Ds4scopeError where a replay is not possible, a policy does not exist, or a plug-in fails.
    """
    study = study_of(reading)
    seen = study.observed
    if stopped() or seen is None:
        return None
    own = _side("this server", study, {}, seen)
    if stopped():
        return None
    other = _side(name, study, options, seen)
    tables = Tables()
    tables.add(reading.requests)
    slots = max([reading.server.slots or 1, *(1 + (row.slot or 0) for row in seen.requests)])
    mine = Side("observed", seen, tables.freeze(), slots, {}, _by_number(seen))
    numbers = tuple(row.request for row in seen.requests if row.request in other.served)
    fidelity = study.fidelity(own.outcome)
    different = {one.request: one for one in compare(seen, other.outcome).divergences}
    return Versus(mine, own, other, numbers, different, fidelity.agree if fidelity else 0)


def _by_number(outcome: Outcome) -> dict[int, Served]:
    return {row.request: row for row in outcome.requests}


def _side(name: str, study: Study, options: Mapping[str, Any], seen: Outcome) -> Side:
    assert study.reading is not None
    log: list[Decision] = []
    outcome = _tried(lambda: study.run(log, **options))
    steps = _steps(log)
    shift = _first_start(seen) - _first_start(outcome)
    asked = {request.request: request for request in study.reading.requests}
    rows = [_request(row, asked.get(row.request), steps, shift) for row in outcome.requests]
    tables = Tables()
    tables.add(rows, steps.deleted)
    slots = max(config.slot_count for config in study.configs(**options))
    return Side(name, outcome, tables.freeze(), slots, steps.dispatched, _by_number(outcome))


def _first_start(outcome: Outcome) -> float:
    return min((row.start_s for row in outcome.requests if row.start_s is not None), default=0.0)


def _tried(run: Callable[[], Outcome]) -> Outcome:
    """A plug-in may fail in any way; that is said, not shown as a traceback."""
    try:
        return run()
    except Ds4scopeError:
        raise
    except (Exception, SystemExit) as error:
        message = f"the policy failed: {type(error).__name__}: {error}"
        raise UsageError(
            "E-POLICY-FAILED", message, hint="run `ds4scope replay` with it to see more"
        ) from error


#: what an outcome and a request both have under one name
_SAME: Final = (
    *("slot", "source", "cached_tokens", "prompt_tokens", "prefilled_tokens", "prefill_s"),
    *("live_before", "common", "evicted_live_tokens", "disk_hit_tokens"),
)


@dataclass(slots=True)
class _Steps:
    """The decisions of a replay, by request."""

    dispatched: dict[int, Dispatched] = field(default_factory=dict)
    begun: dict[int, float] = field(default_factory=dict)
    finished: dict[int, Finished] = field(default_factory=dict)
    restored: dict[int, Restored] = field(default_factory=dict)
    stored: dict[int, list[Store]] = field(default_factory=dict)
    files: dict[int, list[int]] = field(default_factory=dict)
    deleted: dict[int, Deleted] = field(default_factory=dict)


def _steps(log: list[Decision]) -> _Steps:
    steps = _Steps()
    for number, decision in enumerate(log):
        match decision:
            case Dispatched():
                steps.dispatched[decision.request] = decision
            case Begun():
                steps.begun[decision.request] = decision.at_s
            case Finished():
                steps.finished[decision.request] = decision
            case Restored():
                steps.restored[decision.request] = decision
            case Stored() if decision.request is not None:
                steps.stored.setdefault(decision.request, []).append(_store(decision))
            case EvictedFile() if decision.request is not None:
                steps.files.setdefault(decision.request, []).append(number)
                steps.deleted[number] = Deleted(decision.tokens, decision.size / MIB)
            case _:
                pass
    return steps


def _store(stored: Stored) -> Store:
    size = 0.0 if stored.silent else stored.size / MIB
    return Store(stored.tokens, stored.reason, size, 1000 * stored.seconds, stored.trimmed)


def _request(served: Served, seen: Request | None, steps: _Steps, shift: float) -> Request:
    """A replayed request in the form of an observed one, so that the same code draws it."""
    number = served.request
    finished, restored = steps.finished.get(number), steps.restored.get(number)
    begun = steps.begun.get(number, served.start_s)
    end = finished.at_s if finished is not None else None
    stores = tuple(steps.stored.get(number, ()))
    row = Request(
        request=number,
        line=seen.line if seen else 0,
        run=seen.run if seen else 0,
        conversation=seen.conversation if seen else None,
        start_s=None if begun is None else begun + shift,
        end_s=None if end is None else end + shift,
        total_s=None if end is None or begun is None else end - begun,
        slot_confidence="certain",
        evict_stored=any(store.reason == "evict" for store in stores),
        load_ms=1000 * restored.seconds if restored else None,
        stores=stores,
        evicted_files=tuple(steps.files.get(number, ())),
        **{name: getattr(served, name) for name in _SAME},
    )
    if finished is not None:
        row.generated_tokens, row.finish, row.live_after = finished.generated, finished.finish, finished.live
    return row


def saved(totals: Totals, other: Totals) -> dict[str, float | None]:
    """What `other` saves against `totals`, key by key (negative: costs more)."""
    names = (
        "live_misses",
        "disk_hits",
        "evict_stores",
        "evictions",
        "prefilled_tokens",
        "latency_s_sum",
        "wall_s",
    )
    pairs = {name: (getattr(totals, name), getattr(other, name)) for name in names}
    return {name: None if a is None or b is None else a - b for name, (a, b) in pairs.items()}
