"""The small seeded models as an engine of the tensor replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from replay.backends.device import Device
from replay.models.model import TILE_CPU, TILE_GPU, build
from replay.models.scale import Scale
from replay.models.session import Session, decode
from replay.models.snapshot import load_session, save_session


class SmallEngine:
    """A family's small model on a device. Two ways to a position give the same bits."""

    tolerance = 0.0

    def __init__(self, family: str, device: Device, scale: Scale, ring: int | None = None) -> None:
        tile = TILE_CPU if device.kind == "cpu" else TILE_GPU
        self.model = build(family, tile=tile, scale=scale, ring=ring)
        self.family = family
        self.name = f"small {family} ({len(self.model.layers)} layers, tiles of {tile} tokens)"

    def new(self) -> Session:
        """An empty session."""
        return Session(self.model)

    def decode(self, residents: Sequence[Session], tokens: Sequence[int]) -> None:
        """One step of a batch."""
        decode(residents, tokens)

    def save(self, resident: Session, path: Path) -> int:
        """Write a checkpoint. -> bytes"""
        return save_session(resident, path)

    def load(self, path: Path) -> Session:
        """Read one."""
        return load_session(self.model, path)

    def session_bytes(self, tokens: int) -> int:
        """Bytes of a session's tensors at a length, at most."""
        return self.model.new_cache().bytes(tokens) + 16 * tokens
