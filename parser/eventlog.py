"""EventLog: the events of one stretch of a log, in file order; columns for bulk, objects at the edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from parser.event import BULK_KINDS, KINDS, Event

if TYPE_CHECKING:
    import polars as pl

#: Columns of a frame that stand for attributes of an event; a field of the log may bear the same name.
_PLACE = {
    "seq": "seq", "line": "line", "offset": "offset", "stamp": "stamp",
    "_length": "length", "_source": "source", "_rule": "rule",
}  # fmt: skip


class EventLog:
    """Events in file order. `counts` maps each kind that occurs to its number.

    `events` are held as objects, `frames` (kind -> columns as `parser.columns.schema`) as columns; a kind may
    have some of both. `seq` orders them all.
    """

    def __init__(self, events: Sequence[Event], frames: Mapping[str, pl.DataFrame] | None = None) -> None:
        self._events = list(events)
        self._frames = dict(frames or {})
        numbers = Counter(event.kind for event in self._events)
        numbers.update({kind: len(frame) for kind, frame in self._frames.items()})
        self.counts: dict[str, int] = {kind: numbers[kind] for kind in KINDS if numbers[kind]}

    def rows(self, *kinds: str) -> Iterator[Event]:
        """Events of these kinds in file order; without `kinds` all but the bulk kinds."""
        wanted = set(kinds) if kinds else set(KINDS) - set(BULK_KINDS)
        held = [event for event in self._events if event.kind in wanted]
        frames = [_objects(frame, kind) for kind, frame in self._frames.items() if kind in wanted]
        return merge(held, *frames, key=attrgetter("seq")) if frames else iter(held)

    def frame(self, kind: str) -> pl.DataFrame:
        """One row an event of `kind`, in file order: seq, line, offset, stamp, the typed fields (null where the
        line does not say) and `extra` (JSON of the foreign fields); `_length`, `_source`, `_rule` and `_text`

        are the attributes of `Event`."""
        import polars as pl

        from parser.columns import schema
        from parser.grammar import grammar

        columns = schema(grammar(), kind)
        held = [_record(event, columns) for event in self._events if event.kind == kind]
        objects = pl.DataFrame(held, schema=columns)
        if kind not in self._frames:
            return objects
        return pl.concat([self._frames[kind], objects]).sort("seq") if held else self._frames[kind]


def _objects(frame: pl.DataFrame, kind: str) -> Iterator[Event]:
    names = frame.columns
    fields = range(len(_PLACE), len(names) - 2)
    for row in frame.iter_rows():
        seq, line, offset, stamp, length, source, rule = row[: len(_PLACE)]
        said = {names[at]: row[at] for at in fields if row[at] is not None}
        yield Event(seq, line, offset, length, source, stamp, kind, rule, said, {}, row[-1])


def _record(event: Event, columns: Mapping[str, Any]) -> dict[str, Any]:
    import orjson

    place = {column: getattr(event, name) for column, name in _PLACE.items()}
    extra = orjson.dumps(event.extra).decode() if event.extra else None
    return (
        {name: None for name in columns} | dict(event.fields) | place | {"extra": extra, "_text": event.text}
    )
