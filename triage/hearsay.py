"""Hearsay: findings of low confidence from digests, tables and prose (mechanisms 2.2.6, 5.7)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from parser.hearsay import Hearsay
from triage.episodes import total_s
from triage.evidence import CONFIDENCE, plural
from triage.figures import compact
from triage.mechanism import INFORMATION, Mechanism, Sign
from triage.told import told
from triage.view import View

_MEMORY = re.compile(r"out of memory|alloc(?:ation)? failed", re.I)
_PAIR = re.compile(r"\b(?:tp|transport|rdma|worker|leader|distributed)\b", re.I)
PREFILL = re.compile(r"prefill failed|graph .*failed|embed tokens failed|\bfailed at token\b", re.I)
#: 2.2.8: something failed, and something else does the work
_NOTICE = re.compile(r"\bfall(?:ing|s) back\b", re.I)
#: an image is part of the conversation, in a person's words
_IMAGES = re.compile(
    r"\b(?:images?|screenshots?|pictures?|vision session|multimodal (?:session|chat|conversation|request)s?)\b",
    re.I,
)
_NO_IMAGES = re.compile(
    r"\b(?:no|without|not|never|text.only)\b[^.]{0,24}\b(?:images?|screenshots?|vision|pictures?)\b", re.I
)
_MATTERS = re.compile(
    r"\b(?:ds4\w*|prefill\w*|kv|caches?|cached|prompts?|slots?|tokens?|checkpoints?)\b", re.I
)
_ONE_SLOT = re.compile(
    r"\b(?:one|a single|single|only one) (?:slot|resident session|session slot)\b|\b(?:no|without|not using) `?--batched-session",
    re.I,
)
_GONE = re.compile(
    r"\bclient\b.{0,12}\b(?:gone|left|gave up)|\bdisconnect|\btimed? ?out\b|\bstream closed", re.I
)
#: the fewest shared-prefix figures that make a row of them
_ROW: Final = 3


def speaks(said: Hearsay) -> bool:
    """The statement is about a ds4-server at all (any digest is; prose is where it names one of its matters)."""
    return said.kind != "prose" or _MATTERS.search(said.text) is not None


def notes(view: View) -> None:
    """What the prose tells the rules beside the events: images in the conversation, pieces of a trace."""
    said = view.reading.hearsay
    traces = [h for h in said if h.kind == "trace"]
    if any(_cold_start(h) for h in traces):
        view.memo["trace_notes"] = ("cold-start",)
    prose = [h.text for h in said if h.kind in ("prose", "figure", "comment")]
    view.memo["one_slot"] = any(_ONE_SLOT.search(t) for t in prose)
    view.memo["images_in_prose"] = any(_IMAGES.search(t) and not _NO_IMAGES.search(t) for t in prose) or any(
        h.kind == "option" and h.fields.get("name") == "--vision" and not h.fields.get("negated")
        for h in said
    )


def _cold_start(heard: Hearsay) -> bool:
    fields = heard.fields
    source, disk = str(fields.get("cache_source", "")), fields.get("disk_cached_tokens")
    return source == "none" and disk in (0, None) and fields.get("cached_tokens") in (0, None)


def heard(view: View, known: dict[str, Mechanism], build: Any) -> Iterator[tuple[str, Sign]]:
    """(mechanism id, sign) for what people say in their own words. `build` makes a view of a reading."""
    said = view.reading.hearsay
    if not said:
        return
    found: set[str] = set()
    for name, sign in (
        *_digests(view, known, build),
        *_commons(view, said),
        *_in_vain(said),
        *_outcomes(said),
        *_errors(said),
    ):
        if name not in found:
            found.add(name)
            yield name, sign


def _hearsay(text: str, lines: Sequence[int], figures: dict[str, Any], **more: Any) -> Sign:
    return Sign(
        f"by what the report says in its own words: {text}", (), tuple(sorted(set(lines))), compact(figures),
        grade="hearsay", confidence=CONFIDENCE["hearsay"], **more,
    )  # fmt: skip


def _digests(view: View, known: dict[str, Mechanism], build: Any) -> Iterator[tuple[str, Sign]]:
    """The same mechanisms, over the digests' own view."""
    reading = told(view.reading)
    if reading is None:
        return
    retold = build(reading, view.limits)
    span = retold.span_s([e for events in retold.events.values() for e in events])
    for mechanism in known.values():
        if mechanism.place == INFORMATION:
            continue
        for sign in mechanism.detect(retold):
            figures = {**sign.figures, **compact({"span_seconds": span})}
            yield mechanism.id, replace(
                sign, explanation=f"by what the report says in its own words: {sign.explanation}",
                grade="hearsay", confidence=CONFIDENCE["hearsay"], figures=figures, episodes=(),
            )  # fmt: skip
    yield from _same_start(view.reading.hearsay)


