"""What operations cost, fitted to the log itself, each figure with its spread (`docs/fidelity.md`).

Nothing absolute is assumed: a figure that the log does not show is taken from the reference machine of
`fixtures/captures/matrix/README.md`, scaled by how fast this log prefills, and is said to be a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Figure:
    """A fitted figure: `value`, `spread` (median relative deviation of its samples), their number, and where
    it comes from: "log", "declared" or "default"."""

    value: float
    spread: float = 0.0
    samples: int = 0
    origin: str = "log"

    def scaled(self, factor: float) -> Figure:
        """The same figure in other units."""
        return replace(self, value=self.value * factor)


def _default(value: float) -> Figure:
    return Figure(value, origin="default")


#: prefill 430 t/s, decode 25 steps/s (a batch of k: x(1+0.2(k-1))), write and read 3 GB/s, copy 5 GB/s
REFERENCE_TOKEN_S: Final = 1 / 430
#: tokenising is the processor's work, whatever the accelerator: what the captures' `load=` figures show
TOKENISE_S: Final = 3e-7
#: rendering and hashing the text of a checkpoint likewise, a byte of its file
RENDER_BYTE_S: Final = 1.5e-11


_UNSCALED: Final = ("batch_share", "admit_token_s")


@dataclass(frozen=True, slots=True)
class FittedCosts:
    """`replay.seams.Costs` from figures: seconds a token at position 0 and what each position adds, seconds a
    decode step likewise, what each further sequence of a batch adds (share of a step), seconds fixed and a
    byte for stores and loads, seconds a prompt token before queueing, and seconds besides all these, fixed and a prompt token."""

    token_s: Figure = Figure(REFERENCE_TOKEN_S, origin="default")
    token_slope_s: Figure = Figure(0.0, origin="default")
    step_s: Figure = Figure(1 / 25, origin="default")
    step_slope_s: Figure = Figure(0.0, origin="default")
    batch_share: Figure = Figure(0.2, origin="default")
    store_fixed_s: Figure = Figure(0.0, origin="default")
    store_byte_s: Figure = Figure(1 / 3e9 + 1 / 5e9, origin="default")
    stage_byte_s: Figure = Figure(1 / 5e9, origin="default")
    load_fixed_s: Figure = Figure(0.0, origin="default")
    load_byte_s: Figure = Figure(1 / 3e9, origin="default")
    admit_token_s: Figure = Figure(TOKENISE_S, origin="default")
    besides_s: Figure = Figure(0.0, origin="default")
    besides_token_s: Figure = Figure(0.0, origin="default")

    @property
    def known(self) -> bool:
        """The log, or the user, says how fast this machine prefills: seconds mean something."""
        return self.token_s.origin != "default"

    # -- replay.seams.Costs --------------------------------------------------------------------------

    def admit_s(self, prompt: int) -> float:
        """Parse, render and tokenise, before queueing."""
        return self.admit_token_s.value * prompt

    def prefill_s(self, start: int, end: int) -> float:
        """Positions `start..end`; a token at position x takes `token + slope * x`, so it is additive."""
        return self.token_s.value * (end - start) + self.token_slope_s.value * (end * end - start * start) / 2

    def decode_s(self, batch: int, depth: int, steps: int) -> float:
        """`steps` steps of `batch` sequences, the deepest at `depth` to begin with."""
        share = 1 + self.batch_share.value * (batch - 1)
        alone = self.step_s.value * steps + self.step_slope_s.value * (depth * steps + steps * steps / 2)
        return share * alone

    def store_s(self, tokens: int, size: int, written: bool) -> float:
        """A store of `size` bytes; one that does not fit the budget is staged all the same (R4.20)."""
        if not written:
            return self.stage_byte_s.value * size
        return self.store_fixed_s.value + self.store_byte_s.value * size

    def load_s(self, tokens: int, size: int) -> float:
        """Read `size` bytes."""
        return self.load_fixed_s.value + self.load_byte_s.value * size

    def end_s(self, prompt: int, generated: int) -> float:
        """What a request takes besides prefill and decode."""
        return self.besides_s.value + self.besides_token_s.value * prompt

    # -- figures -------------------------------------------------------------------------------------

    def figures(self) -> dict[str, Figure]:
        """All figures by name."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def as_json(self) -> dict[str, Any]:
        """Figures for machine-readable output."""
        return {
            name: {"value": f.value, "spread": round(f.spread, 4), "samples": f.samples, "origin": f.origin}
            for name, f in self.figures().items()
        }


def completed(found: Mapping[str, Figure]) -> FittedCosts:
    """Costs from what was found; the rest from the reference machine, as much faster or slower as this log
    prefills (`token_s`), but for what its processor does."""
    costs = FittedCosts()
    token = found.get("token_s")
    if token is not None:
        factor = token.value / REFERENCE_TOKEN_S
        rest = {name: f.scaled(factor) for name, f in costs.figures().items() if name not in _UNSCALED}
        costs = replace(costs, **rest)
    for name in ("store_byte_s", "stage_byte_s"):
        costs = replace(costs, **{name: _default(getattr(costs, name).value + RENDER_BYTE_S)})
    if "token_s" in found and "token_slope_s" not in found:
        costs = replace(costs, token_slope_s=Figure(0.0))
    return replace(costs, **found)


def declare(
    costs: FittedCosts,
    *,
    prefill_tps: float | None = None,
    decode_tps: float | None = None,
    save_gbps: float | None = None,
    load_gbps: float | None = None,
) -> FittedCosts:
    """Costs with figures that the user states in place of fitted ones (tokens and 10^9 bytes a second)."""
    stated: dict[str, Figure] = {}
    for name, slope, rate in (
        ("token_s", "token_slope_s", prefill_tps),
        ("step_s", "step_slope_s", decode_tps),
        ("store_byte_s", "store_fixed_s", save_gbps and save_gbps * 1e9),
        ("load_byte_s", "load_fixed_s", load_gbps and load_gbps * 1e9),
    ):
        if rate:
            stated[name] = Figure(1 / rate, origin="declared")
            stated[slope] = Figure(0.0, origin="declared")
    return replace(costs, **stated)
