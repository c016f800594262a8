"""EventLog: the events of one stretch of a log, in file order; columns for bulk, objects at the edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
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


_END = ("_source", "offset", "_length")


class EventLog:
    """Events in file order. `counts` maps each kind that occurs to its number.

    `events` are held as objects, `frames` (kind -> columns as `parser.schema.schema`) as columns; a kind may
    have some of both. `seq` orders them all.
    """

    def __init__(self, events: Sequence[Event], frames: Mapping[str, pl.DataFrame] | None = None) -> None:
        self._events = list(events)
        self._frames = dict(frames or {})
        numbers = Counter(event.kind for event in self._events)
        numbers.update({kind: len(frame) for kind, frame in self._frames.items()})
        self.counts: dict[str, int] = {kind: numbers[kind] for kind in KINDS if numbers[kind]}

    @staticmethod
    def joined(logs: Sequence[EventLog]) -> EventLog:
        """Logs that follow one another (their `seq` runs on) as one."""
        if len(logs) == 1:
            return logs[0]
        frames: dict[str, list[pl.DataFrame]] = {}
        for log in logs:
            for kind, frame in log._frames.items():
                frames.setdefault(kind, []).append(frame)
        return EventLog([event for log in logs for event in log._events], _together(frames))

    @property
    def begin(self) -> tuple[int, int] | None:
        """(seq, source) of its first event; None for an empty one."""
        firsts = [(event.seq, event.source) for event in self._events[:1]]
        firsts += [
            row for f in self._frames.values() for row in f.select("seq", "_source").head(1).iter_rows()
        ]
        return min(firsts, default=None)

    @property
    def end(self) -> tuple[int, int] | None:
        """(source, byte behind its last event) as far as this log goes; None for an empty one."""
        ends = [(event.source, event.offset + event.length) for event in self._events[-1:]]
        ends += [
            (row[0], row[1] + row[2])
            for f in self._frames.values()
            for row in f.select(*_END).tail(1).iter_rows()
        ]
        return max(ends, default=None)

    def rows(self, *kinds: str) -> Iterator[Event]:
        """Events of these kinds in file order; without `kinds` all but the bulk kinds."""
        wanted = set(kinds) if kinds else set(KINDS) - set(BULK_KINDS)
        held = [event for event in self._events if event.kind in wanted]
        frames = [_objects(frame, kind) for kind, frame in self._frames.items() if kind in wanted]
        return iter(sorted(chain(held, *frames), key=attrgetter("seq"))) if frames else iter(held)

    def picked(self, kind: str, seqs: pl.Series) -> Iterator[Event]:
        """The events of one kind that have these seq, in file order."""
        wanted = set(seqs)
        held = [event for event in self._events if event.kind == kind and event.seq in wanted]
        frames = {k: f.filter(f["seq"].is_in(seqs.implode())) for k, f in self._frames.items() if k == kind}
        return EventLog(held, frames).rows(kind)

    def stamps(self) -> Iterator[tuple[int, str]]:
        """(seq, stamp) of the events that bear one, in file order."""
        held = [(event.seq, event.stamp) for event in self._events if event.stamp]
        stamped = (frame.filter(frame["stamp"].is_not_null()) for frame in self._frames.values())
        columns = [zip(frame["seq"].to_list(), frame["stamp"].to_list(), strict=True) for frame in stamped]
        return iter(sorted(chain(held, *columns)))

    def stamp_column(self) -> pl.Series:
        """The stamps of all events in file order, null where none was printed."""
        import polars as pl

        held = {"seq": [e.seq for e in self._events], "stamp": [e.stamp for e in self._events]}
        objects = pl.DataFrame(held, schema={"seq": pl.Int64, "stamp": pl.String})
        return pl.concat([objects, *(f.select("seq", "stamp") for f in self._frames.values())]).sort("seq")[
            "stamp"
        ]

    def between(self, first: int, last: int | None) -> EventLog:
        """The events from `first` (a seq) up to, without, `last`."""
        events = [
            event for event in self._events if first <= event.seq and (last is None or event.seq < last)
        ]
        inside = {kind: frame.filter(frame["seq"] >= first) for kind, frame in self._frames.items()}
        if last is not None:
            inside = {kind: frame.filter(frame["seq"] < last) for kind, frame in inside.items()}
        return EventLog(events, {kind: frame for kind, frame in inside.items() if len(frame)})

    def frame(self, kind: str) -> pl.DataFrame:
        """One row an event of `kind`, in file order: seq, line, offset, stamp, the typed fields (null where the
        line does not say) and `extra` (JSON of the foreign fields); `_length`, `_source`, `_rule` and `_text`

        are the attributes of `Event`."""
        import polars as pl

        from parser.grammar import grammar
        from parser.schema import schema

        columns = schema(grammar(), kind)
        held = [_record(event, columns) for event in self._events if event.kind == kind]
        objects = pl.DataFrame(held, schema=columns)
        if kind not in self._frames:
            return objects
        return pl.concat([self._frames[kind], objects]).sort("seq") if held else self._frames[kind]


def _together(frames: Mapping[str, list[pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    if not frames:
        return {}
    import polars as pl

    return {kind: pl.concat(parts, rechunk=False) for kind, parts in frames.items()}


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
    return dict.fromkeys(columns) | dict(event.fields) | place | {"extra": extra, "_text": event.text}
