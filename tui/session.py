"""What one person looks at: a window of a scene, a cursor, a chosen lane and request, a filter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from tui.layout import Slice
from tui.moments import Filter, Moment, moment, step, stops
from tui.picture import Window
from tui.scene import Scene

_CLOSEST = {"time": 0.02, "order": 1.0}  # axis units that the closest zoom shows


@dataclass(slots=True)
class Session:
    """The view state. `at` is the cursor (axis units), `row` the chosen request (row of the table, None:
    none), `lane` the chosen lane. Every method leaves the cursor inside the window and the window on the
    axis."""

    scene: Scene
    width: int = 60
    lo: float = 0.0
    hi: float = 1.0
    at: float = 0.0
    lane: int = 0
    top_lane: int = 0
    row: int | None = None
    filter: Filter = field(default_factory=Filter)
    whole_wanted: bool = True  # the window shows everything, and goes on doing so while the log grows
    slices: list[Slice] = field(default_factory=list)
    _stops: dict[str, pl.DataFrame] = field(default_factory=dict)
    _here: tuple[object, int | None] = (None, None)
    _marked: dict[str, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.whole()
        self.at = self.lo

    @property
    def window(self) -> Window:
        """The visible part of the axis."""
        return Window(self.lo, self.hi, self.width)

    def show(self, scene: Scene) -> None:
        """A newer scene of the same log: the cursor stays where it is (in time), the whole stays whole."""
        turned = scene.axis.kind != self.scene.axis.kind
        first = not len(self.scene.table) and len(scene.table) > 0
        row = self.row if self.row is not None else self._row_here()
        self.scene = scene
        self._stops.clear()
        self.lane = min(self.lane, max(len(scene.lanes) - 1, 0))
        if turned:
            self.whole()
            self.at = self.lo
            if row is not None:
                self.choose(row)
        elif self.whole_wanted:
            self.whole()
        if first:
            self.choose(0)
        else:
            self._settle()

    def resize(self, width: int) -> None:
        """The time axis is `width` cells wide from now on."""
        self.width = max(1, width)

    # -- window ------------------------------------------------------------------------------------

    def whole(self) -> None:
        """Show the whole axis."""
        self.lo, self.hi, self.whole_wanted = self.scene.axis.lo, self.scene.axis.hi, True

    def stretch(self, lo: float, hi: float) -> None:
        """Make the axis reach from `lo` to `hi` at least, and show it whole."""
        axis = self.scene.axis
        self.scene = replace(
            self.scene, axis=replace(axis, lo=min(lo, axis.lo), hi=max(hi, axis.hi)), read_to=hi
        )
        self.whole()

    def zoom(self, factor: float, around: float | None = None) -> None:
        """Show `factor` times as much of the axis, with `around` (the cursor) staying where it is."""
        axis = self.scene.axis
        fixed = self.at if around is None else around
        least, most = _CLOSEST[axis.kind], axis.hi - axis.lo
        length = min(max((self.hi - self.lo) * factor, min(least, most)), most)
        share = (fixed - self.lo) / (self.hi - self.lo)
        self.lo = fixed - share * length
        self.hi = self.lo + length
        self.whole_wanted = length >= most
        self._settle_window()

    def pan(self, cells: float) -> None:
        """Move the window; the cursor keeps its column."""
        before = self.lo
        length = self.hi - self.lo
        moved = cells * self.window.cell
        self.lo, self.hi = self.lo + moved, self.lo + moved + length
        self._settle_window()
        self.at += self.lo - before
        self.row = None
        self._settle()

    def look_at(self, lo: float, hi: float) -> None:
        """Show `lo`..`hi`."""
        self.lo, self.hi, self.whole_wanted = lo, max(hi, lo + _CLOSEST[self.scene.axis.kind]), False
        self._settle_window()

    # -- cursor ------------------------------------------------------------------------------------

    def move(self, cells: int) -> None:
        """Move the cursor by whole cells; the window follows at its ends."""
        self.put(self._in_cell(self.window.column(self.at) + cells))

    def page(self, share: float) -> None:
        """Move cursor and window by a share of the window; at an end of the axis the cursor goes on alone."""
        length, column = self.hi - self.lo, self.window.column(self.at)
        at, before = self.at + share * length, self.lo
        self.lo, self.hi = self.lo + share * length, self.hi + share * length
        self._settle_window()
        self.put(self._in_cell(column) if abs(self.lo - before) > length * abs(share) / 2 else at)

    def edge(self, last: bool) -> None:
        """Put the cursor on the first or last moment of the axis."""
        axis = self.scene.axis
        self.put(axis.hi if last else axis.lo)
        if not last:
            self.put(self._in_cell(self.window.column(self.at)))

    def _in_cell(self, column: int) -> float:
        """Where in a cell the cursor stands: behind the last begin that is drawn there, so that the details are
        of the request that one sees; in the middle of a cell in which none begins."""
        begin, cell = self.lo + column * self.window.cell, self.window.cell
        if self.scene.lanes:
            begun = self.scene.lanes[self.lane].index.last_begin(begin + cell)
            if begun is not None and begun >= begin:
                return begun
        return begin + 0.5 * cell

    def put(self, at: float) -> None:
        """Put the cursor at `at`; the request of the chosen lane there becomes the chosen one."""
        self.at, self.row = at, None
        self._settle()

    def point(self, column: int, lane: int | None) -> None:
        """The mouse: put the cursor into a column, and choose a lane if one was hit."""
        if lane is not None and 0 <= lane < len(self.scene.lanes):
            self.lane = lane
        self.put(self._in_cell(column))

    def choose(self, row: int) -> None:
        """Choose a request: the cursor goes to its begin, its lane becomes the chosen one."""
        begin = float(self.scene.table["begin"][row])
        self.at = begin
        lane = self.lane_of(row)
        if lane is not None:
            self.lane = lane
        self._settle()
        self.row = row

    def change_lane(self, by: int) -> None:
        """Choose the lane above or below."""
        self.lane = min(max(self.lane + by, 0), max(len(self.scene.lanes) - 1, 0))
        self.row = None

    def chosen(self) -> int | None:
        """Row of the request that the details are about: the chosen one, else the one under the cursor."""
        return self.row if self.row is not None else self._row_here()

    def lane_of(self, row: int) -> int | None:
        """Number of the lane that a request is drawn in."""
        slot = self.scene.table["slot"][row]
        for number, lane in enumerate(self.scene.lanes):
            if lane.slot == slot and (slot is not None or row in lane.index.spans["row"]):
                return number
        return None

    def moment(self) -> Moment:
        """The state of the server at the cursor."""
        return moment(self.scene, _just_after(self.at))

    # -- jumps -------------------------------------------------------------------------------------

    def mark(self, kind: str, rows: Sequence[int]) -> None:
        """Rows that jumps of `kind` ("finding", "match") go to."""
        self._marked[kind] = rows
        self._stops.pop(kind, None)

    def jump(self, kind: str, forward: bool) -> bool:
        """Go to the next (previous) stop of `kind` (`moments.stops`, or finding); False: there is none."""
        if kind not in self._stops:
            rows = self._marked.get(kind, ()) if kind in ("finding", "match") else None
            self._stops[kind] = stops(self.scene, kind, rows)
        row = step(self._stops[kind], self.at, self.chosen(), forward)
        if row is None:
            return False
        self.choose(row)
        return True

    def count(self, kind: str) -> int:
        """How many places a jump of `kind` has."""
        return len(self._marked.get(kind, ()))

    def at_share(self) -> float:
        """How far along the axis the cursor stands (0..1)."""
        axis = self.scene.axis
        return (self.at - axis.lo) / (axis.hi - axis.lo)

    # -- inside ------------------------------------------------------------------------------------

    def _row_here(self) -> int | None:
        if not self.scene.lanes:
            return None
        key = (id(self.scene), self.lane, self.at)
        if self._here[0] != key:
            self._here = key, self.scene.lanes[self.lane].index.instant(_just_after(self.at)).row
        return self._here[1]

    def _settle(self) -> None:
        """Cursor onto the axis, window to the cursor."""
        axis = self.scene.axis
        self.at = min(max(self.at, axis.lo), axis.hi)
        length, margin = self.hi - self.lo, (self.hi - self.lo) / 8
        if self.at < self.lo:
            self.lo = self.at - margin
        elif self.at > self.hi - self.window.cell * 0.5:
            self.lo = self.at + margin - length
        self.hi = self.lo + length
        self._settle_window()

    def _settle_window(self) -> None:
        axis = self.scene.axis
        length = min(self.hi - self.lo, axis.hi - axis.lo)
        self.lo = min(max(self.lo, axis.lo), axis.hi - length)
        self.hi = self.lo + length


def _just_after(at: float) -> float:
    return math.nextafter(at, math.inf)
