"""Names of servers to compare: a profile, a policy, or several parts joined by `+`.

ds4-2026-09-reuse      reuse-aware+slots=3      ds4-2026-08+rewind-in-ring+kv_disk_space_mb=600      clairvoyant
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from parser.errors import UsageError
from replay.config import ServerConfig
from replay.plugins import names
from replay.profiles import PROFILES

_SEAMS: Final = ("scheduler", "reuse", "store")
_NUMBERS: Final = frozenset(
    part.name for part in fields(ServerConfig) if part.name not in ("generation", "sizes", "family", *_SEAMS)
)


def options_of(name: str, base: Mapping[str, Any]) -> dict[str, Any]:
    """Options for `replay.study.Study.run`: those of `base` with what `name` says on top."""
    options = dict(base)
    for part in name.split("+"):
        options |= _part(part.strip(), name)
    return options


def _part(part: str, whole: str) -> dict[str, Any]:
    key, equals, value = part.partition("=")
    if equals:
        return _option(key.replace("-", "_"), value, whole)
    if part in PROFILES:
        return {"server": part}
    head = part.partition(":")[0]
    seams = [seam for seam in _SEAMS if head in names(seam)]
    if part.endswith(".py") or ".py:" in part:
        seams = ["scheduler"]
    if not seams:
        known = [*PROFILES, *(name for seam in _SEAMS for name in names(seam))]
        raise UsageError(
            "E-VARIANT", f"{part!r} is no profile and no policy", hint=f"one of {', '.join(known)}"
        )
    return dict.fromkeys(seams, part)


def _option(key: str, value: str, whole: str) -> dict[str, Any]:
    if key in (*_SEAMS, "family", "server"):
        return {key: value}
    if key == "slots" and value == "single":
        return {key: value}
    if key == "kv_disk" and value in ("0", "1"):
        return {key: value == "1"}
    if key in _NUMBERS and value.isdecimal() and len(value) <= 12:
        return {key: int(value)}
    raise UsageError(
        "E-VARIANT", f"cannot use {key}={value} in {whole!r}", hint="a number for a server option"
    )
