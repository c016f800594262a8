"""`--trace` files: one record a request, read by state and ids (log-formats section 7)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request record of a `--trace` file."""

    id: int
