"""The slots in text: one row a slot, time (or request order) across, a letter a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from parser.request import Request

WIDTH: Final = 72
#: below this share of busy time a time axis would show nothing but gaps
BUSY_SHARE: Final = 0.15
LEGEND: Final = "A prefill, a decode, - kept, ? slot not certain; below: x miss, r miss restored from disk"


@dataclass(frozen=True, slots=True)
class Lane:
    """One slot: `cells` has one character a column of the picture."""

    name: str
    cells: str


@dataclass(frozen=True, slots=True)
class Picture:
    """`axis` is "time" or "order"; `marks` stands under the lanes; `span_s` is None without stamps."""

    axis: str
    lanes: tuple[Lane, ...]
    marks: str
    span_s: float | None

    def text(self) -> str:
        """The picture with its axis and legend, as lines of plain text."""
        name = max((len(lane.name) for lane in self.lanes), default=0)
        rows = [f"{lane.name:<{name}} |{lane.cells}|" for lane in self.lanes]
        across = (
            f"{self.span_s:,.0f} s across" if self.axis == "time" and self.span_s else "requests in order"
        )
        return "\n".join([*rows, f"{'':<{name}}  {self.marks}", f"{'':<{name}}  {across}; {LEGEND}"])


def picture_of(requests: Sequence[Request], width: int = WIDTH) -> Picture | None:
    """The picture of up to a few thousand requests; None where no request has a slot."""
    placed = [r for r in requests if r.slot is not None]
    if not placed:
        return None
    columns = _by_time(requests, width) or _by_order(requests, width)
    axis = "time" if _by_time(requests, width) else "order"
    letters = _letters(placed)
    lanes = [
        _lane(slot, placed, columns, letters, width)
        for slot in sorted({r.slot for r in placed if r.slot is not None})
    ]
    return Picture(axis, tuple(lanes), _marks(requests, columns, width), _span(requests))


def _span(requests: Sequence[Request]) -> float | None:
    ends = [r.end_s for r in requests if r.end_s is not None]
    starts = [r.start_s for r in requests if r.start_s is not None]
    return max(ends) - min(starts) if ends and starts else None


def _by_time(requests: Sequence[Request], width: int) -> dict[int, tuple[int, int, int]] | None:
    """request -> columns of its start, end of prefill and end; None where time is unknown or mostly idle."""
    span = _span(requests)
    if not span or any(r.start_s is None or r.end_s is None for r in requests):
        return None
    if sum((r.end_s or 0) - (r.start_s or 0) for r in requests) < BUSY_SHARE * span:
        return None
    first = min(r.start_s or 0.0 for r in requests)

    def column(at: float) -> int:
        return min(width - 1, int((at - first) / span * width))

    return {
        r.request: (
            column(r.start_s or 0.0),
            column(min((r.start_s or 0.0) + (r.prefill_s or 0.0), r.end_s or 0.0)),
            column(r.end_s or 0.0),
        )
        for r in requests
    }


def _by_order(requests: Sequence[Request], width: int) -> dict[int, tuple[int, int, int]]:
    """Equal room for each request: half of it prefill, half decode."""
    room = width / max(1, len(requests))
    places = {}
    for number, request in enumerate(requests):
        start, end = int(number * room), max(int(number * room), int((number + 1) * room) - 1)
        places[request.request] = (start, (start + end) // 2, end)
    return places


def _letters(requests: Iterable[Request]) -> dict[str | None, str]:
    names = dict.fromkeys(r.conversation for r in requests)
    return {name: chr(ord("A") + n) if n < 26 else "*" for n, name in enumerate(names)}


def _lane(
    slot: int,
    requests: Sequence[Request],
    columns: dict[int, tuple[int, int, int]],
    letters: dict[str | None, str],
    width: int,
) -> Lane:
    cells = [" "] * width
    held_from = width
    for request in (r for r in requests if r.slot == slot):
        start, turn, end = columns[request.request]
        cells[held_from:start] = "-" * max(0, start - held_from)
        letter = "?" if request.slot_confidence == "ambiguous" else letters[request.conversation]
        cells[start : end + 1] = letter * (turn - start + 1) + letter.lower() * (end - turn)
        held_from = end + 1
    cells[held_from:] = "-" * (width - held_from)
    return Lane(f"slot {slot}", "".join(cells[:width]))


def _marks(requests: Sequence[Request], columns: dict[int, tuple[int, int, int]], width: int) -> str:
    marks = [" "] * width
    for request in requests:
        if request.common is None or request.source == "memory-rewind":
            continue
        place = columns[request.request][0]
        marks[place] = "x" if marks[place] == "x" or not request.disk_hit_tokens else "r"
    return "".join(marks).rstrip()
