"""Which build printed a log, how many slots, which family: from shapes of lines, never from dates."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from parser.event import Event
from parser.eventlog import EventLog
from parser.hearsay import Hearsay
from parser.reading import Evidence, Server
from parser.runs import MOST_SLOTS, Run
from parser.trace import TraceRequest

MAY, JULY, AUGUST = "ds4-2026-05", "ds4-2026-07", "ds4-2026-08"
VISION, REUSE = "ds4-2026-09-vision", "ds4-2026-09-reuse"
PROFILES: Final = (MAY, JULY, AUGUST, VISION, REUSE)
_SEPTEMBER: Final = (VISION, REUSE)
_SLOTS: Final = (JULY, AUGUST, *_SEPTEMBER)
_EARLY: Final = (MAY, JULY, AUGUST)
_LATE: Final = (AUGUST, *_SEPTEMBER)
#: bytes a token of a DeepSeek V4 Flash checkpoint, and the constant part (R4.4); text adds about 4.3 a token
_V4_PER_TOKEN: Final = 13_764
_V4_FIXED: Final = 23_995_840


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape of a line that only some builds print. `weight` is 3 for a template, 1 for a habit."""

    kind: str
    test: Callable[[Event], bool]
    profiles: tuple[str, ...]
    because: str
    weight: int = 3


def _has(name: str) -> Callable[[Event], bool]:
    return lambda event: event.get(name) is not None or name in event.extra


def _lacks(name: str, *, besides: str | None = None) -> Callable[[Event], bool]:
    return lambda event: event.get(name) is None and (besides is None or event.get(besides) is not None)


def _rule(*names: str) -> Callable[[Event], bool]:
    return lambda event: event.rule in names


def _error(text: str) -> Callable[[Event], bool]:
    return lambda event: event.get("error") == text


def _default_chunk(event: Event) -> bool:
    return event.rule == "context" and event.get("prefill_chunk") == 2048 and (event.get("ctx") or 0) > 4096


def _no_half_life(event: Event) -> bool:
    return event.rule == "kv_disk" and event.get("align") is not None and event.get("hit_half_life_s") is None


#: log-formats: the version column of each template
SHAPES: Final = (
    Shape("slot_evicting", _rule("evicting"), (REUSE,), "`slot N: request reuses nothing` (RT1)", 6),
    Shape("live_miss", _has("vision"), _SEPTEMBER, "a miss line with `vision=` (LC3b)"),
    Shape("live_miss", _lacks("vision", besides="reason"), _EARLY, "a miss line without `vision=` (LC3a)"),
    Shape("multimodal_hit", _rule("hit"), _SEPTEMBER, "`multimodal live kv hit` (LC4)"),
    Shape("vision_cache", _rule("hit", "encoded"), _SEPTEMBER, "`vision embedding` lines (MM1, MM2)"),
    Shape("live_rewind", _rule("refused"), _SEPTEMBER, "`live prefix rewind … requires rebuild` (LC2)"),
    Shape("live_rewind", _rule("rewound"), _LATE, "`rewound … live prefix` (LC1, since 08-04)"),
    Shape("stream_error", _rule("disconnected"), _SEPTEMBER, "`client disconnected` (SE9)"),
    Shape("stream_error", _rule("final"), _EARLY, "`final stream failed` (SE8)"),
    Shape("tool_repair", _rule("incomplete"), _SEPTEMBER, "`incomplete … tool call: stop=` (TC9)"),
    Shape("tool_repair", _rule("recovered"), _LATE, "`recovered a complete tool call` (TC1, since 08-04)"),
    Shape("tool_repair", _rule("forced_close"), (MAY, JULY), "`forced </think>` (until 08-04)"),
    Shape("tool_calls", _has("raw_dsml"), (MAY,), "`raw_dsml=` (until 07-18)"),
    Shape("tool_calls", _has("raw_tool_text"), _SLOTS, "`raw_tool_text=` (since 07-18)"),
    Shape("kv_hit", _has("consumed"), (MAY, JULY), "a hit that says `consumed` (until 08-04)"),
    Shape("kv_hit", lambda e: (e.get("quant") or 2) not in (2, 4), _SEPTEMBER, "`quant=` not 2 or 4"),
    Shape("kv_evicted", _lacks("reason", besides="hits"), (MAY,), "an evicted line without `reason=`"),
    Shape("kv_stored", _lacks("key", besides="save_ms"), (MAY,), "a stored line without `key=`"),
    Shape("shutdown", lambda e: e.get("which") == "current", (MAY,), "`persisting current` (until 07-18)"),
    Shape("shutdown", lambda e: e.get("which") == "resident", _SLOTS, "`persisting resident` (since 07-18)"),
    Shape("startup", _rule("batched", "sessions"), _SLOTS, "batched mode (since 07-18)"),
    Shape("startup", _no_half_life, (MAY,), "the disk cache line has no `hit_half_life` (until 05-15)"),
    Shape("startup", _default_chunk, (MAY,), "`prefill_chunk=2048`, the default until 05-23", 1),
    Shape("finish", _error("client disconnected"), _SEPTEMBER, '`error="client disconnected"`'),
    Shape("finish", _error("client stream write failed"), _EARLY, '`error="client stream write failed"`'),
)
_BY_KIND: Final = {
    kind: [shape for shape in SHAPES if shape.kind == kind] for kind in {s.kind for s in SHAPES}
}


