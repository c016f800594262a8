"""continuation-state-lost: a tool result names a call whose state is gone (4.8)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from parser.hearsay import Hearsay
from triage.evidence import plural
from triage.figures import compact
from triage.mechanism import Mechanism, Sign
from triage.view import View

_STATE: Final = re.compile(
    r"continuation\s+state\s+is\s+not\s+available|no (?:live )?state for (?:the )?(?:tool|call)", re.I
)


def listed_ids(view: View) -> list[str]:
    """All call ids of `tool calls … ids=[…]` lines."""
    return [str(one) for e in view.of("tool_calls") for one in (e.get("ids") or ())]


def detect(view: View) -> Iterator[Sign]:
    """HTTP 400/409 about a tool-call id that is in none of the lines seen."""
    said = [
        h
        for h in view.reading.hearsay
        if h.kind == "error"
        and (h.fields.get("tool_ids") or _STATE.search(str(h.fields.get("message") or h.text)))
    ]
    ids = listed_ids(view)
    asked = [str(one) for h in said for one in (h.fields.get("tool_ids") or [i for i in ids if i in h.text])]
    missing = [one for one in asked if one not in ids]
    if not said or (asked and not missing and not _reused(view, asked)):
        return
    yield _sign(view, said, asked, missing, ids)


def _reused(view: View, asked: list[str]) -> bool:
    """The slot of a listed id was used by another request since."""
    last = [e for e in view.of("tool_calls") if set(map(str, e.get("ids") or ())) & set(asked)]
    return bool(last) and any(e.seq > last[-1].seq for e in view.of("live_miss"))


def _sign(view: View, said: list[Hearsay], asked: list[str], missing: list[str], ids: list[str]) -> Sign:
    calls = view.of("tool_calls")
    figures = compact(
        {
            "call_count": max((e.get("n") or len(e.get("ids") or ()) for e in calls), default=None),
            "ids_listed": len(ids),
            "ids_asked": len(set(asked)),
            "http_status": next((h.fields.get("status") for h in said if h.fields.get("status")), None),
        }
    )
    lines = tuple(sorted({e.line for e in calls} | {h.line for h in said}))
    text = f"the client asked to continue a tool call; {_compared(asked, missing, ids)}"
    return Sign(text, (), lines, figures, 0, None, "log", 0.85 if missing else 0.6)


def _compared(asked: list[str], missing: list[str], ids: list[str]) -> str:
    if not asked:
        return "the error names no id that can be compared with the log"
    if not missing:
        return "its id is listed, but the slot that held its state was used by another request since"
    return f"its id is in none of the {plural(len(ids), 'id')} that the log lists"


MECHANISM = Mechanism(
    id="continuation-state-lost",
    title="The state of a tool call is gone",
    family="engine",
    grades=("trace",),
    severity="medium",
    evidence="HTTP 400/409 about a tool-call id that is in none of the `tool calls … ids=[…]` lines seen",
    not_if="the id is listed and its slot was not reused since",
    user="replay the full history",
    server="keep the state of recent calls",
    detect=detect,
    upstream=(127,),
)
