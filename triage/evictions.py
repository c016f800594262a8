"""What each deleted file was: one id per eviction line (mechanisms 4.6), the most specific first."""

from __future__ import annotations

from bisect import bisect_left
from math import gcd
from typing import Final

from parser.event import Event
from triage.fallback import fallbacks
from triage.view import View

#: lengths with a smaller common step are no ladder
_LEAST_STEP: Final = 1024


def classified(view: View) -> dict[int, str]:
    """seq of each eviction -> mechanism id (once per view)."""
    if "evictions" not in view.memo:
        incoming = {
            e.seq
            for f in fallbacks(view).values()
            if f.mechanism == "incoming-prefix-evicted"
            for e in f.events
        }
        rungs = {e.seq for run in ladders(view, incoming) for e in run}
        fresh = fresh_stores(view)
        view.memo["evictions"] = {e.seq: _one(e, incoming, rungs, fresh) for e in view.of("kv_evicted")}
    found: dict[int, str] = view.memo["evictions"]
    return found


def _one(event: Event, incoming: set[int], rungs: set[int], fresh: dict[int, Event]) -> str:
    if event.seq in incoming:
        return "incoming-prefix-evicted"
    if event.get("hits"):
        return "small-hot-prefix-evicted"
    if event.seq in rungs:
        return "nested-continued-ladder"
    return "store-then-evict" if event.seq in fresh else "budget-eviction"


def of(view: View, mechanism: str) -> list[Event]:
    """Evictions that belong to `mechanism`, in file order."""
    named = classified(view)
    return [e for e in view.of("kv_evicted") if named[e.seq] == mechanism]


# -- store-then-evict ----------------------------------------------------------------------------------


def fresh_stores(view: View) -> dict[int, Event]:
    """seq of an eviction with hits=0 -> the store of that file at most 60 s or two requests earlier."""
    if "fresh_stores" in view.memo:
        known: dict[int, Event] = view.memo["fresh_stores"]
        return known
    stores: dict[int, list[Event]] = {}
    for store in view.of("kv_stored"):
        if store.get("tokens") is not None:
            stores.setdefault(store.get("tokens"), []).append(store)
    found: dict[int, Event] = {}
    for event in view.of("kv_evicted"):
        if event.get("hits") or event.rule == "thinned":
            continue
        same = stores.get(event.get("tokens"), [])
        before = bisect_left(same, event.seq, key=lambda s: s.seq)
        last = next((same[at] for at in range(before - 1, -1, -1) if _same_size(same[at], event)), None)
        if last is not None and _young(view, last, event):
            found[event.seq] = last
    _same_file(view, found)
    view.memo["fresh_stores"] = found
    return found


def _same_size(store: Event, event: Event) -> bool:
    a, b = store.get("size_mib"), event.get("size_mib")
    return a is None or b is None or abs(a - b) <= 0.02


def _young(view: View, store: Event, event: Event) -> bool:
    """At most two requests, or 60 s (and few requests: a minute of an accelerated log holds hours of work)."""
    limits, starts = view.limits, view.start_lines
    between = bisect_left(starts, event.line) - bisect_left(starts, store.line) if starts else None
    if between is not None and between <= limits.store_life_requests:
        return True
    stored, gone = view.at(store), view.at(event)
    if stored is None or gone is None:
        return between is None
    return gone - stored <= limits.store_life_s and (
        between is None or between <= 3 * limits.store_life_requests
    )


def _same_file(view: View, found: dict[int, Event]) -> None:
    """A file that is written and deleted several times: its first deletion belongs to it as well."""
    files = {e.get("file") for e in view.of("kv_evicted") if e.seq in found} - {None}
    for event in view.of("kv_evicted"):
        if event.seq not in found and not event.get("hits") and event.get("file") in files:
            later = next((s for s in view.of("kv_stored") if s.get("tokens") == event.get("tokens")), None)
            if later is not None:
                found[event.seq] = later


# -- nested-continued-ladder ---------------------------------------------------------------------------


def ladders(view: View, without: set[int]) -> list[list[Event]]:
    """Runs of evictions with hits=0 whose lengths rise on one step, as continued stores leave them."""
    continued = {e.get("tokens") for e in view.of("kv_stored") if e.get("reason") == "continued"}
    run: list[Event] = []
    runs: list[list[Event]] = []
    for event in view.of("kv_evicted"):
        tokens = event.get("tokens")
        if event.seq in without or event.get("hits") or not tokens or (continued and tokens not in continued):
            continue
        if run and tokens <= run[-1].get("tokens"):
            runs.append(run)
            run = []
        run.append(event)
    runs.append(run)
    return [r for r in runs if _is_ladder(r, view)]


def _is_ladder(run: list[Event], view: View) -> bool:
    return len(run) >= view.limits.ladder_evictions and step_of(run) >= _LEAST_STEP


def step_of(events: list[Event]) -> int:
    """The common step of lengths: their greatest common divisor."""
    return gcd(*(int(e.get("tokens")) for e in events if e.get("tokens")))
