"""The picture: a window of the scene as rows of characters, each with an ink. Pure; the widget only colours
it.

A test can read the characters back: who sat where (`who`), what was done (`work`), what was parked (`flows`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from tui.axis import ticks
from tui.glyphs import Glyphs, letter, many
from tui.layout import Slice
from tui.lod import Cells
from tui.scene import Scene, fitting
from tui.tables import DELETED, FLOW_ENDS, RESTORED, STORED_EVICT

#: What a cell means, and the number of the conversation it belongs to (-1: none).
Ink = tuple[str, int]
PLAIN: Final[Ink] = ("plain", -1)
DIM: Final[Ink] = ("dim", -1)
_FLOW_LIMIT: Final = 2000  # flows drawn one by one; beyond, only how many wait


@dataclass(frozen=True, slots=True)
class Window:
    """The visible part of the axis, `width` cells wide."""

    lo: float
    hi: float
    width: int

    @property
    def cell(self) -> float:
        """Axis units a cell."""
        return (self.hi - self.lo) / max(self.width, 1)

    def edges(self) -> list[float]:
        """The width + 1 borders of the cells."""
        return [self.lo + self.cell * number for number in range(self.width)] + [self.hi]

    def column(self, at: float) -> int:
        """Cell of `at`; below 0 or >= width where it is not visible."""
        return int((at - self.lo) // self.cell) if self.cell > 0 else 0


@dataclass(frozen=True, slots=True)
class Row:
    """One row: a label for the gutter and `width` characters with their inks."""

    kind: str
    lane: int
    label: str
    text: str
    inks: tuple[Ink, ...]


def paint(
    scene: Scene,
    window: Window,
    slices: Sequence[Slice],
    glyphs: Glyphs,
    different: frozenset[int] = frozenset(),
    title: str = "",
) -> list[Row]:
    """All rows of the slices, top to bottom. Where a request of the rows `different` begins, its lane's upper
    row says so. `title` names the picture in the gutter."""
    brush = _Brush(scene, window, glyphs)
    brush.different, brush.title = different, title
    return [row for piece in slices for row in brush.rows(piece)]


class _Brush:
    """Holds what several rows of one frame share: the edges and the cells of each lane."""

    def __init__(self, scene: Scene, window: Window, glyphs: Glyphs) -> None:
        self.scene, self.window, self.glyphs = scene, window, glyphs
        self.edges = window.edges()
        whole = scene.read_to >= scene.axis.hi
        self._read = window.width if whole else bisect_left(self.edges, scene.read_to, hi=window.width)
        places = {
            window.column(math.nextafter(at, -math.inf)) for at in scene.restarts
        }  # before what begins then
        self._restarts = [column for column in places if 0 <= column < window.width]
        self._cells: dict[int, Cells] = {}
        self._tokens: dict[str, list[float]] = {}
        self.different: frozenset[int] = frozenset()
        self.title = ""

    def rows(self, piece: Slice) -> list[Row]:
        """The painted rows of one slice of the screen."""
        made = _PAINTERS[piece.kind](self, piece)
        return [replace(row, lane=piece.lane) for row in made]

    def cells(self, lane: int) -> Cells:
        """A lane's cells at this zoom, worked out once."""
        if lane not in self._cells:
            self._cells[lane] = self.scene.lanes[lane].index.cells(self.edges)
        return self._cells[lane]

    def tokens(self) -> dict[str, list[float]]:
        """Tokens by what became of them, one number a cell."""
        if not self._tokens:
            self._tokens = self.scene.sums.between(self.edges)
        return self._tokens

    def letter(self, conv: int) -> str:
        """A conversation's letter."""
        return letter(self.scene.names[conv] if conv >= 0 else None, conv)

    def row(self, kind: str, label: str, cells: Sequence[tuple[str, Ink]]) -> Row:
        """Puts unread cells and restarts over what was painted."""
        done = list(cells[: self._read]) + [(self.glyphs.unread, DIM)] * (len(cells) - self._read)
        if kind in ("who", "work"):
            for column in self._restarts:
                done[column] = (self.glyphs.restart, ("restart", -1))
        return Row(kind, -1, label, "".join([char for char, _ in done]), tuple([ink for _, ink in done]))


