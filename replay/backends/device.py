"""Where MLX runs: Metal, CUDA or the CPU, one code path. MLX is imported here first, and only when asked
for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from parser.errors import Ds4scopeError, UsageError

CHOICES: Final = ("auto", "metal", "cuda", "cpu")
#: freed buffers that MLX may keep for the next ones
CACHE_BYTES: Final = 256 << 20


class DeviceError(Ds4scopeError):
    """The tensors cannot run here: no MLX (E-MLX), or not enough memory (E-MEMORY)."""


@dataclass(frozen=True, slots=True)
class Device:
    """`kind` is metal, cuda or cpu; `memory` the bytes that are there for tensors (0: not known)."""

    kind: str
    name: str
    memory: int


def open_device(choice: str = "auto") -> Device:
    """Make a device MLX's default. Raises `UsageError` (E-DEVICE) if it is not there, `DeviceError`
    (E-MLX)."""
    if choice not in CHOICES:
        raise UsageError("E-DEVICE", f"no device {choice!r}", hint=f"one of {', '.join(CHOICES)}")
    mx = _mlx()
    there = [kind for kind in ("metal", "cuda") if _available(mx, kind)] + ["cpu"]
    kind = there[0] if choice == "auto" else choice
    if kind not in there:
        raise UsageError(
            "E-DEVICE", f"MLX finds no {kind} device on this machine", hint=f"--device {there[0]}, or auto"
        )
    mx.set_default_device(mx.cpu if kind == "cpu" else mx.gpu)
    mx.set_cache_limit(CACHE_BYTES)
    info = mx.device_info()
    return Device(kind, str(info.get("device_name", kind)), _memory(kind, info))


def _mlx() -> Any:
    # Float32 products in full precision on every device: rounded to TF32, a GPU's logits would differ from a
    # CPU's by more than any useful tolerance.
    os.environ.setdefault("MLX_ENABLE_TF32", "0")
    try:
        import mlx.core as mx
    except (ImportError, OSError) as error:
        hint = 'pip install "ds4scope[cuda]" for an NVIDIA GPU, mlx on a Mac; --backend counts needs no MLX'
        raise DeviceError("E-MLX", f"MLX cannot be loaded here ({error})", hint=hint) from error
    return mx


def _available(mx: Any, kind: str) -> bool:
    return bool(getattr(mx, kind).is_available())


def _memory(kind: str, info: dict[str, Any]) -> int:
    if kind != "cpu":
        return int(info.get("memory_size") or info.get("total_memory") or 0)
    if "SC_AVPHYS_PAGES" not in os.sysconf_names:
        return 0
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    left = _left_of_limit()
    return free if left is None else min(free, left)


def _left_of_limit() -> int | None:
    """Bytes left of the process's own limit (`ulimit -v`); None where there is none, or it cannot be told."""
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError):  # another system
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else max(1, limit - used)


def out_of_memory(error: BaseException) -> bool:
    """MLX and Python name the same thing differently."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "allocat" in text or "out of memory" in text
