"""Thresholds of the mechanisms: every number of `mechanisms.md`, each a default that a TOML file may change."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from math import isfinite
from pathlib import Path
from typing import Any

from parser.errors import UsageError

#: Looked for in the working directory and above it; the first that has a `[tool.ds4scope]` table counts.
CONFIG_NAMES = ("ds4scope.toml", "pyproject.toml")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Numbers of `docs/spec/mechanisms.md` (sections 3 and 4). Tokens, seconds, MiB or plain ratios."""

    head_tokens: int = 64  # 3.1.3: below, only the head of the chat template is shared
    large_tokens: int = 512  # 3.1.3: below, a miss is too small to matter (the store's own minimum)
    side_call_share: float = 1 / 3  # 3.1.3: a prompt below this share of L is a side call
    shared_prefix_tokens: int = 1024  # 3.1.5
    same_common_tokens: int = 2  # 3.1.5: "the same C"
    alike_share: float = 0.10  # 3.1.5: L and P alike
    pinned_misses: int = 3  # 3.1.5
    image_share: float = 0.8  # 3.1.6
    forced_low_tokens: int = -1  # 3.1.4: C-P' from
    forced_high_tokens: int = 16  # 3.1.4: ... to
    reply_slack_tokens: int = 8  # 3.1.7: |C-P'|
    unknown_reply_tokens: int = 4096  # 3.1.7: L-C, where P' is not known
    transient_tokens: int = 2048  # 3.1.8: "within the last user message"
    early_share: float = 0.5  # 3.1.9
    grown_share: float = 0.9  # 3.1.9, 3.1.11
    tail_share: float = 0.8  # 3.1.10
    shallow_tokens: int = 1024  # 3.2.5
    shallow_share: float = 0.05  # 3.2.5
    incoming_slack_tokens: int = 16  # 3.2.2
    trim_slack_tokens: int = 64  # 3.2.4
    trim_tokens: int = 64  # 4.5 alignment-loss
    restored_slack_tokens: int = 16  # "H equals an earlier L"
    idle_victim_s: float = 3600.0  # 4.1: ordinary replacement
    store_life_s: float = 60.0  # 4.6 store-then-evict
    store_life_requests: int = 2  # 4.6
    ladder_evictions: int = 3  # 4.6 nested-continued-ladder
    write_ratio: float = 3.0  # 4.6 write-amplification
    write_gib_per_hour: float = 20.0  # 4.6
    write_hour_min_s: float = 600.0  # a rate per hour needs at least this much log
    retry_attempts: int = 3  # 4.7 retry-storm
    retry_gap_s: float = 120.0
    retry_growth_tokens: int = 64
    stall_factor: float = 20.0  # 4.7 prefill-stall
    stall_s: float = 60.0
    suspended_s: float = 60.0  # 4.7 host-suspended
    stop_before_error_s: float = 30.0  # 4.7 server-stopped: "within seconds of errors"
    empty_turn_tokens: int = 5  # 4.8 lost-tool-turn
    slow_prefill_s: float = 60.0  # 4.9: a prefill that a person notices
    slow_batch_factor: float = 2.0  # 4.9: decode steps of several streams against one


def _table(path: Path) -> dict[str, Any] | None:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("E-CONFIG", f"cannot be read: {error}", path=str(path)) from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError("E-CONFIG", f"is no valid TOML: {error}", path=str(path)) from error
    table = document.get("tool", {})
    found = table.get("ds4scope") if isinstance(table, dict) else None
    return found if isinstance(found, dict) else None


def _number(name: str, value: Any, default: float, path: Path) -> float | int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise UsageError("E-CONFIG", f"[tool.ds4scope] {name} must be a number", path=str(path))
    return int(value) if isinstance(default, int) else float(value)


def from_table(table: dict[str, Any], path: Path) -> Thresholds:
    """Thresholds with the numbers of one `[tool.ds4scope]` table; a name that is no threshold is an error."""
    known: dict[str, Any] = {field.name: field.default for field in fields(Thresholds)}
    given = {name: value for name, value in table.items() if not isinstance(value, dict)}
    if unknown := sorted(set(given) - set(known)):
        raise UsageError(
            "E-CONFIG",
            f"[tool.ds4scope] knows no {', '.join(unknown)}",
            path=str(path),
            hint=f"the thresholds are: {', '.join(sorted(known))}",
        )
    numbers = {name: _number(name, value, known[name], path) for name, value in given.items()}
    return replace(Thresholds(), **numbers)  # type: ignore[arg-type]


def load(config: str | None = None) -> Thresholds:
    """Thresholds of `config`, else of the nearest TOML file with `[tool.ds4scope]`, else the defaults.

    Raises `UsageError` (exit status 2) for a file that cannot be read or a name that is no threshold.
    """
    if config is not None:
        return from_table(_table(Path(config)) or {}, Path(config))
    here = Path.cwd()
    for folder in (here, *here.parents):
        for name in CONFIG_NAMES:
            path = folder / name
            if path.is_file() and (table := _table(path)) is not None:
                return from_table(table, path)
    return Thresholds()
