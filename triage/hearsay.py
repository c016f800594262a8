"""Hearsay: findings of low confidence from digests, tables and prose (mechanisms 2.2.6, 5.7)."""

from __future__ import annotations

from collections.abc import Iterator

from triage.mechanism import Sign
from triage.view import View


def heard(view: View) -> Iterator[tuple[str, Sign]]:
    """(mechanism id, sign) for what people say in their own words."""
    return iter(())
