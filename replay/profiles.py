"""Server profiles: one choice of generation, chunk and policies under a name of `docs/outputs.md`.

What is verified by what: `ds4-2026-05` and `ds4-2026-08` by captures of those builds, the reuse-aware score
by captures of a 2026-08 build that carries it; `ds4-2026-07` and the image rules of the September profiles
rest on the numbered rules and on short excerpts (`docs/profiles.md`).
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

from parser.errors import UsageError
from replay.config import Generation, ServerConfig

_MAY: Final = Generation(
    consumes=True, resume_min=32, exact_retry=False, evicts_before=False, superseded=False
)
_JULY: Final = Generation(consumes=True, exact_retry=False)
_AUGUST: Final = Generation()
_VISION: Final = Generation(images=True, polls=True)
_REUSE: Final = Generation(images=True, polls=True, probe=True, qwen_tools_key=True)

PROFILES: Final[dict[str, ServerConfig]] = {
    "ds4-2026-05": ServerConfig(generation=_MAY, prefill_chunk=2048),
    "ds4-2026-07": ServerConfig(generation=_JULY, slots=2),
    "ds4-2026-08": ServerConfig(generation=_AUGUST, slots=2),
    "ds4-2026-09-vision": ServerConfig(generation=_VISION, slots=2, scheduler="visible-key"),
    "ds4-2026-09-reuse": ServerConfig(generation=_REUSE, slots=2, scheduler="reuse-aware"),
}


def profile(name: str) -> ServerConfig:
    """The configuration that a profile stands for; UsageError lists the names if there is no such profile."""
    found = PROFILES.get(name)
    if found is None:
        raise UsageError("E-PROFILE", f"no server profile {name!r}", hint=f"one of {', '.join(PROFILES)}")
    return found


def override(config: ServerConfig, **options: Any) -> ServerConfig:
    """`config` with the options that are given; None means "not given", so use `replace` for a single slot."""
    known = {part.name for part in fields(ServerConfig)}
    unknown = sorted(set(options) - known)
    if unknown:
        raise UsageError("E-CONFIG", f"no option {unknown[0]!r}", hint=f"one of {', '.join(sorted(known))}")
    return replace(config, **{name: value for name, value in options.items() if value is not None})
