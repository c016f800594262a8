"""write-amplification: many times the size of the live state goes to the disk (4.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parser.event import Event
from triage.evidence import event_sign
from triage.figures import compact, stored_figures
from triage.mechanism import CONSEQUENCE, Mechanism, Replay, Sign
from triage.turns import followed
from triage.view import View


def _stretches(view: View) -> list[list[Event]]:
    """Stores by conversation (the parser's label), shutdown stores left out: they are written once."""
    groups: dict[str | None, list[Event]] = {}
    known = followed(view)
    for event in view.of("kv_stored"):
        if event.get("reason") != "shutdown" and event.get("size_mib"):
            label = view.talk.get(event.seq) if known else None
            groups.setdefault(label, []).append(event)
    return list(groups.values())


def _ratio(stores: list[Event]) -> float:
    return float(sum(e.get("size_mib") for e in stores) / max(e.get("size_mib") for e in stores))


def detect(view: View) -> Iterator[Sign]:
    """Stored MiB >= 3 x the largest live state of the stretch, or more than 20 GiB per hour."""
    limits = view.limits
    heavy = [g for g in _stretches(view) if len(g) > 2 and _ratio(g) >= limits.write_ratio]
    everything = [e for e in view.of("kv_stored") if e.get("size_mib")]
    span = view.span_s(everything)
    figures = stored_figures(everything)
    rate = None
    if span is not None and span >= limits.write_hour_min_s:
        rate = figures.get("stored_mib", 0.0) / 1024 / (span / 3600)
    if len(everything) < 2 or not (heavy or (rate is not None and rate > limits.write_gib_per_hour)):
        return
    yield _sign(view, heavy, everything, figures, rate)


def _sign(
    view: View, heavy: list[list[Event]], everything: list[Event], figures: dict[str, Any], rate: float | None
) -> Sign:
    ratio = max(map(_ratio, heavy), default=None)
    text = f"{figures.get('stored_mib')} MiB were written"
    if ratio is not None:
        text += f", up to {ratio:.1f} times the largest state of a conversation"
    if rate is not None:
        text += f", {rate:.1f} GiB an hour"
    return event_sign(
        text,
        [e for group in heavy for e in group][:200] or everything[:200],
        compact(
            {
                **figures,
                "write_ratio": ratio,
                "gib_per_hour": rate,
                "largest_mib": max(e.get("size_mib") for e in everything),
            }
        ),
        tokens=0,
        seconds=round(figures.get("save_ms", 0.0) / 1000, 3),
        grade="turns",
    )


MECHANISM = Mechanism(
    id="write-amplification",
    title="Far more is written than the state is large",
    family="budget",
    grades=("turns",),
    severity="low",
    evidence="the sum of stored MiB >= 3 x the largest live state of the stretch, or more than 20 GiB per hour",
    not_if="the log covers one store",
    user="a larger interval, more slots instead of evict stores",
    server="increments instead of whole snapshots",
    detect=detect,
    upstream=(174,),
    replay=Replay("another step; more slots", {"slots": "+1", "kv_cache_continued_interval_tokens": "x4"}),
    place=CONSEQUENCE,
    causes=(
        "slot-steal-shared-prefix",
        "slot-steal-trivial-prefix",
        "too-few-slots",
        "side-calls-on-one-slot",
        "nested-continued-ladder",
        "store-then-evict",
        "reasoning-retokenised",
        "tool-bytes-retokenised",
        "exact-retry-no-rewind",
        "tail-mismatch-no-rewind",
        "client-early-edit",
        "client-transient-tail",
        "client-history-rewrite",
        "forced-think-close",
        "invalid-checkpoint",
        "incoming-prefix-evicted",
    ),
)
