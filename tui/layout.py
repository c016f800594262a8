"""Which rows the timeline has at a given height: every slot first, then the disk, then the curves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tui.scene import Scene

GUTTER: Final = 15  # cells left of the time axis
CURVES: Final = ("reuse", "fresh", "reused", "disk")
_TALLEST: Final = {"live": 3, "flows": 6, "reuse": 3, "fresh": 3, "reused": 3, "disk": 3}
_GROUPS: Final = {"who": "lane", "work": "lane", "live": "lane", "marks": "disk lane", "flows": "disk lane"}


@dataclass(frozen=True, slots=True)
class Slice:
    """Some rows of the picture: `kind` says what they show, `lane` of which lane (-1: the whole server)."""

    kind: str  # axis, who, work, live, marks, flows, reuse, fresh, reused, disk, gap
    lane: int = -1
    height: int = 1
    labelled: bool = False  # a row of the same lane above it carries the name


def plan(scene: Scene, height: int, top_lane: int = 0, *, lanes_only: bool = False) -> list[Slice]:
    """Slices that fill at most `height` rows; lanes before `top_lane` are scrolled out of sight."""
    lanes = len(scene.lanes) - top_lane
    tail = [] if lanes_only else _tail(scene)
    left = height - 1 - len(tail)
    while left < lanes and tail:
        tail.pop()
        left += 1
    per_lane = max(1, min(3, left // max(lanes, 1)))
    slices = [Slice("axis")]
    for lane in range(top_lane, top_lane + min(lanes, max(left, 1))):
        slices += _lane_slices(lane, per_lane)
    slices += tail
    spare = height - len(slices)
    apart = _apart(slices) if per_lane == 3 else slices
    if len(apart) - len(slices) <= spare:
        spare -= len(apart) - len(slices)
        slices = apart
    return _grown(slices, spare, max(1, scene.disk.tracks))


def first_lane(lanes: int, height: int, first: int, chosen: int) -> int:
    """The lane to draw on top: `first`, moved as little as brings the chosen lane into sight and leaves no room
    empty below the last."""
    fit = max(1, min(lanes, height - 1))
    return max(0, min(max(first, chosen - fit + 1), chosen, lanes - fit))


def _tail(scene: Scene) -> list[Slice]:
    """The disk lane where there is anything to show, and the curves."""
    disk: list[Slice] = []
    if len(scene.disk.marks) or len(scene.disk.flows) or scene.setting.disk:
        disk = [Slice("marks")] + ([Slice("flows")] if len(scene.disk.flows) else [])
    return disk + [Slice(name) for name in CURVES if name != "disk" or disk]


def _lane_slices(lane: int, rows: int) -> list[Slice]:
    kinds = {1: ("work",), 2: ("who", "work"), 3: ("who", "work", "live")}[rows]
    return [Slice(kind, lane, labelled=rows > 1) for kind in kinds]


def _apart(slices: list[Slice]) -> list[Slice]:
    """With an empty row between lanes, disk and curves."""
    spread: list[Slice] = []
    for before, piece in zip([None, *slices], slices, strict=False):
        if before is not None and before.kind != "axis" and _group(before) != _group(piece):
            spread.append(Slice("gap"))
        spread.append(piece)
    return spread


def _group(piece: Slice) -> tuple[str, int]:
    return _GROUPS.get(piece.kind, "curves"), piece.lane


def _grown(slices: list[Slice], spare: int, tracks: int) -> list[Slice]:
    """Gives spare rows away evenly: to the flows as far as there are tracks, to live lengths and curves."""
    limits = [min(_TALLEST.get(piece.kind, 1), tracks if piece.kind == "flows" else 9) for piece in slices]
    heights = [1] * len(slices)
    for most in range(2, max(limits, default=1) + 1):
        for number, limit in enumerate(limits):
            if spare > 0 and heights[number] < min(most, limit):
                heights[number] += 1
                spare -= 1
    return [replace(piece, height=rows) for piece, rows in zip(slices, heights, strict=True)]
