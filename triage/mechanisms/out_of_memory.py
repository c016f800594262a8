"""out-of-memory: the device has no room (4.8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from triage import engine
from triage.evidence import event_sign
from triage.figures import compact
from triage.mechanism import BROKEN, Mechanism, Sign
from triage.view import View


def detect(view: View) -> Iterator[Sign]:
    """`alloc failed: out of memory`, `failed to create … session`; equal lines are folded with a count."""
    lines = engine.memory_failures(view)
    if not lines:
        return
    _, count = Counter(e.text for e in lines).most_common(1)[0]
    yield event_sign(
        f"the device has no room for what the settings ask ({count} x one line)"
        if count > 1
        else "the device has no room for what the settings ask",
        lines[:20],
        compact(
            {
                "failures": len(lines),
                "repeat_count": count,
                "ctx_tokens": view.config(None, "ctx"),
                "slots": view.server.slots,
                "context_mib": view.config(None, "context_mib"),
            }
        ),
        tokens=0,
    )


MECHANISM = Mechanism(
    id="out-of-memory",
    title="Out of memory",
    family="engine",
    grades=("log",),
    severity="critical",
    evidence="`alloc failed: out of memory`, `failed to create … session`",
    not_if="`oom_score_adj`, memory plans, `size overflow` texts",
    user="a smaller context, chunk or caches, fewer slots",
    server="reserve memory",
    detect=detect,
    upstream=(359, 410, 446),
    place=BROKEN,
)
