"""The mechanisms of `docs/spec/mechanisms.md`, one file each; more come in by entry point `ds4scope.mechanisms`.

An entry point names a `triage.mechanism.Mechanism` (or a list of them). A plug-in that fails is reported
as such and never takes the triage down.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

from parser.errors import UsageError
from triage.mechanism import Mechanism

GROUP: Final = "ds4scope.mechanisms"
#: the built-in ids in the order of the catalogue; the file is the id with underscores
BUILT_IN: Final = (
    "slot-steal-shared-prefix", "slot-steal-trivial-prefix", "too-few-slots", "side-calls-on-one-slot",
    "unrelated-prompt",
    "client-early-edit", "client-transient-tail", "client-history-rewrite",
    "reasoning-retokenised", "tool-bytes-retokenised", "forced-think-close", "canonicalisation-rebuild",
    "exact-retry-no-rewind", "tail-mismatch-no-rewind", "multimodal-all-or-nothing", "invalid-checkpoint",
    "shallow-disk-checkpoint", "stale-cold-anchor", "cold-max-below-prompts", "consumed-on-hit",
    "alignment-loss", "hit-not-used", "key-never-matches",
    "store-then-evict", "nested-continued-ladder", "small-hot-prefix-evicted", "incoming-prefix-evicted",
    "budget-eviction", "store-skipped", "store-failed", "disk-cache-unusable", "poisoned-checkpoint",
    "foreign-checkpoint", "write-amplification",
    "client-gave-up", "retry-storm", "prefill-stall", "host-suspended", "server-stopped",
    "engine-prefill-failure", "distributed-failure", "out-of-memory", "lost-tool-turn",
    "continuation-state-lost",
    "slow-but-right", "healthy", "nothing-to-judge",
)  # fmt: skip


def built_in(name: str) -> Mechanism:
    """The built-in mechanism of that id."""
    module = import_module(f"triage.mechanisms.{name.replace('-', '_')}")
    found: Mechanism = module.MECHANISM
    return found


@cache
def catalogue() -> dict[str, Mechanism]:
    """id -> mechanism: the built-in ones in the catalogue's order, then those of plug-ins."""
    found = {name: built_in(name) for name in BUILT_IN}
    for point in entry_points(group=GROUP):
        try:
            loaded = point.load()
        except Exception as error:  # a plug-in may fail in any way; its name must be said
            raise UsageError(
                "E-PLUGIN", f"mechanism plug-in {point.name} cannot be loaded: {error}"
            ) from error
        for mechanism in loaded if isinstance(loaded, (list, tuple)) else [loaded]:
            found[mechanism.id] = mechanism
    return found