def _same_start(said: Sequence[Hearsay]) -> Iterator[tuple[str, Sign]]:
    """Requests that all start at one depth and prefill far more than that."""
    requests = [h for h in said if h.kind == "request" and h.fields.get("span_start")]
    starts = {h.fields["span_start"] for h in requests}
    n = [h.fields.get("span_tokens") or 0 for h in requests]
    if len(requests) >= _ROW and len(starts) == 1 and min(n) > starts.copy().pop():
        depth = starts.pop()
        yield "shallow-disk-checkpoint", _hearsay(
            f"{len(requests)} requests start at {depth} tokens and compute the rest again",
            [h.line for h in requests], {"disk_hit_tokens": depth, "reprefill_tokens": sum(n)}, avoidable_tokens=0,
        )  # fmt: skip


def _commons(view: View, said: Sequence[Hearsay]) -> Iterator[tuple[str, Sign]]:
    """`common=` figures in a row: pinned, or creeping forward between expensive prefills."""
    misses = [h for h in said if h.fields.get("common") is not None and h.fields.get("live") is None]
    commons = list(dict.fromkeys(int(h.fields["common"]) for h in misses))
    prefills = [h for h in said if h.kind == "prefill" and h.fields.get("prefill_s")]
    seconds = total_s(h.fields["prefill_s"] for h in prefills)
    lines = [h.line for h in (*misses, *prefills)]
    times = max((int(h.fields.get("times") or 1) for h in misses), default=0)
    if len(commons) == 1 and (times >= _ROW or len(misses) >= _ROW):
        figures: dict[str, Any] = {
            "pinned_common_tokens": commons[0],
            "turns": max(times, len(misses)),
            "prefill_seconds": seconds,
        }
        yield (
            "client-transient-tail",
            _hearsay(f"C stays at {commons[0]}", lines, figures, avoidable_s=seconds),
        )
    elif len(commons) >= _ROW and commons == sorted(commons):
        steps = [b - a for a, b in pairwise(commons)]
        figures = {"common_tokens": commons, "boundary_step_tokens": steps, "prefill_seconds": seconds}
        yield (
            "client-history-rewrite",
            _hearsay("C creeps forward between expensive misses", lines, figures, avoidable_s=seconds),
        )


def _in_vain(said: Sequence[Hearsay]) -> Iterator[tuple[str, Sign]]:
    """Prefills of about one length in a row, each said to have lost its client."""
    lost = [h for h in said if h.kind == "prefill" and h.fields.get("prefill_s") and _GONE.search(h.text)]
    seconds = [h.fields["prefill_s"] for h in lost]
    if not lost:
        return
    lines, figures = [h.line for h in lost], {"attempts": len(lost), "prefill_seconds": total_s(seconds)}
    yield (
        "client-gave-up",
        _hearsay(
            f"{plural(len(lost), 'prefill')} lost the client", lines, figures, avoidable_s=total_s(seconds)
        ),
    )
    if len(lost) >= _ROW and max(seconds) <= 1.1 * min(seconds):
        text = f"{len(lost)} prefills of one length follow each other, each in vain"
        yield "retry-storm", _hearsay(text, lines, figures, avoidable_s=total_s(seconds[1:]))


def _outcomes(said: Sequence[Hearsay]) -> Iterator[tuple[str, Sign]]:
    """A table of prompt lengths and HTTP answers: beyond some length the prefill fails."""
    rows = [h for h in said if h.kind == "outcome" and h.fields.get("tokens") is not None]
    good = [h.fields["tokens"] for h in rows if h.fields.get("ok")]
    bad = [h for h in rows if h.fields.get("ok") is False]
    failing = [
        h
        for h in bad
        if (h.fields.get("status") or 0) >= 500 or PREFILL.search(str(h.fields.get("error") or ""))
    ]
    if not failing:
        return
    first = min(h.fields["tokens"] for h in failing)
    limit = max((t for t in good if t < first), default=None)
    yield "engine-prefill-failure", _hearsay(
        f"prompts of {first} tokens and more fail", [h.line for h in rows],
        {"limit_tokens": limit, "first_failing_tokens": first, "failures": len(failing)}, avoidable_tokens=first,
    )  # fmt: skip


def _errors(said: Sequence[Hearsay]) -> Iterator[tuple[str, Sign]]:
    """Errors of an engine or of an HTTP answer, quoted in prose."""
    for one in said:
        text = str(one.fields.get("message") or one.text)
        if one.kind != "error" or _NOTICE.search(one.text):
            continue
        name = None
        if _MEMORY.search(text) and "size overflow" not in text:
            name = "out-of-memory"
        elif PREFILL.search(text):
            name = "engine-prefill-failure"
        elif one.fields.get("engine") and _PAIR.search(text) and "failed" in text:
            name = "distributed-failure"
        if name is not None:
            position = {
                "position_tokens": one.fields.get("position_tokens"),
                "http_status": one.fields.get("status"),
            }
            yield name, _hearsay("an error text is quoted", [one.line], position, avoidable_tokens=0)