#: kinds that look alike in all builds
_PLAIN: Final = frozenset({"prompt_start", "prefill_chunk", "prompt_done", "decoding", "decode_batch"})


@dataclass(slots=True)
class Shapes:
    """Collects what shapes of lines tell; `feed` each event that is not bulk, in file order."""

    seen: dict[Shape, Evidence] = field(default_factory=dict)
    open: dict[str, list[Shape]] = field(default_factory=lambda: {k: list(v) for k, v in _BY_KIND.items()})
    told: set[str] = field(default_factory=set)
    families: dict[str, Evidence] = field(default_factory=dict)
    most_batched: int = 0  # requests in one decode batch
    most_slots: int = 0  # highest slot that an RT1 line names, and one
    misses: int = 0
    evict_stores: int = 0
    long_hits: int = 0
    cold_max: int = 30_000

    def feed(self, event: Event) -> None:
        """One event."""
        kind = event.kind
        if kind in _PLAIN:
            return
        for shape in self.open.get(kind, ()):
            if shape.test(event):
                self.seen[shape] = Evidence("build", shape.because, "shape", event.line)
                self.open[kind] = [one for one in self.open[kind] if one is not shape]
        self._count(event)
        if kind not in self.told:
            self._family(event)

    def count_batches(self, block: EventLog) -> None:
        """BT1 lines: a batch of k is k slots at least."""
        if block.counts.get("decode_batch"):
            most = block.frame("decode_batch")["count"].max()
            self.most_batched = max(self.most_batched, most if isinstance(most, int) else 0)

    def _family(self, event: Event) -> None:
        family = family_of(event)
        if family is None:
            return
        if event.kind == "kv_stored":
            self.told.add(event.kind)  # one file's size is as good as a thousand
        if family[0] not in self.families:
            self.families[family[0]] = Evidence(f"family={family[0]}", family[1], "shape", event.line)

    def _count(self, event: Event) -> None:
        if event.kind == "live_miss":
            self.misses += 1
        elif event.kind == "kv_stored" and event.get("reason") == "evict":
            self.evict_stores += 1
        elif event.kind == "kv_hit" and not event.get("consumed"):
            self.long_hits += (event.get("tokens") or 0) > self.cold_max > 0
        elif event.kind == "slot_evicting":
            self.most_slots = max(self.most_slots, (event.get("slot") or 0) + 1)
        elif event.rule == "kv_disk" and event.get("cold_max") is not None:
            self.cold_max = event.get("cold_max")


