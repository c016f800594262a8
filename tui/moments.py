"""Questions to a scene: who was where at an instant, where is the next miss, which requests pass a filter."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from parser.errors import UsageError
from parser.request import SOURCES
from tui.lod import Instant
from tui.scene import Scene

#: What one can jump between; "finding" and "match" are given rows by the caller.
_WANTED: Final[Mapping[str, Callable[[], pl.Expr]]] = {
    "request": lambda: pl.lit(True),
    "miss": lambda: pl.col("miss"),
    "eviction": lambda: pl.col("evicted").fill_null(0) > 0,
    "restore": lambda: pl.col("disk_hit").fill_null(0) > 0,
}


@dataclass(frozen=True, slots=True)
class Moment:
    """The whole server at one instant: each lane, MiB known on disk, conversations that wait there."""

    at: float
    lanes: tuple[Instant, ...]
    disk_mib: float
    waiting: tuple[tuple[int, int, bool], ...]  # conversation, tokens, saved


def moment(scene: Scene, at: float) -> Moment:
    """The state just before `at`."""
    flows = scene.disk.flows
    waits = flows.filter((flows["left"] < at) & (flows["back"].fill_null(float("inf")) >= at))
    waiting = tuple(waits.select("conv", "tokens", "saved").tail(12).iter_rows())
    mib = scene.disk.mib([at])[0] if len(scene.disk.marks) else 0.0
    return Moment(at, tuple(lane.index.instant(at) for lane in scene.lanes), mib, waiting)


def stops(scene: Scene, kind: str, rows: Sequence[int] | None = None) -> pl.DataFrame:
    """Where a jump may land: `begin` and `row` of the requests of `kind` (or of `rows`), in order of time."""
    table = scene.table
    wanted = pl.col("row").is_in(list(rows)) if rows is not None else _WANTED[kind]()
    return table.filter(wanted & pl.col("keep")).select("begin", "row").sort("begin", "row")


def step(places: pl.DataFrame, at: float, row: int | None, forward: bool) -> int | None:
    """Row of the next (previous) stop seen from `at`; `row` is the stop one stands on, if any, so that of
    several stops at the same instant each is reached."""
    begins = places["begin"]
    first, after = (int(begins.search_sorted(at, side=side)) for side in ("left", "right"))
    here = places["row"].slice(first, after - first).to_list()
    if row in here:
        first = after = first + here.index(row)
        after += 1
    target = after if forward else first - 1
    return int(places["row"][target]) if 0 <= target < len(places) else None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which requests are shown. None: any. `rows` are those of a mechanism's findings."""

    conversation: str | None = None
    slot: int | None = None
    source: str | None = None
    mechanism: str | None = None

    def __bool__(self) -> bool:
        return self != Filter()

    def __str__(self) -> str:
        parts = (
            ("conv", self.conversation),
            ("slot", self.slot),
            ("source", self.source),
            ("why", self.mechanism),
        )
        return " ".join(f"{name}={value}" for name, value in parts if value is not None)


_HINT: Final = "write e.g. conv=A slot=1 source=disk-text why=too-few-slots (empty: show all)"


def parse_filter(text: str) -> Filter:
    """ "conv=A slot=1 source=cold why=MECHANISM", in any order and number; a bare word is a conversation.

    Raises UsageError for anything else.
    """
    found: dict[str, str] = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError("E-FILTER", f"cannot read the filter: {error}", hint=_HINT) from error
    for word in words:
        name, _, value = word.rpartition("=")
        name = {"": "conv", "conversation": "conv", "mechanism": "why"}.get(name, name)
        if name in found:
            raise UsageError("E-FILTER", f"only one {name} can be shown at a time", hint=_HINT)
        if name not in ("conv", "slot", "source", "why") or not value:
            raise UsageError("E-FILTER", f"cannot filter by {word!r}", hint=_HINT)
        found[name] = value
    return _checked(found)


def _checked(found: Mapping[str, str]) -> Filter:
    slot = found.get("slot")
    if slot is not None and not slot.isdecimal():
        raise UsageError("E-FILTER", f"{slot!r} is no slot number", hint=_HINT)
    source = found.get("source")
    if source is not None and source not in SOURCES and source != "disk":
        raise UsageError("E-FILTER", f"no source is called {source!r}", hint="one of " + " ".join(SOURCES))
    return Filter(found.get("conv"), int(slot) if slot else None, source, found.get("why"))


def mask(scene: Scene, wanted: Filter, mechanisms: Mapping[str, Sequence[int]]) -> pl.Series | None:
    """Which rows of the table pass (None: all do). `mechanisms` maps an id to the rows of its findings.

    Raises UsageError where the filter names a conversation, slot or mechanism that this log does not have.
    """
    if not wanted:
        return None
    passes = pl.lit(True)
    if wanted.conversation is not None:
        passes &= pl.col("conv") == _named(scene, wanted.conversation)
    if wanted.slot is not None:
        passes &= pl.col("slot").eq_missing(_slot_of(scene, wanted.slot))
    if wanted.source is not None:
        source = "disk-text" if wanted.source == "disk" else wanted.source
        passes &= pl.col("source") == SOURCES.index(source)
    if wanted.mechanism is not None:
        passes &= pl.col("row").is_in(_rows_of(mechanisms, wanted.mechanism))
    return scene.table.select(keep=passes)["keep"]


def _slot_of(scene: Scene, slot: int) -> int:
    known = [lane.slot for lane in scene.lanes if lane.slot is not None]
    if slot not in known:
        last = f"0 to {known[-1]}" if known else "none"
        raise UsageError("E-FILTER", f"there is no slot {slot}", hint=f"this log has {last}")
    return slot


def _named(scene: Scene, label: str) -> int:
    if label not in scene.names:
        known = " ".join(scene.names[:20])
        raise UsageError(
            "E-FILTER", f"no conversation is called {label!r}", hint=f"this log has {known or 'none'}"
        )
    return scene.names.index(label)


def _rows_of(mechanisms: Mapping[str, Sequence[int]], name: str) -> list[int]:
    if name not in mechanisms:
        known = " ".join(mechanisms)
        raise UsageError("E-FILTER", f"nothing here is due to {name!r}", hint=f"found were {known or 'none'}")
    return list(mechanisms[name])


def row_of_line(scene: Scene, line: int, source: int = 0) -> int | None:
    """The request in whose stretch of file `source` line `line` lies: the last that began at or before it."""
    lines = scene.table.filter(pl.col("file") == source).select("line", "row").sort("line", "row")
    if not len(lines):
        return None
    found = int(lines["line"].search_sorted(line, side="right"))
    return int(lines["row"][max(found - 1, 0)])
