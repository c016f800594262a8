"""Stamps to seconds: no year, one-second steps, local time, several threads, several runs in one file.

Order is file order, never time order: neighbouring stamps may be out of order by a second (log-formats 1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

DAY: Final = 86_400.0
HOUR: Final = 3_600.0
#: a stamp that falls back further than this, within the year, belongs to the next year (1231 -> 0101)
_YEAR_TURN: Final = 180 * DAY
#: how late after the printed elapsed time a line's stamp may be taken, seconds
_LATE: Final = 0.02


@dataclass(frozen=True, slots=True)
class Stamp:
    """A stamp taken apart: `month` and `day` are 0 where only the time of day was printed."""

    month: int
    day: int
    second: int  # of the day

    @staticmethod
    def parse(text: str | None) -> Stamp | None:
        """`1130 17:52:23` or `17:52:23`; None for anything else (seconds may carry a fraction)."""
        if not text:
            return None
        head, _, clock = text.rpartition(" ")
        try:
            hours, minutes, seconds = clock.split(":")
            second = int(hours) * 3600 + int(minutes) * 60 + int(float(seconds))
            month, day = (int(head[-4:-2] or 0), int(head[-2:])) if head else (0, 0)
        except ValueError:
            return None
        return Stamp(month, day, second) if month <= 12 and day <= 31 else None


class Clock:
    """Seconds since the first stamp of the input, in file order.

    Declared model: 1231 -> 0101 is New Year; a time of day without date that falls back by more than
    half a day is the next day; a fall back of at most an hour in the small hours (before 04:00) is the
    end of summer time, a step from 01:59 to 03:00 its start. Every other step back is kept as printed
    (another file, a clock set back).
    """

    def __init__(self, year: int | None = None) -> None:
        self.year = year
        self._assumed_year = 2023  # without a leap day, until one is seen
        self.first: str | None = None  # the first stamp, as printed
        self._shift = 0.0
        self._zero: float | None = None
        self._last: float | None = None
        self._last_text: str | None = None
        self._last_out: float | None = None
        self._day = 0.0
        self._midnight: float | None = None  # of the last dated stamp, shifts included

    def seconds(self, text: str | None) -> float | None:
        """Seconds from the first stamp to this one; None without a (readable) stamp."""
        if text is not None and text == self._last_text:
            return self._last_out
        raw = self._quick(text)
        if raw is None:
            stamp = Stamp.parse(text)
            if stamp is None:
                return None
            raw = self._settle(self._raw(stamp), stamp)
            self._midnight = raw - stamp.second if stamp.month else None
        if self._zero is None:
            self._zero, self.first = raw, text
        self._last, self._last_text, self._last_out = raw, text, raw - self._zero
        return self._last_out

    def _quick(self, text: str | None) -> float | None:
        """The usual case without taking the stamp apart: the day of the last one, a little later."""
        last, said, midnight = self._last, self._last_text, self._midnight
        if text is None or said is None or last is None or midnight is None or text[:-8] != said[:-8]:
            return None
        try:
            second = int(text[-8:-6]) * 3600 + int(text[-5:-3]) * 60 + int(text[-2:])
        except ValueError:
            return None
        raw = midnight + second
        return raw if 0.0 <= raw - last < HOUR else None

    @property
    def last(self) -> str | None:
        """The last stamp, as printed."""
        return self._last_text

    @property
    def now(self) -> float | None:
        """The last stamp, in seconds from the first."""
        return self._last_out

    def forget_order(self) -> None:
        """Another file or another excerpt begins: the next step back means nothing."""
        self._last = None

    def _raw(self, stamp: Stamp) -> float:
        if stamp.month:
            if (stamp.month, stamp.day) == (2, 29) and self.year is None:
                self._assumed_year = 2024
            self._day = day_of_year(stamp.month, stamp.day, self.year or self._assumed_year) * DAY
        return self._day + stamp.second

    def _settle(self, raw: float, stamp: Stamp) -> float:
        now = raw + self._shift
        if self._last is None:
            return now
        step = self._step(now - self._last, stamp)
        if step and not stamp.month:
            self._day += step
            return now + step
        self._shift += step
        return now + step

    def _step(self, moved: float, stamp: Stamp) -> float:
        """What to add to a stamp that moved by `moved` seconds from the one before."""
        if not stamp.month:
            return DAY if moved < -DAY / 2 else 0.0
        if moved < -_YEAR_TURN:
            return day_of_year(12, 31, self.year or self._assumed_year) * DAY
        small_hours = stamp.second < 4 * HOUR
        if small_hours and -HOUR <= moved < -5:
            return HOUR
        skipped = 3 * HOUR <= stamp.second < 3 * HOUR + 120 and HOUR <= moved < HOUR + 240
        return -HOUR if skipped and small_hours else 0.0


def day_of_year(month: int, day: int, year: int) -> int:
    """1 for 1 January; a day that the year does not have (0229, 0631) counts on from the month before."""
    try:
        return date(year, month, day).timetuple().tm_yday
    except ValueError:
        return date(year, max(month, 1), 1).timetuple().tm_yday + day - 1


def first_year(first: str | None, year: int, month: int, day: int) -> int | None:
    """The year of the first stamp, where something later (a trace header, the file's mtime) has this date.

    None where the stamps carry no date. A first stamp late in the year and a date early in it: a New Year
    lies between.
    """
    stamp = Stamp.parse(first)
    if stamp is None or not stamp.month:
        return None
    later = (stamp.month, stamp.day) > (month, day) and stamp.month - month >= 6
    return year - 1 if later else year


def start_interval(
    printed: float | None, seen: Iterable[tuple[float | None, float | None]]
) -> tuple[float, float] | None:
    """When t0 was: (earliest, latest) in seconds, from `prompt start` and lines with elapsed seconds.

    `printed` is the stamp of `prompt start`; `seen` are (stamp, elapsed since t0) of later lines. A line
    stamped t with elapsed e was printed in [t, t + 1), at t0 + e or a moment later. Lines that contradict
    the rest (the machine slept, the clock was set) are left out.
    """
    if printed is None:
        bounds: tuple[float, float] | None = None
    else:
        bounds = (printed - _LATE, printed + 1.0)
    for stamp, elapsed in seen:
        if stamp is None or elapsed is None:
            continue
        low, high = stamp - elapsed - _LATE, stamp + 1.0 - elapsed
        if bounds is None:
            bounds = (low, high)
        elif max(bounds[0], low) <= min(bounds[1], high):
            bounds = (max(bounds[0], low), min(bounds[1], high))
    return bounds


def wall_time(seconds: float, first: str | None, year: int) -> datetime | None:
    """The date and time `seconds` after the first stamp, in the log's local time."""
    stamp = Stamp.parse(first)
    if stamp is None or not stamp.month:
        return None
    return datetime(year, stamp.month, stamp.day) + timedelta(seconds=stamp.second + seconds)
