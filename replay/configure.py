"""The configuration that a replay runs under: options given, else the log's start lines, else the profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from statistics import median
from typing import Any, Final

from parser.errors import UsageError
from parser.reading import Reading, ServerRun
from replay.config import MIB, ServerConfig
from replay.profiles import override, profile
from replay.rope import length
from replay.sizes import BY_FAMILY, LinearSizes, Sizes
from replay.workload import Workload

#: what a log without any evidence is taken for
DEFAULT_PROFILE: Final = "ds4-2026-08"
#: more slots than any server has: each costs a replay time and memory
MOST_SLOTS: Final = 4096
#: `slots` of an option set: one slot without `--batched-session`
SINGLE: Final = "single"
#: options of the disk cache; a server that is named with one of them has the others at their defaults
DISK_OPTIONS: Final = (
    "kv_disk", "kv_disk_space_mb", "kv_cache_min_tokens", "kv_cache_cold_max_tokens",
    "kv_cache_continued_interval_tokens", "kv_cache_boundary_trim_tokens", "kv_cache_boundary_align_tokens",
)  # fmt: skip
_OPTIONS: Final = frozenset(part.name for part in fields(ServerConfig)) - {"slots", "generation", "sizes"}
#: a family's size rule that is further off than this from a log's own `size=` figures is not used
_SIZE_ERROR: Final = 0.01


def configs_of(reading: Reading | None, options: Mapping[str, Any], workload: Workload) -> list[ServerConfig]:
    """One configuration for each server process of the log (one if there is no log).

    `options` are `server` (a profile name), `slots` (a number or "single") and fields of `ServerConfig`; what
    is not in it is taken from the process's own start lines, then from the profile.
    """
    name = options.get("server") or (reading and reading.server.profile) or DEFAULT_PROFILE
    base = profile(name)
    runs: Sequence[ServerRun | None] = (reading.runs if reading is not None else None) or [None]
    said = {} if reading is None else dict(reading.server.config)
    return [
        _config(base, reading, {**said, **(run.config if run else {})}, run, options, workload)
        for run in runs
    ]


def _config(
    base: ServerConfig, reading: Reading | None, said: Mapping[str, Any], run: ServerRun | None,
    options: Mapping[str, Any], workload: Workload,
) -> ServerConfig:  # fmt: skip
    from_log = {name: value for name, value in said.items() if name in _OPTIONS}
    from_log.setdefault("kv_disk", _has_disk(reading, run))
    if options.get("server"):  # another server is asked for: the policy that the log shows is not its own
        for seam in ("scheduler", "reuse", "store"):
            from_log.pop(seam, None)
        if any(name in options for name in DISK_OPTIONS):  # and its disk is described: whole, by its defaults
            for name in DISK_OPTIONS:
                from_log.pop(name, None)
    elif _rewinds(reading):
        from_log.setdefault("reuse", "rewind-to-common")
    if "kv_disk_space_mb" not in said and reading is not None:
        from_log["kv_disk_space_mb"] = _budget_mb(reading, workload, base.kv_disk_space_mb)
    from_log["ring_rows"] = said.get("raw_kv_rows") or None
    from_log["exact_tool_replay"] = said.get("exact_dsml_tool_replay")
    family = options.get("family") or (reading and reading.server.family) or workload.family
    from_log.setdefault("ctx", workload.ctx or _room_for(workload, base.ctx))
    config = override(base, **{**from_log, "family": family})
    if reading is not None:
        config = replace(config, slots=_slots(reading, run), sizes=_sizes(reading, config, workload))
    given = {name: value for name, value in options.items() if name in _OPTIONS and name != "family"}
    config = override(config, **given)
    if options.get("slots") is not None:
        config = replace(config, slots=None if options["slots"] == SINGLE else int(options["slots"]))
    if (config.slots or 0) > MOST_SLOTS:
        hint = f"give --slots N, at most {MOST_SLOTS}"
        raise UsageError("E-SLOTS", f"{config.slots} slots are more than can be replayed", hint=hint)
    return config


def _room_for(workload: Workload, usual: int) -> int:
    """The context where nothing says it: the server's default, or what the longest request needs."""
    longest = max((a.prompt_tokens + length(a.reply) for a in workload.requests), default=0)
    return usual if longest < usual else -(-(longest + 1) // 4096) * 4096


def _has_disk(reading: Reading | None, run: ServerRun | None) -> bool | None:
    """With start lines: what they say. A log without them uses the disk if any of its lines does."""
    if reading is None or run is None:
        return None
    return False if run.started else any(reading.counts.get(kind) for kind in ("kv_stored", "kv_hit"))


def _budget_mb(reading: Reading, workload: Workload, usual: int) -> int:
    """Without start lines: at least what lay on the disk at once. Where the log deleted files for room, not much
    more; else the server's default, doubled until that fits."""
    log = reading.events
    now = most = sum(file.size_bytes for file in workload.files) / MIB
    for event in log.rows("kv_stored", "kv_evicted") if log is not None else ():
        size = event.get("size_mib") or 0.0
        now += size if event.kind == "kv_stored" else -size
        most = max(most, now)
    if reading.counts.get("kv_evicted"):
        step = 1024 if most > 1024 else 100
        return max(step, -(-int(most) // step) * step)
    while usual < most:
        usual *= 2
    return usual


def _rewinds(reading: Reading | None) -> bool:
    """The log shows a rewind to the middle of a prompt, which no ladder does (R7: only to its end)."""
    return reading is not None and any(
        request.source == "memory-rewind" and (request.prefilled_tokens or 0) > 1
        for request in reading.requests
    )


def _slots(reading: Reading, run: ServerRun | None) -> int | None:
    """`--batched-session` of this process; None for a server without it."""
    if run is not None and run.config.get("batched_session"):
        return int(run.config["batched_session"])
    slots = (run.slots if run is not None else None) or reading.server.slots or 1
    return slots if slots > 1 else None


def _sizes(reading: Reading, config: ServerConfig, workload: Workload) -> Sizes | None:
    """A straight line through the log's own file sizes where the family's rule does not fit them."""
    seen = sorted(
        {
            (store.tokens, store.size_mib * MIB - store.tokens * workload.bytes_per_token)
            for request in reading.requests
            for store in request.stores
            if store.size_mib and store.tokens
        }
    )
    rule = BY_FAMILY[config.family]
    if not seen or median(abs(rule(tokens) / size - 1) for tokens, size in seen) < _SIZE_ERROR:
        return None
    if seen[-1][0] <= seen[0][0] * 1.2:
        scale = median(size / rule(tokens) for tokens, size in seen)
        return LinearSizes(0.0, scale * rule(seen[0][0]) / seen[0][0])
    (low, small), (high, large) = seen[0], seen[-1]
    per_token = (large - small) / (high - low)
    return LinearSizes(max(0.0, small - per_token * low), per_token)


def as_json(config: ServerConfig) -> dict[str, Any]:
    """A configuration for machine-readable output; `slots` is "single" for a server without batching."""
    plain = {
        part.name: getattr(config, part.name) for part in fields(config) if part.name not in ("generation",)
    }
    plain["slots"] = SINGLE if config.slots is None else config.slots
    plain["prefill_chunk"] = config.chunk
    plain["ring_rows"] = config.ring
    if isinstance(config.sizes, LinearSizes):
        plain["sizes"] = {"fixed": round(config.sizes.fixed), "per_token": round(config.sizes.per_token, 3)}
    plain["generation"] = {
        part.name: getattr(config.generation, part.name) for part in fields(config.generation)
    }
    return plain
