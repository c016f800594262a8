"""nothing-to-judge: no event that speaks about reuse; the input holds something else (4.9)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from triage.health import speaks_of_reuse
from triage.mechanism import INFORMATION, Mechanism, Sign
from triage.view import View

_NAMES = {
    "startup": "start lines", "shutdown": "stop lines", "decoding": "decoding slices", "decode_batch": "decode steps",
    "foreign": "lines of other programs or prose", "unknown": "lines of the server with unknown vocabulary",
    "prefill_chunk": "chunks of a prefill whose start is not shown", "tool_calls": "tool calls",
    "vision_cache": "image lines", "checkpoint": "checkpoint lines",
}  # fmt: skip
#: the word that is counted, in the plural
_COUNTED = re.compile(r"\b(line|slice|step|chunk|call|statement)s\b")
_SINGULAR = r"\1"


def holds(view: View) -> str:
    """What the input holds, in words: `6 decoding slices, 3 decode steps`."""
    counts = [(n, _NAMES.get(kind, kind)) for kind, n in view.reading.counts.items() if n]
    if view.reading.hearsay:
        counts.append((len(view.reading.hearsay), "statements in a person's own words"))
    parts = [f"{n} {name if n != 1 else _COUNTED.sub(_SINGULAR, name, count=1)}" for n, name in counts]
    return ", ".join(parts) or "nothing"


def detect(view: View) -> Iterator[Sign]:
    """No miss, no hit, no store, no prompt line: start lines, slices, prose, digests, empty input."""
    if speaks_of_reuse(view):
        return
    yield Sign(
        f"nothing in the input speaks about reuse; it holds {holds(view)}",
        figures={},
        avoidable_tokens=0,
        confidence=0.95,
    )


MECHANISM = Mechanism(
    id="nothing-to-judge",
    title="Nothing to judge",
    family="none",
    grades=("log",),
    severity="none",
    evidence="no event that speaks about reuse: start lines, decoding slices, engine lines, prose, digests, templates, unknown "
    "vocabulary, empty input",
    not_if="any event that speaks about reuse; never say that there are no misses in such an input",
    user="paste the lines from the miss (or `prompt start`) to `finish`",
    server="nothing to do",
    detect=detect,
    place=INFORMATION,
)