def _axis(brush: _Brush, piece: Slice) -> list[Row]:
    axis, window = brush.scene.axis, brush.window
    text = [" "] * window.width
    step, places = ticks(axis, window.lo, window.hi, window.width)
    for at in places:
        label = brush.glyphs.tick + axis.label(at, step)
        column = window.column(at)
        if column >= 0 and column + len(label) <= window.width:
            text[column : column + len(label)] = label
    label = brush.title or ("time" if axis.kind == "time" else "order")
    return [Row("axis", -1, label, "".join(text), (DIM,) * window.width)]


def _who(brush: _Brush, piece: Slice) -> list[Row]:
    cells = brush.cells(piece.lane)
    painted = [_occupant(brush, cells, number) for number in range(len(cells))]
    return [brush.row("who", brush.scene.lanes[piece.lane].name, painted)]


def _occupant(brush: _Brush, cells: Cells, number: int) -> tuple[str, Ink]:
    """Letter where a request begins, a line while its conversation sits there, a dot where nobody does."""
    conv, glyphs = cells.conv[number], brush.glyphs
    if not cells.held[number]:
        return (brush.letter(conv), ("letter", conv)) if cells.begun[number] else (glyphs.empty, DIM)
    if not cells.keep[number]:
        return (glyphs.hidden, ("hidden", -1))
    unsure = cells.sure[number] == 2
    if cells.changes[number] > 1:
        return glyphs.mixed, ("mixed", -1)
    if cells.begun[number] and cells.row[number] in brush.different:
        return glyphs.different, ("lost", conv)
    marked = number and cells.begun[number - 1] and cells.row[number - 1] in brush.different
    if cells.begun[number] or number == 0 or marked:
        return brush.letter(conv), ("unsure" if unsure else "letter", conv)
    if unsure and cells.begun[number - 1]:
        return "?", ("unsure", conv)
    return (glyphs.unsure, ("unsure", conv)) if unsure else (glyphs.hold, ("hold", conv))


def _work(brush: _Brush, piece: Slice) -> list[Row]:
    cells = brush.cells(piece.lane)
    length = brush.window.cell
    painted = [_doing(brush.glyphs, cells, number, length) for number in range(len(cells))]
    name = "" if piece.labelled else brush.scene.lanes[piece.lane].name
    return [brush.row("work", name, painted)]


def _doing(glyphs: Glyphs, cells: Cells, number: int, length: float) -> tuple[str, Ink]:
    """The one character that a cell of a slot's work deserves: events first, then what took most of its
    time."""
    event = _event(glyphs, cells, number)
    if event is not None:
        return event
    conv = cells.conv[number]
    fresh, cached, decode = cells.fresh[number], cells.cached[number], cells.decode[number]
    most = max(2 * fresh, cached, decode, cells.io[number], cells.unknown[number], cells.hidden[number])
    if most <= 0.02 * length:
        return " ", ("idle", conv)
    if most == 2 * fresh:
        return glyphs.height(fresh / length if fresh < 0.9 * length else 1.0), ("fresh", conv)
    if most == cached:
        return glyphs.cached, ("cached", conv)
    if most == decode:
        return glyphs.decode, ("decode", conv)
    if most == cells.unknown[number]:
        return glyphs.unknown, ("unsure", conv)
    return (glyphs.disk, ("io", conv)) if most == cells.io[number] else (glyphs.empty, DIM)


def _event(glyphs: Glyphs, cells: Cells, number: int) -> tuple[str, Ink] | None:
    conv = cells.conv[number]
    evicted, lost = cells.evicts[number] + cells.losses[number], cells.losses[number]
    role = "lost" if lost else "evict"
    if evicted > 1:
        return many(evicted), (role, conv)
    if evicted:
        swap = cells.restores[number] == 1 and not lost
        return (glyphs.swap if swap else glyphs.lost if lost else glyphs.evict), (role, conv)
    if cells.restores[number]:
        return glyphs.restore, ("restore", conv)
    if cells.failures[number]:
        return glyphs.failed, ("lost", conv)
    return (glyphs.rewind, ("restore", conv)) if cells.rewinds[number] else None


