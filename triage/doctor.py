"""Doctor: which options of the server hurt this workload, each with the replayed gain of changing it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from parser.reading import Reading
from triage.evidence import plural
from triage.kvdir import Checkpoint

if TYPE_CHECKING:
    from replay.outcome import Outcome
    from replay.study import Study

#: the server's own defaults (R4.2), where the log does not say
DEFAULTS: Final = {
    "ctx": 32_768,
    "kv_disk_space_mb": 4_096,
    "kv_cache_min_tokens": 512,
    "kv_cache_cold_max_tokens": 30_000,
    "kv_cache_continued_interval_tokens": 10_000,
    "kv_cache_boundary_align_tokens": 2_048,
}
_SAFETY: Final = 1.01  # R4.20: what the server adds to an estimated size
_LARGE_BUDGET: Final = 4


@dataclass(frozen=True, slots=True)
class Advice:
    """One option: its value now, what to try, why; and what a replay says it saves (None: not replayed)."""

    option: str
    now: str
    tried: str
    because: str
    options: Mapping[str, Any] = field(default_factory=dict)
    tokens_saved: int | None = None
    seconds_saved: float | None = None
    misses_saved: int | None = None
    note: str = ""

    @property
    def replayed(self) -> bool:
        """A replay says what it saves."""
        return self.tokens_saved is not None

    @property
    def helps(self) -> bool:
        """The replay saves something and costs no waiting; what was not replayed may help."""
        if self.seconds_saved is not None and round(self.seconds_saved, 1) != 0:
            return self.seconds_saved > 0
        return not self.replayed or (self.tokens_saved or 0) > 0 or (self.misses_saved or 0) > 0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Advice, best gain first; `no_gain` was tried and does not help this workload; `fidelity` is the share of
    requests that the replay reproduces."""

    config: Mapping[str, Any]
    advice: tuple[Advice, ...]
    no_gain: tuple[Advice, ...]
    fidelity: float | None
    directory: Mapping[str, Any] | None = None
    unsaid: tuple[str, ...] = ()


def diagnose(reading: Reading, checkpoints: Sequence[Checkpoint] | None = None) -> Diagnosis:
    """Look at the configuration, propose changes, replay each."""
    config = dict(DEFAULTS) | dict(reading.server.config)
    unsaid = tuple(name for name in DEFAULTS if name not in reading.server.config)
    proposed = [*_disk(reading, config), *_cold_max(reading, config), *_interval(reading, config)]
    proposed += [*_budget(reading, config), *_slots(reading), *_alignment(reading, config)]
    fidelity, proved = _proved(reading, proposed)
    ranked = sorted(proved, key=lambda a: (-(a.seconds_saved or 0.0), -(a.tokens_saved or 0), a.option))
    helping = tuple(a for a in ranked if a.helps)
    idle = tuple(a for a in ranked if not a.helps)
    return Diagnosis(config, helping, idle, fidelity, _directory(checkpoints, config), unsaid)


def _stored(reading: Reading) -> list[Any]:
    return list(reading.events.rows("kv_stored")) if reading.events else []


def mib_per_token(reading: Reading) -> float | None:
    """MiB a token of the largest checkpoint in the log (the fixed part weighs least there)."""
    sized = [(e.get("tokens"), e.get("size_mib")) for e in _stored(reading)]
    known = [(tokens, mib) for tokens, mib in sized if tokens and mib]
    return max(known)[1] / max(known)[0] if known else None


def _largest(reading: Reading) -> int:
    return max((r.live_after or r.prompt_tokens or 0 for r in reading.requests), default=0)


def _disk(reading: Reading, config: Mapping[str, Any]) -> Iterator[Advice]:
    if config.get("kv_disk") is False or (not config.get("kv_disk") and not _stored(reading)):
        lost = sum(r.common is not None for r in reading.requests)
        if lost:
            yield Advice(
                "--kv-disk-dir", "off", "on, 8192 MiB", f"{plural(lost, 'miss', 'misses')} with nothing on disk to fall back on",
                {"kv_disk": True, "kv_disk_space_mb": 8_192},
            )  # fmt: skip


def _cold_max(reading: Reading, config: Mapping[str, Any]) -> Iterator[Advice]:
    limit = config["kv_cache_cold_max_tokens"]
    above = [r for r in reading.requests if r.source == "cold" and (r.prompt_tokens or 0) > limit]
    if above and config.get("kv_disk"):
        longest = max(r.prompt_tokens or 0 for r in above)
        tried = max(config["ctx"], longest)  # a context that no line names is at least the longest prompt
        longer = "prompt is" if len(above) == 1 else "prompts are"
        yield Advice(
            "--kv-cache-cold-max-tokens", str(limit), str(tried),
            f"{len(above)} cold {longer} longer than {limit}: no cold checkpoint was written",
            {"kv_cache_cold_max_tokens": tried},
        )  # fmt: skip


