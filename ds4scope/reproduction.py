"""A reproduction for an issue: the smallest workload that still shows a mechanism, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from replay.config import ServerConfig
    from replay.outcome import Outcome
    from replay.study import Study
    from replay.workload import Workload

#: workloads tried for a report; `ds4scope shrink` tries more
TRIES: Final = 60
#: a larger workload is not shrunk within a report
MOST_REQUESTS: Final = 120


def shows(mechanism: str, study: Study, options: Mapping[str, Any]) -> Callable[[Workload], bool]:
    """Whether the replay of a workload, printed as a log and read again, shows the mechanism."""
    from ds4scope.triaged import mechanisms_of, reading_of

    return lambda workload: mechanism in mechanisms_of(reading_of(replace(study, workload=workload), options))


#: options of the disk cache that decide what is written and found
_DISK: Final = (
    "kv_disk_space_mb",
    "kv_cache_min_tokens",
    "kv_cache_cold_max_tokens",
    "kv_cache_continued_interval_tokens",
    "kv_cache_boundary_trim_tokens",
    "kv_cache_boundary_align_tokens",
)


def server_flags(config: ServerConfig) -> str:
    """The server's own options that give this configuration."""
    flags = [] if config.slots is None else [f"--batched-session {config.slots}"]
    flags += [f"-c {config.ctx}", f"--prefill-chunk {config.chunk}"]
    if config.kv_disk:
        disk = [f"--{name.replace('_', '-')} {getattr(config, name)}" for name in _DISK]
        flags += ["--kv-disk-dir DIR", *disk]
    return " ".join(flags)


def steps(workload: Workload, config: ServerConfig, outcome: Outcome) -> list[str]:
    """What to send to which server, in which order, and what happens: lines of Markdown."""
    from parser.sanitise import sanitise

    served = {row.request: row for row in outcome.requests}
    lines = [f"Server ({config.family}): `{server_flags(config)}`", ""]
    lines += ["Segments (tokens that always stand together):", ""]
    lines += [f"- `{name}`: {segment.tokens} tokens" for name, segment in workload.segments.items()]
    lines += [
        "",
        "| send | after | prompt | tokens | reply | then: source | reused | replaced |",
        "|---" * 8 + "|",
    ]
    for asked in workload.requests:
        row = served[asked.request]
        prompt = " + ".join(f"`{piece.segment}`" for piece in asked.prompt)
        waits = f"request {asked.after}, {asked.think_s:g} s" if asked.after is not None else "-"
        lines.append(
            f"| {asked.request} | {waits} | {prompt} | {asked.prompt_tokens} | {asked.generated} | {row.source} "
            f"| {row.cached_tokens} | {row.evicted_live_tokens} |"
        )
    return [sanitise(line) for line in lines]


def reproduction(
    mechanism: str, inputs: Sequence[str], reading_options: Mapping[str, Any]
) -> list[str] | None:
    """Lines of Markdown, or None where the input does not allow a replay that shows the mechanism."""
    from parser.errors import Ds4scopeError
    from parser.reading import read
    from replay.server import replay
    from replay.shrink import shrink
    from replay.study import study_of

    try:
        study = study_of(read(inputs, **reading_options))
        holds = shows(mechanism, study, {})
        if len(study.workload.requests) > MOST_REQUESTS or not holds(study.workload):
            return None
        found = shrink(study.workload, holds, most=TRIES)
        configs = study.configs()
        return steps(found.workload, configs[0], replay(found.workload, configs, study.costs))
    except Ds4scopeError:
        return None  # the report says under `proof` why nothing was replayed
