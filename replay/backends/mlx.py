"""`--backend mlx`: the decisions of a replay carried out on a real KV cache. `docs/mlx.md`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from replay.backends.device import CACHE_BYTES, Device, DeviceError, open_device, out_of_memory
from replay.backends.plan import Plan, plan
from replay.config import ServerConfig
from replay.decisions import Decision
from replay.outcome import Outcome, Served
from replay.workload import Workload

if TYPE_CHECKING:
    from replay.backends.carry import Carrier
    from replay.backends.resident import Engine
    from replay.backends.result import Moved, TensorResult, Unsound
    from replay.models.scale import Scale

Progress = Callable[[int, int], None]
SMALLER: Final = "divide all token quantities with --scale N, or use another device"
#: why upstream does not go back, in one sentence a family
UPSTREAM: Final = {
    "deepseek-v4": (
        "ds4 cuts only the token list of a DeepSeek session, and neither the ring of raw rows nor the"
        " compressors' pending inputs come back, so it keeps a live prefix whole or not at all"
        " (R3.3, section 7)"
    ),
    "glm": (
        "ds4 goes back with GLM only where a prompt ends inside the live tokens (R7.1), and starts again at"
        " any other mismatch, although the rows can be cut anywhere (section 7)"
    ),
    "qwen-next": (
        "a recurrent state sums up every token it has seen, so without a state saved at the common prefix"
        " ds4 can only start again (section 7)"
    ),
}


@dataclass(frozen=True, slots=True)
class TensorOptions:
    """`family` None: the server's. `samples`: logits compared for so many requests a kind (None: for all).
    `model`: a directory with an mlx-lm model instead of the small one. `work_dir`: where checkpoints are
    written."""

    family: str | None = None
    device: str = "auto"
    scale: int = 1
    samples: int | None = 1
    model: Path | None = None
    work_dir: Path | None = None


#: sessions that comparisons keep beside the slots': one cold, one never evicted, one rewound instead
BESIDE: Final = 3


def carry_out(
    workload: Workload, configs: Sequence[ServerConfig], log: Sequence[Decision], outcome: Outcome,
    options: TensorOptions, progress: Progress | None = None,
) -> TensorResult:  # fmt: skip
    """Move the tensors of a decision log (`replay.server.replay(..., log=log)`), and hold every claim against
    them and `outcome` against what was moved.

    `progress` is called with (tokens done, tokens in all). Raises `UsageError` (options), `DeviceError` (no
    MLX, not enough memory), `SnapshotError` (E-KV-WRITE: no room for a checkpoint).
    """
    device = open_device(options.device)
    try:
        return _Replay(workload, configs, options, device, progress).run(log, outcome)
    except (MemoryError, RuntimeError, ValueError) as error:
        if not out_of_memory(error):
            raise
        raise DeviceError("E-MEMORY", "the device is out of memory", hint=SMALLER) from error


class _Replay:
    """One tensor replay. Modules that import MLX are imported here, after `open_device` has prepared it."""

    def __init__(
        self, workload: Workload, configs: Sequence[ServerConfig], options: TensorOptions, device: Device,
        progress: Progress | None,
    ) -> None:  # fmt: skip
        from replay.models.scale import Scale

        self.workload, self.configs, self.options, self.device = workload, configs, options, device
        self.scale = Scale(options.scale)
        self.engine = _engine(options, configs[0], device, self.scale)
        self._progress, self._done, self._all = progress, 0, 0

    def run(self, log: Sequence[Decision], outcome: Outcome) -> TensorResult:
        """Carry the log out."""
        from replay.backends.carry import Carrier
        from replay.backends.prove import Prover
        from replay.backends.shelf import Shelf
        from replay.backends.tokens import TokenMap

        todo = plan(log, self.options.samples, self.scale.factor)
        bound = self._bound(todo)
        self._all = self.scale.size(todo.tokens + todo.steps)
        began = perf_counter()
        with Shelf(self.options.work_dir) as shelf:
            prover = Prover(self.engine, todo, self._full_ring())
            vision = any(config.generation.images for config in self.configs)
            tokens = TokenMap(self.workload, self.scale, vision)
            carrier = Carrier(
                self.workload, self.configs, self.engine, tokens, shelf, todo, prover, self._advance
            )
            _reset_peak()
            carrier.run(log)
        carrier.unsound += disagreements(outcome, carrier.moved, self.scale)
        return self._result(len(log), todo, carrier, bound, perf_counter() - began)

    def _full_ring(self) -> int | None:
        """Rows that a scaled ring stands for; nothing where states are saved, which need no ring."""
        config = self.configs[0]
        return None if self.scale.factor == 1 or config.reuse.startswith("rewind-points") else config.ring

    def _advance(self, tokens: int) -> None:
        self._done += tokens
        if self._progress is not None:
            self._progress(self._done, self._all)

    def _bound(self, todo: Plan) -> int:
        """Bytes that all sessions can take. Raises `DeviceError` if they are not there."""
        sessions = max(config.slot_count for config in self.configs) + BESIDE
        bound = sessions * self.engine.session_bytes(self.scale.size(todo.longest)) + CACHE_BYTES
        if self.device.memory and bound > self.device.memory:
            need, have = bound / 2**30, self.device.memory / 2**30
            message = f"this replay needs up to {need:.2f} GiB of memory, {have:.2f} GiB are free"
            raise DeviceError("E-MEMORY", message, hint=SMALLER)
        return bound

    def _result(
        self, decisions: int, todo: Plan, carrier: Carrier, bound: int, wall_s: float
    ) -> TensorResult:
        from replay.backends.result import TensorResult

        return TensorResult(
            model=self.engine.name,
            family=self.engine.family,
            device=self.device.kind,
            device_name=self.device.name,
            scale=self.scale.factor,
            decisions=decisions,
            unsound=tuple(carrier.unsound),
            checks=tuple(carrier.prover.checks),
            not_checked=tuple(todo.not_checked),
            rewinds=tuple(carrier.prover.rewinds),
            moved=carrier.moved,
            spent=carrier.spent,
            memory_bound_bytes=bound,
            memory_peak_bytes=_peak(),
            disk_peak_bytes=carrier.disk_peak,
            wall_s=wall_s,
            notes=_notes(self.engine.family, carrier, self.scale),
        )


def _engine(options: TensorOptions, config: ServerConfig, device: Device, scale: Scale) -> Engine:
    if options.model is not None:
        from replay.backends.lm import LmEngine

        return LmEngine(options.model)
    from replay.backends.small import SmallEngine

    return SmallEngine(options.family or config.family, device, scale, config.ring)


def _notes(family: str, carrier: Carrier, scale: Scale) -> tuple[str, ...]:
    notes = []
    if scale.factor > 1:
        notes.append(
            f"all token quantities and thresholds divided by {scale.factor}, rounded up;"
            " decisions were taken at full size"
        )
    if carrier.prover.rewinds:
        notes.append(UPSTREAM.get(family.removesuffix("-pro"), ""))
    return tuple(note for note in notes if note)


def disagreements(outcome: Outcome, moved: Mapping[int, Moved], scale: Scale) -> list[Unsound]:
    """Where the tensors moved something else for a request than the server model counted."""
    from replay.backends.result import Moved, Unsound

    found = []
    for served in outcome.requests:
        real = moved.get(served.request, Moved())
        counted = _counted(served, real.restarted, scale)
        for name, value in counted.items():
            if value != getattr(real, name) and (name != "reused" or real.reused is not None):
                why = f"{name}: the model counts {value}, the tensors {getattr(real, name)}"
                found.append(Unsound(served.request, "Outcome", why))
    return found


def _counted(served: Served, restarted: bool, scale: Scale) -> dict[str, object]:
    done, start = served.prefilled_tokens or 0, 0 if restarted else served.cached_tokens or 0
    return {
        "reused": scale.size(start),
        "prefilled": scale.size(start + done) - scale.size(start),
        "loaded": scale.size(served.disk_hit_tokens or 0),
        "stores": [(scale.size(store.tokens), store.reason) for store in served.stores],
        "evicted_files": served.evicted_files,
    }


def _reset_peak() -> None:
    import mlx.core as mx

    mx.reset_peak_memory()


def _peak() -> int:
    import mlx.core as mx

    return int(mx.get_peak_memory())
