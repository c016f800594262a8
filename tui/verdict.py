"""Words for a comparison: totals of each side and what is saved; one decision as each scheduler saw it."""

from __future__ import annotations

import re
from typing import Final

from parser.sanitise import sanitise
from replay.compare import Divergence
from replay.outcome import Served
from tui.versus import Side, Versus, saved
from tui.words import Line, seconds

_TOTALS: Final = (
    ("live_misses", "misses", False),
    ("evict_stores", "states put to disk", False),
    ("disk_hits", "restored from disk", False),
    ("prefilled_tokens", "tokens computed", False),
    ("latency_s_sum", "time waited for answers", True),
)

_SEAM: Final = re.compile(r"^(scheduler|reuse|store)=")
_WORDS: Final = 24
_FIGURES: Final = (10, 10, 23, 10)


def totals_lines(versus: Versus) -> list[Line]:
    """A small table: observed, this server replayed, the other policy, saved against the replay."""
    total = len(versus.numbers)
    agreed = f" · model agrees with the log on {versus.agree} of {total}"
    other = name_of(versus.other)
    names = ("observed", "replayed", other if len(other) <= 22 else other[:21] + "…", "saved")
    head: Line = [(f"{'':<{_WORDS}}", "plain")]
    head += [(f"{name:>{_FIGURES[number]}}", "strong") for number, name in enumerate(names)]
    lines: list[Line] = [
        [(f"{len(versus.different)} of {total} requests go another way", "evict"), (agreed, "dim")]
    ]
    return [*lines, head, *(_total(versus, *row) for row in _TOTALS)]


def name_of(side: Side) -> str:
    """What a side is called: a plug-in without its folder."""
    words = [word.rpartition("=") for word in side.name.split(" ")]
    return sanitise(" ".join(f"{name}{sign}{value.rpartition('/')[2]}" for name, sign, value in words))


def _total(versus: Versus, key: str, words: str, time: bool) -> Line:
    sides = (versus.observed, versus.own, versus.other)
    values = [getattr(side.outcome.totals, key) for side in sides]
    spared = saved(versus.own.outcome.totals, versus.other.outcome.totals)[key]
    line: Line = [(f"{words:<{_WORDS}}", "dim")]
    line += [(f"{_figure(value, time):>{_FIGURES[number]}}", "plain") for number, value in enumerate(values)]
    role = "dim" if not spared else "restore" if spared > 0 else "lost"
    return [*line, (f"{_figure(spared, time):>{_FIGURES[3]}}", role)]


def _figure(value: float | None, time: bool) -> str:
    if value is None:
        return "?"
    return ("-" if value < 0 else "") + seconds(abs(value)) if time else f"{value:,.0f}"


def decision_lines(versus: Versus, number: int, width: int) -> list[Line]:
    """One request: slot, scores, reuse and cost on each side."""
    difference = versus.different.get(number)
    words = "the same way in both" if difference is None else _difference(difference)
    role = "dim" if difference is None else "evict"
    lines: list[Line] = [[(f"request {number}  ", "strong"), (words, role)]]
    wide = width >= 100
    room = 24 if wide else 18
    for side in (versus.observed, versus.own, versus.other):
        name = f"{_SEAM.sub('', name_of(side))[:room]:<{room + 1}}"
        served = side.served.get(number)
        lines.append([(name, "dim"), *_outcome(served, wide), *_scores(side, number, wide)])
    return lines


def _difference(one: Divergence) -> str:
    """What differs first, observed and replayed."""
    if one.field == "slot":
        return f"another slot than the log's slot {_plain(one.observed)}"
    name = one.field.removesuffix("_tokens").replace("_", " ")
    return f"another way: {name} {_plain(one.observed)} → {_plain(one.predicted)}"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else "?" if value is None else sanitise(str(value))


def _outcome(served: Served | None, wide: bool) -> Line:
    if served is None:
        return [("not served", "lost")]
    slot = "slot ?" if served.slot is None else f"slot {served.slot}"
    cached = "?" if served.cached_tokens is None else f"{served.cached_tokens:,}"
    prompt = "?" if served.prompt_tokens is None else f"{served.prompt_tokens:,}"
    source = served.source or "?"
    role = "lost" if not served.cached_tokens else "evict" if source == "disk-text" else "restore"
    reused = f"{cached} of {prompt} reused in {seconds(served.prefill_s)}" if wide else f"{cached}/{prompt}"
    return [(f"{slot}  ", "strong"), (f"{source:<{17 if wide else 13}}", role), (f"{reused:<16}", "plain")]


def _scores(side: Side, number: int, wide: bool) -> Line:
    """Every slot's score as the scheduler saw it; the chosen one marked."""
    decision = side.dispatched.get(number)
    if decision is None:
        return [("  scores are not logged" if wide else " not logged", "dim")] if not side.dispatched else []
    line: Line = [("  scores" if wide else " ", "dim")]
    for slot, score in enumerate(decision.scores):
        text = "busy" if score is None else f"{score:,}"
        chosen = slot == decision.slot
        line.append((f" {'›' if chosen else ' '}{slot}:{text}", "strong" if chosen else "dim"))
    return line
