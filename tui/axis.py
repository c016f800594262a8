"""The one axis of all rows: wall-clock seconds where the log has stamps, else the order of requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

Kind = Literal["time", "order"]

_STAMP: Final = re.compile(r"(?:(\d\d)(\d\d) )?(\d\d):(\d\d):(\d\d)$")
_DURATION: Final = re.compile(r"([0-9]{1,9}:){0,2}[0-9]{1,9}(\.[0-9]{1,9})?")
_PLACES: Final = "use HH:MM, HH:MM:SS, 'MMDD HH:MM:SS', +SECONDS, line 233 or request 12"
_STEPS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000),
)
_LEAP_YEAR: Final = 2000  # a stamp has no year; 0229 must be a date


@dataclass(frozen=True, slots=True)
class Axis:
    """`lo`..`hi` in seconds since the first stamp ("time") or in requests ("order").

    `origin` is the wall clock at 0 (None: not known), `dated` whether month and day are known; `why` says in
    plain words why the order of requests had to do.
    """

    kind: Kind
    lo: float
    hi: float
    origin: datetime | None = None
    dated: bool = False
    why: str = ""

    def label(self, at: float, step: float = 1.0) -> str:
        """`at` for people, as exact as ticks `step` apart need it: "17:53:57", "17:53:57.40", "#12"."""
        if self.kind == "order":
            return f"#{int(at) + 1}"
        if self.origin is None:
            return _plus(at, step)
        return _clock(self.origin + timedelta(seconds=at), step)

    def long_label(self, at: float) -> str:
        """Date (if known) and time to a hundredth, or the request's number."""
        if self.kind == "order":
            return f"request {int(at) + 1}"
        day = f"{self.origin + timedelta(seconds=at):%m-%d} " if self.origin and self.dated else ""
        return day + self.label(at, 0.01 if self.hi - self.lo < 3600 else 1.0)

    def parse(self, text: str) -> float:
        """The position that `text` names: "17:53:57", "1130 17:53:57", "+90" or "+1:30".

        Raises ValueError with what would be understood.
        """
        text = text.strip()
        if self.kind == "order":
            raise ValueError("requests stand in order here: use request 12 or line 233")
        if text.startswith("+"):
            return _seconds(text[1:])
        if self.origin is None:
            raise ValueError("this log has no clock: use +SECONDS, request 12 or line 233")
        return self._wall(text)

    def _wall(self, text: str) -> float:
        assert self.origin is not None
        padded = text if text.count(":") == 2 else f"{text}:00"
        match = _STAMP.match(padded)
        if match is None:
            raise ValueError(_PLACES)
        try:
            day, hour, minute, second = _stamp(match)
            at = self.origin.replace(hour=hour, minute=minute, second=second)
            if day is not None:
                return (at.replace(month=day[0], day=day[1]) - self.origin).total_seconds()
        except ValueError as error:
            raise ValueError(f"there is no such time: {text}") from error
        found = (at - self.origin).total_seconds()
        return found if found >= self.lo - 1 else found + 86400


def _stamp(match: re.Match[str]) -> tuple[tuple[int, int] | None, int, int, int]:
    """(month, day) if they stand there, hour, minute, second."""
    month, day, hour, minute, second = match.groups()
    return (int(month), int(day)) if month else None, int(hour), int(minute), int(second)


def origin(stamp: str | None) -> tuple[datetime | None, bool]:
    """The wall clock of a stamp as printed, and whether it holds month and day."""
    match = _STAMP.match(stamp or "")
    if match is None:
        return None, False
    day, hour, minute, second = _stamp(match)
    month, date = day or (1, 1)
    try:
        return datetime(_LEAP_YEAR, month, date, hour, minute, second), day is not None
    except ValueError:
        return None, False


def ticks(axis: Axis, lo: float, hi: float, width: int) -> tuple[float, list[float]]:
    """Step and positions of the ticks of `lo`..`hi` drawn in `width` cells, at least 12 cells apart."""
    least = (hi - lo) * 12 / max(width, 1)
    steps: Sequence[float] = (
        _STEPS if axis.kind == "time" else [s * 10**p for p in range(8) for s in (1, 2, 5)]
    )
    step = next((step for step in steps if step >= least), steps[-1])
    base = _midnight(axis)
    first = -(-(lo + base) // step) * step - base
    count = min(width, int((hi - first) / step) + 1) if hi >= first else 0
    return step, [first + step * i for i in range(count)]


def _midnight(axis: Axis) -> float:
    if axis.origin is None:
        return 0.0
    return axis.origin.hour * 3600 + axis.origin.minute * 60 + float(axis.origin.second)


def _clock(at: datetime, step: float) -> str:
    if step >= 86400:
        return f"{at:%m-%d}"
    if step >= 60:
        return f"{at:%H:%M}"
    return f"{at:%H:%M:%S}" + _fraction(at.microsecond / 1e6, step)


def _plus(at: float, step: float) -> str:
    whole = int(at)
    clock = (
        f"+{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
        if abs(at) >= 3600
        else f"+{whole // 60}:{whole % 60:02}"
    )
    return clock + _fraction(at - whole, step)


def _fraction(rest: float, step: float) -> str:
    digits = 0 if step >= 1 else 1 if step >= 0.1 else 2 if step >= 0.01 else 3
    return (
        f"{rest:.{digits}f}"[1:]
        if digits and rest < 1 - 10**-digits / 2
        else ("." + "9" * digits if digits else "")
    )


def _seconds(text: str) -> float:
    if not _DURATION.fullmatch(text):
        raise ValueError("use +SECONDS, +M:SS or +H:MM:SS")
    parts = text.split(":")
    total = 0.0
    for part in parts:
        total = total * 60 + float(part)
    return total
