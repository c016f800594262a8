"""What a tensor replay found: the outcome's companion, and its form in machine-readable output."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Unsound:
    """A decision that the tensors do not support, and why. Carried on by computing what was claimed."""

    request: int | None
    decision: str
    why: str


@dataclass(frozen=True, slots=True)
class Check:
    """Logits of a request compared with those of another way to the same position, `against` it.

    `kind`: chunking, reuse, restore, rewind, decode, or rewind-instead (a rewind that the server did not
    make). `difference` is the largest absolute one; 0.0 is what one device must give.
    """

    request: int
    kind: str
    against: str
    position: int
    difference: float
    same_argmax: bool
    allowed: float = 0.0

    @property
    def holds(self) -> bool:
        """Within what is allowed, and the same first choice."""
        return self.difference <= self.allowed and self.same_argmax


@dataclass(frozen=True, slots=True)
class RewindView:
    """A miss seen from the tensors: could the slot have gone back to the common prefix? In tokens of the log.

    `ring_needed`: raw rows from which a session that was never restored can (None: not a question of a ring).
    """

    request: int
    live: int
    common: int
    back: int
    sound: bool
    reason: str
    ring_needed: int | None


@dataclass(slots=True)
class Moved:
    """What the tensors did for one request, in scaled tokens. `restarted`: tokens are reported as cached, and
    all are evaluated (R3.6). `reused` is None for a request that was cut off before anything was evaluated."""

    reused: int | None = None
    restarted: bool = False
    prefilled: int = 0
    decoded: int = 0
    loaded: int = 0
    stores: list[tuple[int, str]] = field(default_factory=list)
    evicted_files: int = 0


@dataclass(slots=True)
class Spent:
    """Seconds and amounts, as measured while the replay ran."""

    prefill_s: float = 0.0
    prefill_tokens: int = 0
    decode_s: float = 0.0
    decode_steps: int = 0
    save_s: float = 0.0
    save_bytes: int = 0
    load_s: float = 0.0
    load_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TensorResult:
    """Everything. `agree` is true if nothing is unsound, each request moved what the server model says, and
    all checks are exact."""

    model: str
    family: str
    device: str
    device_name: str
    scale: int
    decisions: int
    unsound: tuple[Unsound, ...]
    checks: tuple[Check, ...]
    not_checked: tuple[str, ...]
    rewinds: tuple[RewindView, ...]
    moved: dict[int, Moved]
    spent: Spent
    memory_bound_bytes: int
    memory_peak_bytes: int
    disk_peak_bytes: int
    wall_s: float
    notes: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Every comparison of logits gave 0.0."""
        return all(check.difference == 0.0 for check in self.checks)

    @property
    def agree(self) -> bool:
        """The tensors bear out every decision."""
        return not self.unsound and all(check.holds for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """For `tensors` beside the outcome (docs/outputs.md)."""
        whole = asdict(self)
        del whole["moved"]
        return {"agree": self.agree, "exact": self.exact, **whole}
