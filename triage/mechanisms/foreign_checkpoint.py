"""foreign-checkpoint: a checkpoint of another model was loaded (4.6)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from parser.event import Event
from triage import engine
from triage.evidence import event_sign
from triage.figures import compact
from triage.mechanism import BROKEN, Mechanism, Sign
from triage.view import View


def _differs(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return [what for what in before if what in after and before[what] != after[what]]


def _same_directory(view: View, first: int, second: int) -> bool:
    """The two starts name one directory, or at least one of them names none."""
    said = view.of("startup", "kv_disk")
    before = [e.get("dir") for e in said if e.seq < second]
    after = [e.get("dir") for e in said if e.seq >= second]
    return not before or not after or before[-1] == after[0]


def _older(view: View, hit: Event, start: int) -> Event | bool | None:
    """The store before the last start that wrote the file; True where it must be older than the log; None if fresh."""
    same = [s for s in view.of("kv_stored") if s.get("tokens") == hit.get("tokens") and s.seq < hit.seq]
    if any(s.seq > start for s in same):
        return None
    return same[-1] if same else True


def detect(view: View) -> Iterator[Sign]:
    """Two starts whose model lines differ, and after the second a hit on a file stored before it."""
    found = engine.starts(view)
    for (first, before), (second, after) in pairwise(found):
        changed = _differs(before, after)
        if not changed or not _same_directory(view, first, second):
            continue
        hits = [
            (h, old)
            for h in view.of("kv_hit")
            if h.seq > second and (old := _older(view, h, second)) is not None
        ]
        if not hits:
            continue
        stores = [old for _, old in hits if isinstance(old, Event)]
        model = [e for e in view.engine if dict(engine.model_items(e.text))]
        yield event_sign(
            "a checkpoint written under another model was loaded: "
            + "; ".join(f"{what} {before[what]} -> {after[what]}" for what in changed),
            [*stores, *(h for h, _ in hits), *model],
            compact(
                {
                    "hit_tokens": hits[0][0].get("tokens"),
                    "foreign_hits": len(hits),
                    "stored_before_seconds": view.span_s([stores[0], hits[0][0]]) if stores else None,
                }
            ),
            tokens=hits[0][0].get("tokens"),
            grade="config" if stores else "possible",
        )
        return


MECHANISM = Mechanism(
    id="foreign-checkpoint",
    title="A checkpoint of another model is loaded",
    family="budget",
    grades=("config",),
    severity="critical",
    evidence="two starts in one log whose model lines differ (mapped size, model name, support model), and after the second a hit "
    "on a file that was stored before it",
    not_if="the model lines are equal; the file was stored after the last start; a single hit line proves nothing",
    user="one directory per model file; compare answers without the hit",
    server="a fingerprint of weights and tokenizer in the header",
    detect=detect,
    upstream=(363, 805, 882, 983),
    place=BROKEN,
)