def family_of(event: Event) -> tuple[str, str] | None:
    """The model family that a line betrays, and how."""
    if event.kind == "live_rewind" and event.get("model") == "GLM":
        return "glm", "`rewound GLM live prefix`"
    if event.kind == "tool_repair" and event.get("model") in ("GLM", "DeepSeek"):
        return ("glm" if event.get("model") == "GLM" else "deepseek-v4"), "the model named by a tool line"
    if event.rule == "no_checkpoints":
        return "glm", "`session checkpoints are not implemented for this model`"
    if event.rule == "context" and event.get("raw_kv_rows") is not None:
        return _by_rows(event.get("raw_kv_rows"), event.get("compressed_kv_rows") or 0, event.get("ctx") or 0)
    if event.kind in ("startup", "foreign") and event.text.startswith("ds4"):
        return _by_name(event.text[:400])
    return _by_size(event) if event.kind == "kv_stored" else None


def _by_rows(raw: int, compressed: int, ctx: int) -> tuple[str, str] | None:
    if raw == 0 and compressed == ctx:
        return "glm", "no raw window, one row a token (`raw_kv_rows=0`)"
    if raw and ctx and abs(compressed - ctx / 4) <= 64:
        return "deepseek-v4", "a raw window and a compressed row per four tokens"
    return None


def _by_name(text: str) -> tuple[str, str] | None:
    low = text.lower()
    for word, family in (("deepseek", "deepseek-v4"), ("glm", "glm"), ("qwen", "qwen-next")):
        if word in low:
            return family, "the model named by an engine line"
    return None


def _by_size(event: Event) -> tuple[str, str] | None:
    """A checkpoint's bytes a token (R4.4); only for lengths at which text and tool map do not blur it."""
    size, tokens = event.get("size_mib"), event.get("tokens")
    if size is None or not tokens or tokens < 4096:
        return None
    per_token = (size * 2**20 - _V4_FIXED) / tokens
    if _V4_PER_TOKEN <= per_token <= _V4_PER_TOKEN + 10:
        return "deepseek-v4", "checkpoint files of 22.9 MiB and 13.4 KiB a token"
    return None


# -- the verdict ---------------------------------------------------------------------------------------------


def server_of(
    shapes: Shapes,
    runs: Sequence[Run],
    *,
    rule: str | None = None,
    overlap: int = 0,
    hearsay: Iterable[Hearsay] = (),
    trace: Iterable[TraceRequest] = (),
) -> Server:
    """The server of the whole input. `rule` is the scheduler that slot inference found the log to follow,
    `overlap` the most requests that ran at once."""
    evidence = list(shapes.seen.values())
    config: dict[str, Any] = {}
    for run in runs:
        config |= run.config
        evidence += run.evidence
    said = _options(hearsay)
    evidence += said.values()
    for name, one in said.items():
        config.setdefault(name, _value(one))
    slots = _slots(runs, shapes, overlap, config, evidence)
    profile, sure = _profile(shapes, rule, evidence)
    if rule is not None and slots != 1:
        config["scheduler"] = "common-prefix" if rule == "old" else "reuse-aware"
    family = _family(shapes, trace, evidence) or _told_family(hearsay, evidence)
    return Server(profile, sure, slots, family, config, tuple(evidence))


def _profile(shapes: Shapes, rule: str | None, evidence: list[Evidence]) -> tuple[str | None, float]:
    votes = dict.fromkeys(PROFILES, 0.0)
    for shape in shapes.seen:
        for name in shape.profiles:
            votes[name] += shape.weight
    if shapes.long_hits:
        evidence.append(Evidence("build", "hits longer than cold_max that are not consumed", "shape"))
        for name in _LATE:
            votes[name] += 2
    if shapes.evict_stores and not shapes.misses:
        votes[MAY] += 1
    if rule == "new":
        votes[REUSE] += 0.5
        evidence.append(
            Evidence("scheduler", "empty slots are taken before live ones are overwritten", "inferred")
        )
    elif rule == "old":
        for name in PROFILES[:-1]:
            votes[name] += 0.5
    best = max(votes.values())
    if best == 0:
        return None, 0.0
    tied = [name for name in PROFILES if votes[name] == best]
    order = (AUGUST, VISION, JULY, REUSE, MAY)  # of equals the one most builds in use behave like
    name = min(tied, key=order.index)
    return name, round(min(0.98, 0.5 + best / 12) / len(tied), 2)


