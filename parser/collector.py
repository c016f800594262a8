"""The cycle collector, out of the way while many objects are made that live on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Without the cycle collector: what is made here lives on, and to look through it for garbage again and again
    would be a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def keep_out() -> None:
    """What is there now lives on: later collections need not look through it (a tenth of a second each in a
    long log)."""
    gc.unfreeze()
    gc.freeze()
