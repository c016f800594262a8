"""What a tensor replay is going to do: its size, and which requests' logits are compared, decided
beforehand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from replay.decisions import (
    Begun,
    Canonicalised,
    Decision,
    Decoded,
    Finished,
    Missed,
    Prefilled,
    Restored,
    Stored,
)
from replay.rope import length

#: checks may cost this share of the replay's own prefill, or this many tokens if that is more
SHARE: Final = 0.25
AT_LEAST: Final = 20_000
KINDS: Final = ("chunking", "reuse", "restore", "rewind", "decode", "rewind-instead")


@dataclass(slots=True)
class Plan:
    """`cold`: requests compared with a prefill in one piece, at the prompt's end and (`decode`) the reply's;
    `twins`: files whose session is kept in memory until the request that loads it; `instead`: misses that are
    tried as a rewind. Tokens are the log's."""

    tokens: int = 0
    steps: int = 0
    longest: int = 0
    cold: dict[int, str] = field(default_factory=dict)
    decode: set[int] = field(default_factory=set)
    twins: dict[str, int] = field(default_factory=dict)
    instead: set[int] = field(default_factory=set)
    not_checked: list[str] = field(default_factory=list)
    canonical: dict[int, Canonicalised] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Candidate:
    cost: int
    request: int
    file: str = ""


def plan(log: Sequence[Decision], samples: int | None = 1, scale: int = 1) -> Plan:
    """`samples` requests a kind, the cheapest ones (None: all there are); `scale` tokens cost one."""
    out = Plan()
    for row in log:
        _measure(out, row)
    found = _candidates(log)
    room = max(AT_LEAST * scale, round(SHARE * out.tokens))
    for kind in KINDS:
        _choose(out, kind, sorted(found[kind], key=lambda c: (c.cost, c.request)), samples, room)
    return out


def _measure(out: Plan, row: Decision) -> None:
    if isinstance(row, Prefilled):
        out.tokens += row.end - row.start
        out.longest = max(out.longest, row.end)
    elif isinstance(row, Decoded):
        out.steps += row.end - row.start
        out.longest = max(out.longest, row.end)
    elif isinstance(row, Restored):
        out.longest = max(out.longest, row.tokens)
    elif isinstance(row, Canonicalised):
        out.canonical[row.request] = row


def _candidates(log: Iterable[Decision]) -> defaultdict[str, list[_Candidate]]:
    found: defaultdict[str, list[_Candidate]] = defaultdict(list)
    restored: dict[int, Restored] = {}
    written: set[str] = set()
    for row in log:
        if isinstance(row, Stored) and not row.silent:
            written.add(row.file)
        elif isinstance(row, Restored):
            restored[row.request] = row
        elif isinstance(row, Missed) and 0 < row.common < row.live and row.common < row.prompt:
            found["rewind-instead"].append(_Candidate(row.prompt - row.common, row.request))
        elif isinstance(row, Begun):
            _begun(found, row, restored.get(row.request), written)
        elif isinstance(row, Finished) and row.finish != "error" and row.live:
            found["decode"].append(_Candidate(row.live, row.request))
    return found


def _begun(
    found: defaultdict[str, list[_Candidate]], row: Begun, restored: Restored | None, written: set[str]
) -> None:
    prompt = length(row.prompt)
    if restored is not None:
        if restored.file in written:
            found["restore"].append(_Candidate(prompt - row.cached, row.request, restored.file))
    elif row.source == "cold":
        found["chunking"].append(_Candidate(prompt, row.request))
    else:
        found["rewind" if row.source == "memory-rewind" else "reuse"].append(_Candidate(prompt, row.request))


def _choose(out: Plan, kind: str, found: list[_Candidate], samples: int | None, room: int) -> None:
    if kind == "decode":  # the prefill that a prompt is compared with goes on over the reply
        shared = [c for c in found if c.request in out.cold]
        found = shared + [c for c in found if c.request not in out.cold]
    taken = found if samples is None else [c for c in found[:samples] if c.cost <= room]
    if found and not taken and samples:
        out.not_checked.append(
            f"{kind}: the shortest of {len(found)} takes {found[0].cost} tokens of prefill"
        )
    for candidate in taken:
        if kind == "restore":
            out.twins[candidate.file] = candidate.request
        elif kind == "rewind-instead":
            out.instead.add(candidate.request)
        elif kind == "decode":
            out.decode.add(candidate.request)
        else:
            out.cold[candidate.request] = kind