def _interval(reading: Reading, config: Mapping[str, Any]) -> Iterator[Advice]:
    """A ladder of continued checkpoints costs the sum of its steps (R5.2): n(n+1)/2 of the first."""
    each, step = mib_per_token(reading), config["kv_cache_continued_interval_tokens"]
    if each is None or not step or not config.get("kv_disk"):
        return
    rungs = _largest(reading) // step
    ladder = each * step * rungs * (rungs + 1) / 2
    if ladder > config["kv_disk_space_mb"]:
        yield Advice(
            "--kv-cache-continued-interval-tokens", str(step), str(4 * step),
            f"one conversation's ladder of {rungs} checkpoints needs {ladder:,.0f} MiB, "
            f"the budget is {config['kv_disk_space_mb']:,} MiB",
            {"kv_cache_continued_interval_tokens": 4 * step},
        )  # fmt: skip
    elif any(
        r.disk_hit_tokens and r.common and r.common - r.disk_hit_tokens > step // 2 for r in reading.requests
    ):
        yield Advice(
            "--kv-cache-continued-interval-tokens", str(step), str(step // 2),
            "disk hits end far below what prompt and live state had in common",
            {"kv_cache_continued_interval_tokens": step // 2},
        )  # fmt: skip


def _budget(reading: Reading, config: Mapping[str, Any]) -> Iterator[Advice]:
    each, budget = mib_per_token(reading), config["kv_disk_space_mb"]
    if not config.get("kv_disk"):
        return
    skipped = (
        sum("exceeds budget" in e.text for e in reading.events.rows("kv_skipped")) if reading.events else 0
    )
    evicted = reading.counts.get("kv_evicted", 0)
    largest = (each or 0.0) * _largest(reading) * _SAFETY
    if skipped or largest > budget:
        because = (
            f"one live state needs up to {largest:,.0f} MiB" if largest else "checkpoints exceed the budget"
        )
    elif evicted > len(_stored(reading)) // 2:
        because = f"{evicted} checkpoints were deleted for room, {len(_stored(reading))} were written"
    else:
        return
    if skipped:
        because += f"; {skipped} stores were skipped for it"
    larger = max(_LARGE_BUDGET * budget, int(_LARGE_BUDGET * largest))
    yield Advice("--kv-disk-space-mb", str(budget), str(larger), because, {"kv_disk_space_mb": larger})


def _slots(reading: Reading) -> Iterator[Advice]:
    slots = reading.server.slots
    names = {r.conversation for r in reading.requests if r.conversation is not None}
    returning = [n for n in names if sum(r.conversation == n for r in reading.requests) > 1]
    if slots is None or len(returning) <= slots or len(returning) > 64:
        return
    yield Advice(
        "--batched-session", str(slots), str(len(returning)), f"{len(returning)} conversations come back again and again",
        {"slots": len(returning)}, note=_slot_memory(reading, slots),
    )  # fmt: skip


def _slot_memory(reading: Reading, slots: int) -> str:
    mib = reading.server.config.get("context_mib")
    return (
        f"each slot takes {mib:,.0f} MiB of context buffers"
        if mib
        else "the start line `context buffers` says what a slot takes"
    )


def _alignment(reading: Reading, config: Mapping[str, Any]) -> Iterator[Advice]:
    align = config["kv_cache_boundary_align_tokens"]
    cold = [e for e in _stored(reading) if e.get("reason") == "cold" and (e.get("trimmed") or 0) >= 64]
    cut = [e for e in cold if (e.get("tokens") or 1) % align == 0]
    if cut and align > 1:
        lost = sum(e.get("trimmed") for e in cut)
        yield Advice(
            "--kv-cache-boundary-align-tokens", str(align), "64", f"{lost} tokens behind {len(cut)} cold checkpoints were left out",
            {"kv_cache_boundary_align_tokens": 64},
        )  # fmt: skip


def _proved(reading: Reading, proposed: Sequence[Advice]) -> tuple[float | None, list[Advice]]:
    """Each advice with what a replay of the log's workload says; without one where the log does not allow it."""
    from parser.errors import Ds4scopeError
    from replay.study import study_of

    if not any(r.prompt_tokens is not None for r in reading.requests):
        return None, [replace(a, note="not replayed: no request is complete in this input") for a in proposed]
    try:
        study = study_of(reading)
        base = study.run()
        compared = study.fidelity(base)
        return (compared.fraction if compared else None), [_gain(a, study, base) for a in proposed]
    except Ds4scopeError as error:
        return None, [replace(a, note=f"not replayed: {error.message}") for a in proposed]


def _gain(advice: Advice, study: Study, base: Outcome) -> Advice:
    with_it = study.run(**advice.options)
    before, after = base.totals, with_it.totals
    seconds = (
        before.latency_s_sum - after.latency_s_sum
        if before.latency_s_sum is not None and after.latency_s_sum is not None
        else None
    )
    return replace(
        advice,
        tokens_saved=before.prefilled_tokens - after.prefilled_tokens,
        misses_saved=before.live_misses - after.live_misses,
        seconds_saved=seconds,
    )


def _directory(checkpoints: Sequence[Checkpoint] | None, config: Mapping[str, Any]) -> dict[str, Any] | None:
    if checkpoints is None:
        return None
    valid = [c for c in checkpoints if c.valid]
    mib = sum(c.file_bytes for c in valid) / 2**20
    reasons = sorted({c.reason for c in valid})
    return {
        "files": len(checkpoints),
        "valid": len(valid),
        "mib": round(mib, 2),
        "budget_mib": config["kv_disk_space_mb"],
        "never_hit": sum(c.hits == 0 for c in valid),
        "longest_tokens": max((c.tokens for c in valid), default=None),
        "larger_ctx": sum(c.ctx > config["ctx"] for c in valid),
        "models": len({(c.model, c.quant) for c in valid}),
        "by_reason": {reason: sum(c.reason == reason for c in valid) for reason in reasons},
    }
