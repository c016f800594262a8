"""lost-tool-turn: a turn ended without the tool call (or the answer) that it was meant to bring (4.8)."""

from __future__ import annotations

from collections.abc import Iterator

from parser.event import Event
from triage.episodes import total, total_s
from triage.evidence import event_sign, plural
from triage.figures import compact
from triage.mechanism import CONSEQUENCE, Mechanism, Sign
from triage.view import View

_RECOVERED = ("recovered", "repaired", "hallucinated", "forced_close")


def _why(event: Event, view: View, not_closed: list[Event]) -> str | None:
    """Why this finish line is a lost turn; None if it is not."""
    flags, finish = event.get("flags") or (), event.get("finish")
    if finish == "error" and str(event.get("error") or "").startswith(
        ("unterminated tool call", "invalid tool call")
    ):
        return "the tool call was never closed"
    if finish in ("stop", "length"):
        if any(0 < event.seq - line.seq <= 8 for line in not_closed):
            return "the call stayed inside the reasoning"
        if "THINKING" in flags:
            return "the turn ended while it was still thinking"
        if "DSML_START" in flags and "DSML_END" not in flags:
            return "the tool call was never closed"
    empty = (
        finish == "stop"
        and event.get("gen") is not None
        and event.get("gen") <= view.limits.empty_turn_tokens
    )
    return "the turn is empty" if empty and "TOOLS" in flags else None


def _recovered(event: Event, view: View) -> bool:
    """A repair line of the same request says that the call was recovered."""
    return any(
        r.seq < event.seq and event.seq - r.seq < 60 and r.get("span_end") in (None, event.get("span_end"))
        for r in view.of("tool_repair", *_RECOVERED)
    )


def detect(view: View) -> Iterator[Sign]:
    """Unterminated calls, a finish while THINKING is shown, an empty turn, calls returned as text."""
    not_closed = view.of("tool_repair", "not_closed")
    lost = [
        (e, why) for e in view.of("finish") if (why := _why(e, view, not_closed)) and not _recovered(e, view)
    ]
    as_text = view.of("tool_repair", "as_text")
    bare = [] if lost or view.of("finish") else not_closed
    told = [e for e, _ in lost] + [e for e in as_text if not _ends_told(e, lost)] + bare
    if not told:
        return
    spans = [e for e, _ in lost if e.get("span_end") is not None and e.get("gen") is not None]
    near = [r for r in not_closed if any(0 < e.seq - r.seq <= 8 for e, _ in lost)]
    seconds = total_s(e.get("elapsed_s") for e, _ in lost)
    yield event_sign(
        f"{plural(len(told), 'turn')} lost its tool call or answer" + (f" ({lost[0][1]})" if lost else ""),
        sorted([*told, *near], key=lambda e: e.seq),
        compact(
            {
                "lost_turns": len(told),
                "generated_tokens": total(e.get("gen") for e, _ in lost),
                "lost_seconds": seconds,
                "frontier_tokens": spans[-1].get("span_end") + spans[-1].get("gen") if spans else None,
                "prefill_seconds": _prefill(view, lost),
                "prefill_rate_tps": _rate(view, lost),
            }
        ),
        episodes=list(
            {id(view.owner[e.seq]): view.owner[e.seq] for e in told if e.seq in view.owner}.values()
        ),
        tokens=total(e.get("gen") for e, _ in lost),
        seconds=_decode_seconds(view, lost),
        confidence=0.9 if lost else 0.6,
    )


def _ends_told(event: Event, lost: list[tuple[Event, str]]) -> bool:
    return any(e.get("span_end") == event.get("span_end") for e, _ in lost)


def _prefill(view: View, lost: list[tuple[Event, str]]) -> float | None:
    return total_s(view.owner[e.seq].seconds for e, _ in lost if e.seq in view.owner)


def _rate(view: View, lost: list[tuple[Event, str]]) -> float | None:
    for event, _ in lost:
        owner = view.owner.get(event.seq)
        if owner is not None and owner.prefilled and owner.seconds:
            return owner.prefilled / owner.seconds
    return None


def _decode_seconds(view: View, lost: list[tuple[Event, str]]) -> float | None:
    """What the lost reply cost: the request's seconds without its prefill, where both are known."""
    owners = [view.owner[e.seq] for e, _ in lost if e.seq in view.owner]
    return total_s(
        o.request.total_s - o.seconds if o.request.total_s is not None and o.seconds is not None else o.request.progress.decode_s
        for o in owners
    )  # fmt: skip


MECHANISM = Mechanism(
    id="lost-tool-turn",
    title="A turn lost its tool call",
    family="engine",
    grades=("log",),
    severity="medium",
    evidence="finish=error with an unterminated tool call (DSML_START without DSML_END); finish=stop or length while THINKING is "
    "still shown, or after `thinking not closed, ignoring …`; an empty turn (gen <= 5, stop)",
    not_if="a repair line says that the call was recovered; the excerpt merely ends before the finish line",
    user="a newer build, a larger output limit",
    server="repair, or continue with a visible tool error",
    detect=detect,
    upstream=(42, 167, 192, 273, 318),
    place=CONSEQUENCE,
    causes=("server-stopped", "engine-prefill-failure", "distributed-failure"),
)
