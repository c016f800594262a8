"""store-failed: a checkpoint could not be written or read (4.6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from parser.event import Event
from triage.evidence import event_sign, plural
from triage.figures import compact
from triage.mechanism import Mechanism, Sign
from triage.view import View


def _text(event: Event) -> str:
    return str(event.get("error") or event.get("file") or event.rule)


def detect(view: View) -> Iterator[Sign]:
    """`store failed`, `failed to create`, `load failed`, `discarded corrupt …`."""
    failed = view.of("kv_failed") + view.of("kv_discarded", "corrupt", "not_discarded")
    if not failed:
        return
    failed.sort(key=lambda e: e.seq)
    kinds = Counter(e.rule for e in failed)
    later = [ep for ep in view.misses if not ep.depth and ep.miss is not None and ep.miss.seq > failed[0].seq]
    tokens = sum(ep.common or 0 for ep in later)
    again = Counter(_text(e) for e in failed).most_common(1)[0]
    yield event_sign(
        f"{plural(len(failed), 'checkpoint')} could not be written or read ({', '.join(f'{k} {n}' for k, n in kinds.items())})",
        failed[:200],
        compact(
            {
                "failures": len(failed),
                "by_kind": dict(kinds),
                "error_text": again[0],
                "same_error": again[1] if again[1] > 1 else None,
                "later_cold_misses": len(later) or None,
            }
        ),
        episodes=list(
            {id(view.owner[e.seq]): view.owner[e.seq] for e in failed if e.seq in view.owner}.values()
        ),
        tokens=tokens,
        seconds=view.seconds_for(tokens),
    )


MECHANISM = Mechanism(
    id="store-failed",
    title="A checkpoint could not be written or read",
    family="budget",
    grades=("log",),
    severity="high",
    evidence="`kv cache store failed`, `failed to create`, `load failed`, `discarded corrupt …`",
    not_if="the line reports success",
    user="disk space, rights; remove the damaged file (it stays and fails again)",
    server="remove files that cannot be read",
    detect=detect,
)
