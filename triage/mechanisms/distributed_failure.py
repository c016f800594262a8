"""distributed-failure: the other node of a distributed run failed (4.8)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from triage import engine
from triage.evidence import event_sign, plural
from triage.figures import compact
from triage.mechanism import BROKEN, Mechanism, Sign
from triage.view import View

_SIDE = re.compile(r"\b(leader|worker|coordinator|rank \d+)\b", re.I)


def _live(view: View, seq: int) -> int | None:
    """Tokens of the state that the failure took: the open request's prompt, or the last live length."""
    spans = [
        e.get("span_end") for e in view.of("prompt_start") if e.seq < seq and e.get("span_end") is not None
    ]
    return spans[-1] if spans else None


def detect(view: View) -> Iterator[Sign]:
    """Lines of a distributed run about failed gates, closed connections, failed transports."""
    lines = engine.pair_failures(view)
    if not lines:
        return
    side = next((m[1].lower() for e in lines if (m := _SIDE.search(e.text))), None)
    after = [e for e in view.of("kv_stored") if e.seq < lines[0].seq and e.get("reason") == "continued"]
    yield event_sign(
        f"the distributed run failed ({plural(len(lines), 'line')})",
        lines[:100],
        compact(
            {
                "failures": len(lines),
                "prompt_tokens": _live(view, lines[0].seq),
                "side": side,
                "after_continued_store_of_tokens": after[-1].get("tokens")
                if after and lines[0].seq - after[-1].seq < 8
                else None,
            }
        ),
        tokens=_live(view, lines[0].seq),
    )


MECHANISM = Mechanism(
    id="distributed-failure",
    title="The distributed run fails",
    family="engine",
    grades=("log",),
    severity="critical",
    evidence="`ds4-tp:`, `tp:`, `tp worker`, `distributed worker:` lines about failed gates, closed connections, `transport marked "
    "failed`; a prefill without an end; failures right after a continued store",
    not_if="start lines of a distributed run only",
    user="restart both sides; interval 0 as a stop-gap",
    server="by case",
    detect=detect,
    upstream=(339, 1024),
    place=BROKEN,
)
