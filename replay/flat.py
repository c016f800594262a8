"""A machine of constant speeds: what a declared cost model is, and what stands in where nothing was measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlatCosts:
    """Constant rates (the `Costs` of `replay.seams`). Tokens, bytes, seconds.

    A batch of k decodes in 1 + `batch_penalty` * (k - 1) times the step of one. A store stages (`stage_bps`)
    and writes (`save_bps`); `text_s` is spent a token of rendered or hashed text: when a request is admitted,
    stored or loaded. The defaults are the simulated machine of the captures before acceleration.
    """

    prefill_tps: float = 430.0
    decode_tps: float = 25.0
    batch_penalty: float = 0.2
    save_bps: float = 3e9
    load_bps: float = 3e9
    stage_bps: float = 5e9
    text_s: float = 0.0
    request_s: float = 0.0
    token_s: float = 0.0

    def admit_s(self, prompt: int) -> float:
        """Parse, render and tokenise."""
        return self.request_s + prompt * self.text_s

    def prefill_s(self, start: int, end: int) -> float:
        """Constant speed."""
        return (end - start) / self.prefill_tps

    def decode_s(self, batch: int, depth: int, steps: int) -> float:
        """Constant step."""
        return steps * ((1.0 + self.batch_penalty * (batch - 1)) / self.decode_tps + self.token_s)

    def store_s(self, tokens: int, size: int, written: bool) -> float:
        """Render, stage, write."""
        return tokens * self.text_s + size / self.stage_bps + (size / self.save_bps if written else 0.0)

    def load_s(self, tokens: int, size: int) -> float:
        """Read, tokenise."""
        return tokens * self.text_s + size / self.load_bps

    def end_s(self, prompt: int, generated: int) -> float:
        """Nothing."""
        return 0.0
