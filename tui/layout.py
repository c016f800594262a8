"""Which rows the timeline has at a given height: every slot first, then the disk, then the curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tui.scene import Scene

GUTTER: Final = 14  # cells left of the time axis
CURVES: Final = ("reuse", "fresh", "reused", "disk")


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
    disk = _disk_slices(scene)
    curves = [Slice(name) for name in CURVES if name != "disk" or disk]
    tail = disk + curves if not lanes_only else []
    left = height - 1 - sum(piece.height for piece in tail)
    while left < lanes and tail:
        left += tail.pop().height
    per_lane = max(1, min(3, left // max(lanes, 1)))
    shown = range(top_lane, top_lane + min(lanes, max(left, 1)))
    spare = left - per_lane * len(shown)
    gap = spare >= len(shown) + 1 and per_lane == 3
    slices = [Slice("axis")]
    for lane in shown:
        slices += _lane_slices(lane, per_lane)
        slices += [Slice("gap")] if gap else []
    spare -= len(shown) if gap else 0
    return slices + _grown(tail, spare, gap)


def hidden_lanes(slices: list[Slice], scene: Scene) -> int:
    """How many lanes do not fit below the last one shown."""
    last = max((piece.lane for piece in slices), default=-1)
    return len(scene.lanes) - 1 - last


def _lane_slices(lane: int, rows: int) -> list[Slice]:
    kinds = {1: ("work",), 2: ("who", "work"), 3: ("who", "work", "live")}[rows]
    return [Slice(kind, lane, labelled=rows > 1) for kind in kinds]


def _disk_slices(scene: Scene) -> list[Slice]:
    if not len(scene.disk.marks) and not len(scene.disk.flows) and not scene.setting.disk:
        return []
    return [Slice("marks")] + ([Slice("flows")] if len(scene.disk.flows) else [])


def _grown(tail: list[Slice], spare: int, gap: bool) -> list[Slice]:
    """Gives spare rows to the flows (up to 6) and to the curves (up to 2 each)."""
    heights = [piece.height for piece in tail]
    limits = {"marks": 1, "flows": 6}
    spare -= 1 if gap else 0
    for most in (2, 3, 4, 5, 6):
        for number, piece in enumerate(tail):
            if spare > 0 and heights[number] < min(most, limits.get(piece.kind, 2)):
                heights[number] += 1
                spare -= 1
    grown = [Slice(piece.kind, piece.lane, rows) for piece, rows in zip(tail, heights, strict=True)]
    first_curve = next((i for i, piece in enumerate(grown) if piece.kind in CURVES), len(grown))
    return grown[:first_curve] + ([Slice("gap")] if gap and grown[first_curve:] else []) + grown[first_curve:]