def _live(brush: _Brush, piece: Slice) -> list[Row]:
    cells = brush.cells(piece.lane)
    shares = [None if live is None else live / brush.scene.live_scale for live in cells.live]
    inks: list[Ink] = [
        ("live", conv if held else -1) for conv, held in zip(cells.conv, cells.held, strict=True)
    ]
    label = f"/{brush.scene.live_scale:,}"
    return _bars(brush, "live", label, shares, inks, piece.height)


def _reuse(brush: _Brush, piece: Slice) -> list[Row]:
    tokens = brush.tokens()
    shares = [
        reused / (reused + fresh) if reused + fresh else None
        for reused, fresh in zip(tokens["reused"], tokens["fresh"], strict=True)
    ]
    total = sum(tokens["reused"]) + sum(tokens["fresh"])
    label = f"reuse {100 * sum(tokens['reused']) / total:.0f}%" if total else "reuse ?"
    return _bars(brush, "reuse", label, shares, [("reuse", -1)] * len(shares), piece.height)


def _token_curve(name: str, word: str) -> Callable[[_Brush, Slice], list[Row]]:
    """Prefilled and reused tokens share one scale, so that the two rows can be compared."""

    def draw(brush: _Brush, piece: Slice) -> list[Row]:
        tokens = brush.tokens()
        highest = max(*tokens["reused"], *tokens["fresh"], 1)
        shares: list[float | None] = [value / highest for value in tokens[name]]
        label = f"{word} {short(sum(tokens[name]))}" if sum(tokens["known"]) else f"{word} ?"
        return _bars(brush, name, label, shares, [(name, -1)] * len(shares), piece.height)

    return draw


def _disk_use(brush: _Brush, piece: Slice) -> list[Row]:
    mib = brush.scene.disk.mib(brush.edges[1:])
    scale = fitting(brush.scene.setting.budget_mib, brush.scene.disk.most_mib())
    label = f"disk /{short(scale * 1024 * 1024, 1024)}B" if brush.scene.disk.most_mib() else "disk ?"
    inks: list[Ink] = [("disk", -1)] * len(mib)
    return _bars(brush, "disk", label, [value / scale for value in mib], inks, piece.height)


def _bars(
    brush: _Brush, kind: str, label: str, shares: Sequence[float | None], inks: Sequence[Ink], height: int
) -> list[Row]:
    """A curve `height` rows high; a cell with nothing to say is blank."""
    blocks = brush.glyphs.blocks
    heights = [_eighths(share, height) for share in shares]
    rows = []
    for level in range(height - 1, -1, -1):
        below = 8 * level
        cells = [(blocks[min(8, max(0, high - below))], ink) for high, ink in zip(heights, inks, strict=True)]
        rows.append(brush.row(kind, label if level == height - 1 else "", cells))
    return rows


def _eighths(share: float | None, height: int) -> int:
    """Eighths of a row; what is there at all shows at least one."""
    return max(round(min(share, 1.0) * 8 * height), 1) if share else 0


def _marks(brush: _Brush, piece: Slice) -> list[Row]:
    counts = brush.scene.disk.between(brush.edges)
    painted = [
        _mark(brush.glyphs, [counts[f"k{kind}"][number] for kind in range(5)])
        for number in range(brush.window.width)
    ]
    return [brush.row("marks", "disk", painted)]


def _mark(glyphs: Glyphs, counts: Sequence[float]) -> tuple[str, Ink]:
    if counts[DELETED]:
        return (many(int(counts[DELETED])) if counts[DELETED] > 1 else glyphs.delete), ("lost", -1)
    if counts[RESTORED]:
        return glyphs.restore, ("restore", -1)
    if counts[STORED_EVICT]:
        return glyphs.evict, ("evict", -1)
    return (glyphs.store, ("store", -1)) if sum(counts) else (glyphs.empty, DIM)


