"""store-skipped: a checkpoint was not written, and the line says why (4.6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from parser.event import Event
from triage.episodes import total
from triage.evidence import event_sign, plural
from triage.figures import compact
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View

#: grammar rule -> what stands behind `because`
CAUSES = {
    "live_elsewhere": "the live state had another length",
    "text_too_large": "the text was too large",
    "tool_map": "the tool map was too large",
    "staging": "staging the payload failed",
    "estimate": "the file would not fit the budget",
    "final_size": "the file did not fit the budget",
    "other": "another reason",
}


def _normal(event: Event, view: View) -> bool:
    """GLM and V4.1 cannot be staged in the middle of a prefill: expected, not a fault."""
    text = str(event.get("error") or event.text)
    return (
        event.rule == "staging"
        and "no valid checkpoint" in text
        and event.get("reason") == "continued"
        and view.server.family != "deepseek-v4"
    )


def _made_good(event: Event, view: View) -> bool:
    return any(s.seq > event.seq and s.get("tokens") == event.get("tokens") for s in view.of("kv_stored"))


def detect(view: View) -> Iterator[Sign]:
    """`kv cache skipped … because …`, unless a later store of the same length succeeds."""
    skipped = [e for e in view.of("kv_skipped") if not _normal(e, view)]
    lost = skipped if len(skipped) > 2000 else [e for e in skipped if not _made_good(e, view)]
    if not lost:
        return
    causes = Counter(CAUSES.get(e.rule, "another reason") for e in lost)
    misses = [ep for ep in view.misses if not ep.depth and ep.miss is not None and ep.miss.seq > lost[0].seq]
    longest = max((e.get("tokens") or 0 for e in lost), default=0)
    tokens = sum(min(longest, ep.common or 0) for ep in misses)
    yield event_sign(
        f"{plural(len(lost), 'checkpoint')} not written: "
        + ", ".join(f"{c} ({n})" for c, n in causes.most_common()),
        lost[:200],
        compact(
            {
                "skipped": len(lost),
                "skipped_tokens": longest if len(lost) == 1 else total(e.get("tokens") for e in lost),
                "longest_tokens": longest,
                "by_cause": dict(causes),
                "later_cold_misses": len(misses) or None,
            }
        ),
        tokens=tokens,
        seconds=view.seconds_for(tokens),
        severity="medium" if misses else "low",
    )


MECHANISM = Mechanism(
    id="store-skipped",
    title="A checkpoint was not written",
    family="budget",
    grades=("log",),
    severity="medium",
    evidence="`kv cache skipped … because …`; the cause is the text behind *because*, `reason=` is only the trigger",
    not_if="a later store of the same length succeeds; a failed staging in the middle of a GLM or V4.1 prefill",
    user="by cause: a larger budget, another build",
    server="by cause",
    detect=detect,
    replay=Replay("treat as stored: later hits", {"kv_disk_space_mb": "x4"}),
)
