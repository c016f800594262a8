"""Bytes of text: what file sizes and `text=` say about the segments of a workload."""

from __future__ import annotations

from replay.evidence import Evidence
from replay.weave import Woven
from replay.workload import BYTES_PER_TOKEN


def bytes_per_token(evidence: Evidence) -> float:
    """Text bytes a token: of the keys of disk hits (DS9), weighted by their length; else the usual figure."""
    known = [(file.tokens, file.text_bytes) for file in evidence.files if file.text_bytes and file.tokens]
    tokens = sum(pair[0] for pair in known)
    return round(sum(pair[1] for pair in known) / tokens, 4) if tokens else BYTES_PER_TOKEN


def bytes_of(evidence: Evidence, woven: Woven, ratio: float) -> dict[str, int]:
    """Bytes of single segments where keys of known length tell them apart."""
    return {}