def _flows(brush: _Brush, piece: Slice) -> list[Row]:
    """Each conversation that was put out, from its eviction until it came back, on as many tracks as fit."""
    window, flows = brush.window, brush.scene.disk.flows
    seen = flows.filter((flows["left"] < window.hi) & (flows["back"].fill_null(float("inf")) >= window.lo))
    tracks: list[list[tuple[str, Ink]]] = [[(" ", PLAIN)] * window.width for _ in range(piece.height)]
    if len(seen) > _FLOW_LIMIT:
        tracks[0] = _waiting(brush)
        return [
            brush.row("flows", label, track)
            for label, track in zip([" waiting"] + [""] * 9, tracks, strict=False)
        ]
    for flow in seen.iter_rows(named=True):
        if flow["track"] < piece.height:
            _flow(brush, tracks[flow["track"]], flow)
    more = int((seen["track"] >= piece.height).sum())
    labels = [" waiting", *[""] * (piece.height - 1)]
    if more:
        labels[-1] = f" +{more} more" if piece.height > 1 else f" wait +{more}"
    return [brush.row("flows", label, track) for label, track in zip(labels, tracks, strict=True)]


def _waiting(brush: _Brush) -> list[tuple[str, Ink]]:
    """Too many to draw one by one: how many wait at the end of each cell."""
    flows, ends = brush.scene.disk.flows, pl.Series(brush.edges[1:], dtype=pl.Float64)
    left = flows["left"].search_sorted(ends).to_list()
    back = flows["back"].drop_nulls().sort().search_sorted(ends).to_list()
    counts = [gone - come for gone, come in zip(left, back, strict=True)]
    return [(many(count) if count else " ", ("hold", -1)) for count in counts]


def _flow(brush: _Brush, track: list[tuple[str, Ink]], flow: dict[str, float]) -> None:
    window, glyphs, conv = brush.window, brush.glyphs, int(flow["conv"])
    first = window.column(flow["left"])
    last = window.column(flow["back"]) if flow["back"] is not None else window.width
    saved = bool(flow["saved"]) or FLOW_ENDS[int(flow["end"])] == "restored"
    line = (glyphs.parked, ("hold", conv)) if saved else (glyphs.unsure, ("lost", conv))
    for column in range(max(first, 0), min(last, window.width)):
        track[column] = line
    if first < window.width:
        track[max(first, 0)] = (brush.letter(conv), line[1] if not saved else ("letter", conv))
    if last < window.width and last >= 0:
        track[last] = _flow_end(glyphs, FLOW_ENDS[int(flow["end"])], conv)


def _flow_end(glyphs: Glyphs, end: str, conv: int) -> tuple[str, Ink]:
    if end == "restored":
        return glyphs.restore, ("restore", conv)
    return (glyphs.older, ("evict", conv)) if end == "partly" else (glyphs.lost, ("lost", conv))


def _gap(brush: _Brush, piece: Slice) -> list[Row]:
    return [Row("gap", -1, "", " " * brush.window.width, (PLAIN,) * brush.window.width)]


def short(number: float, base: int = 1000) -> str:
    """A count in at most four characters and a letter: 950, 12.3k, 1.6M."""
    for unit in ("", "k", "M", "G", "T"):
        if number < base or unit == "T":
            text = f"{number:.0f}" if not unit or number >= 10 else f"{number:.1f}"
            return text.removesuffix(".0") + unit
        number /= base
    return ""


_PAINTERS: Final[dict[str, Callable[[_Brush, Slice], list[Row]]]] = {
    "axis": _axis,
    "who": _who,
    "work": _work,
    "live": _live,
    "marks": _marks,
    "flows": _flows,
    "reuse": _reuse,
    "fresh": _token_curve("fresh", "computed"),
    "reused": _token_curve("reused", "reused"),
    "disk": _disk_use,
    "gap": _gap,
}
