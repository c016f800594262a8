"""ds4scope: read, replay and see what a ds4-server does with its KV caches.

Users and plug-ins import from here; names load on first use, so that importing costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

#: public name -> module that defines it
_PUBLIC = {
    "Event": "parser.event",
    "Request": "parser.request",
    "Ds4scopeError": "parser.errors",
    "Reading": "parser.reading",
    "read": "parser.reading",
    "Outcome": "replay.outcome",
    "Finding": "triage.finding",
    "Mechanism": "triage.mechanism",
    "Report": "triage.report",
    "Sign": "triage.mechanism",
    "Thresholds": "triage.thresholds",
    "View": "triage.view",
    "triage": "triage.triage",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'ds4scope' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
