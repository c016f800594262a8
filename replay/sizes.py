"""Bytes of a disk checkpoint without its text and tool map, by model family (R4.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Sizes(Protocol):
    """Bytes of the file of a checkpoint of `tokens` tokens, less key text and tool map."""

    def __call__(self, tokens: int) -> int: ...


@dataclass(frozen=True, slots=True)
class RowSizes:
    """R4.4: a ring of raw rows a layer, and compressed rows in layers of ratio 4 and of ratio 128."""

    layers: int
    ratio4: int
    ratio128: int

    def __call__(self, tokens: int) -> int:
        raw = min(tokens, 128) * 2048 * self.layers
        fixed = 52 + 52 + 4 * 129280 + 8 * self.layers + raw + self.ratio4 * 81920 + self.ratio128 * 524288
        rows = self.ratio4 * 2560 * (tokens // 4) + self.ratio128 * 2048 * (tokens // 128)
        return fixed + 4 * tokens + rows


@dataclass(frozen=True, slots=True)
class LinearSizes:
    """`fixed + per_token * tokens`: full rows (GLM), or what a log's own `size=` figures show."""

    fixed: float
    per_token: float

    def __call__(self, tokens: int) -> int:
        return round(self.fixed + self.per_token * tokens)


DEEPSEEK_V4 = RowSizes(layers=43, ratio4=21, ratio128=20)
#: 61 layers, the first two of ratio 128, then 4 and 128 in turn
DEEPSEEK_V4_PRO = RowSizes(layers=61, ratio4=30, ratio128=31)
#: fits the payloads of the GLM captures (`fixtures/captures/*glm*/session-ops.jsonl`) to the byte
GLM = LinearSizes(fixed=620_248, per_token=190_468)
#: not derived anywhere (R4.4): a stand-in of the right order, to be replaced by what a log's `size=` shows
QWEN_NEXT = LinearSizes(fixed=80_000_000, per_token=32_768)

BY_FAMILY: dict[str, Sizes] = {
    "deepseek-v4": DEEPSEEK_V4,
    "deepseek-v4-pro": DEEPSEEK_V4_PRO,
    "glm": GLM,
    "qwen-next": QWEN_NEXT,
}
