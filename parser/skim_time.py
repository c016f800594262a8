"""Stamps of whole columns to seconds since the first one; the declared model of `parser.clock`, without daylight saving."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from parser.clock import DAY, day_of_year
from parser.eventlog import EventLog

_OUTSIDE: Final = ("foreign", "unknown")


@dataclass
class Days:
    """Keeps the day that the last stamp fell on, so that days run on over stretches of a log."""

    first: str | None = None
    last: str | None = None
    zero: float | None = None
    seconds: float | None = None  # from the first stamp to the last
    year: int = 2023
    _turns: int = 0
    _day: int | None = None

    def with_seconds(self, frame: pl.DataFrame) -> pl.DataFrame:
        """`frame` (with `stamp`, in file order) and its `at` column: seconds, null without a stamp."""
        text, clock = pl.col("stamp"), pl.col("stamp").str.slice(-8)
        hours, minutes, seconds = (clock.str.slice(at, 2).cast(pl.Int64, strict=False) for at in (0, 3, 6))
        dated = pl.when(text.str.len_chars() > 9).then(text.str.slice(0, 4))
        split = frame.with_columns(_second=hours * 3600 + minutes * 60 + seconds, _date=dated)
        offsets = {
            date: self._offset(date)
            for date in split["_date"].unique(maintain_order=True)
            if date is not None
        }
        day = pl.col("_date").replace_strict(offsets, default=0.0, return_dtype=pl.Float64)
        placed = split.with_columns(at=day + pl.col("_second"))
        self._note(placed)
        zero = self.zero or 0.0
        return placed.with_columns(at=pl.col("at") - zero).drop("_second", "_date")

    def _offset(self, date: str) -> float:
        """Seconds of that day's midnight; 1231 -> 0101 is New Year."""
        try:
            day = day_of_year(int(date[:2]), int(date[2:]), self.year)
        except ValueError:
            return 0.0
        if self._day is not None and day < self._day - 180:
            self._turns += 1
        self._day = max(day, self._day) if self._day is not None and day > self._day - 180 else day
        return (day + 365 * self._turns) * DAY

    def see(self, log: EventLog) -> None:
        """First and last stamp of the log so far."""
        ends = [row for kind in log.counts if kind not in _OUTSIDE for row in _ends(log.frame(kind))]
        stamps = [stamp for _, stamp in sorted(ends)]
        if stamps:
            self.first = self.first or stamps[0]
            self.last = stamps[-1]

    def _note(self, placed: pl.DataFrame) -> None:
        stamped = placed.filter(pl.col("at").is_not_null())
        if stamped.is_empty():
            return
        if self.zero is None:
            self.zero = float(stamped["at"][0])
        self.seconds = float(stamped["at"][-1]) - self.zero


def _ends(frame: pl.DataFrame) -> list[tuple[int, str]]:
    """(seq, stamp) of the first and the last row that has a stamp."""
    rows = frame.select("seq", "stamp")
    ends = pl.concat([rows.head(1), rows.tail(1)])
    return [(seq, stamp) for seq, stamp in ends.iter_rows() if stamp is not None]
