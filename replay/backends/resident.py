"""What a tensor replay needs of a model, whoever made it: the small ones (`small`), or mlx-lm's (`lm`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from replay.models.cache import Verdict
from replay.models.model import Tokens


class Resident(Protocol):
    """A session that holds tensors for `length` tokens."""

    @property
    def length(self) -> int:
        """Tokens held."""

    @property
    def tokens(self) -> Tokens:
        """The tokens held, in order."""

    def common(self, tokens: Tokens) -> int:
        """How many of the first tokens are those held."""

    def extend(self, tokens: Tokens) -> None:
        """Prefill these behind what is held."""

    def logits(self) -> NDArray[np.float32] | None:
        """Of the last position, one a word; None before the first token."""

    def can_rewind(self, position: int) -> Verdict:
        """Whether the cache can be cut to `position` tokens."""

    def rewind(self, position: int) -> None:
        """Cut; raises where `can_rewind` says no."""

    def save_point(self) -> None:
        """Remember this length as one to go back to."""

    def reset(self) -> None:
        """Hold nothing."""

    def fork(self) -> Self:
        """A copy that goes its own way."""


class Engine(Protocol):
    """A model and its sessions. `family` is the cache's shape, `name` the model in words; `tolerance` is how far
    logits may differ between two ways to a position, as a share of the largest."""

    @property
    def family(self) -> str:
        """deepseek-v4, glm or qwen-next."""

    @property
    def name(self) -> str:
        """The model in words."""

    @property
    def tolerance(self) -> float:
        """How far logits may differ, as a share of the largest."""

    def new(self) -> Any:
        """An empty session."""

    def decode(self, residents: Sequence[Any], tokens: Sequence[int]) -> None:
        """One step for each session, as a batch."""

    def save(self, resident: Any, path: Path) -> int:
        """Write a snapshot; its bytes."""

    def load(self, path: Path) -> Any:
        """The session of a snapshot; raises for a foreign or damaged one."""

    def session_bytes(self, tokens: int) -> int:
        """Bytes of a session that holds so many tokens."""