def _slots(
    runs: Sequence[Run], shapes: Shapes, overlap: int, config: dict[str, Any], evidence: list[Evidence]
) -> int | None:
    for run in reversed(runs):
        if run.slots is not None:
            grade = "start-line" if run.config.get("batched_session") else "shape"
            evidence.append(
                Evidence(f"slots={run.slots}", "start lines of the last run", grade, run.first_line)
            )
            return run.slots
    named = (max(run.persisted, default=-1) + 1 for run in runs)
    seen = (overlap, shapes.most_batched, shapes.most_slots, *named)
    least = max((count for count in seen if count <= MOST_SLOTS), default=0)
    option = config.get("batched_session")
    if isinstance(option, int) and least <= option <= MOST_SLOTS:
        evidence.append(Evidence(f"slots={option}", "an option somebody names", "option"))
        return option
    if least >= 2:
        evidence.append(Evidence(f"slots>={least}", "that many requests ran at once", "inferred"))
        return least
    return None


def _family(shapes: Shapes, trace: Iterable[TraceRequest], evidence: list[Evidence]) -> str | None:
    for record in trace:
        named = _by_name("ds4 " + (record.model or ""))
        if named is not None:
            evidence.append(Evidence(f"family={named[0]}", "the model named by the trace", "shape"))
            return named[0]
    if not shapes.families:
        return None
    evidence += shapes.families.values()
    return next(iter(shapes.families)) if len(shapes.families) == 1 else _strongest(shapes)


#: a report names its model: `Model: NAME` or a GGUF file
_MODEL: Final = re.compile(r"\bmodel\s*[:=]\s*[\w .-]{2,60}|[\w.-]{2,80}\.gguf\b", re.IGNORECASE)


def _told_family(hearsay: Iterable[Hearsay], evidence: list[Evidence]) -> str | None:
    """The family of the one model that a report's prose names; the weakest evidence there is."""
    told: dict[str, Evidence] = {}
    for one in hearsay:
        for said in _MODEL.findall(one.text[:4000]) if one.kind == "prose" else ():
            named = _by_name(said)
            if named is not None:
                why = "the report names the model"
                told.setdefault(named[0], Evidence(f"family={named[0]}", why, "option", one.line))
    evidence += told.values()
    return next(iter(told)) if len(told) == 1 else None


def _strongest(shapes: Shapes) -> str:
    """Words of the server before row counts and sizes."""
    worded = [
        name for name, one in shapes.families.items() if "`" in one.because and "rows" not in one.because
    ]
    return (worded or list(shapes.families))[0]


_OPTIONS: Final = {
    "--batched-session": "batched_session", "--ctx": "ctx", "-c": "ctx",
    "--kv-disk-space-mb": "kv_disk_space_mb", "--kv-disk-dir": "kv_disk",
    "--kv-cache-min-tokens": "kv_cache_min_tokens",
    "--kv-cache-cold-max-tokens": "kv_cache_cold_max_tokens",
    "--kv-cache-continued-interval-tokens": "kv_cache_continued_interval_tokens",
    "--kv-cache-boundary-trim-tokens": "kv_cache_boundary_trim_tokens",
    "--kv-cache-boundary-align-tokens": "kv_cache_boundary_align_tokens",
    "--prefill-chunk": "prefill_chunk", "--mixed-prefill-quantum": "mixed_prefill_quantum",
    "--mtp": "mtp", "--vision": "vision",
}  # fmt: skip


def _options(hearsay: Iterable[Hearsay]) -> dict[str, Evidence]:
    """Options of command lines and prose: weaker than start lines, and named as such."""
    found: dict[str, Evidence] = {}
    for one in hearsay:
        name = _OPTIONS.get(str(one.fields.get("name", ""))) if one.kind == "option" else None
        if name is None or one.fields.get("negated"):
            continue
        value = one.fields.get("value")
        value = True if name in ("kv_disk", "mtp", "vision") else value
        if value is not None and name not in found:
            where = "a command line" if one.fields.get("where") == "command" else "the prose"
            found[name] = Evidence(f"{name}={value}", f"{where} says so", "option", one.line)
    return found


def _value(evidence: Evidence) -> Any:
    text = evidence.what.split("=", 1)[1]
    return int(text) if text.lstrip("-").isdigit() else text == "True" or text
