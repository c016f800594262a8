"""EventLog: the events of one stretch of a log, in file order; columns for bulk, objects at the edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from parser.event import BULK_KINDS, Event

if TYPE_CHECKING:
    import polars


class EventLog:
    """Events in file order. `counts` maps each kind that occurs to its number."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self.counts: dict[str, int] = dict(Counter(event.kind for event in events))

    def rows(self, *kinds: str) -> Iterator[Event]:
        """Events of these kinds in file order; without `kinds` all but the bulk kinds."""
        if kinds:
            return (event for event in self._events if event.kind in kinds)
        return (event for event in self._events if event.kind not in BULK_KINDS)

    def frame(self, kind: str) -> polars.DataFrame:
        """One row an event of `kind`: seq, line, offset, stamp and the typed fields."""
        import polars

        rows = [
            {"seq": e.seq, "line": e.line, "offset": e.offset, "stamp": e.stamp, **e.fields} for e in self.rows(kind)
        ]
        return polars.DataFrame(rows, infer_schema_length=None)
