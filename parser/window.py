"""--since and --until: a stretch of a log by the server's stamps, which bear no year and may be out of order.

The stretch begins at the first stamp that is not before `since` and ends before the first one after that is
behind `until`; between them every line belongs to it, with or without a stamp. A log that runs over New Year is
followed: stamps that jump from December to January are of the next year, and so is a bound that lies more than
half a year before the first stamp.
"""

from __future__ import annotations

import re
from typing import Final

from parser.errors import InputError, UsageError
from parser.eventlog import EventLog

_BOUND: Final = re.compile(
    r"(?:((?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01]))[ T]?)?((?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?)?"
)
_LONG: Final = 13  # "MMDD HH:MM:SS"


class Window:
    """The state of one reading; `passed` is true once the stretch is behind it."""

    def __init__(self, since: str | None, until: str | None) -> None:
        self._since, self._until = _bound(since), _bound(until)
        self._inside, self.passed, self.given = self._since is None, False, False
        self._year, self._month, self._first = 0, "", ""

    def cut(self, log: EventLog) -> EventLog:
        """The part of the next block that lies inside."""
        if self._since is None and self._until is None:
            return log
        first, last = (0 if self._inside else None), None
        for seq, stamp in log.stamps():
            self._turn(stamp)
            if not self._inside and self._at(self._since, stamp) >= 0:
                self._inside, first = True, seq
            if self._inside and self._until is not None and self._at(self._until, stamp) > 0:
                self.passed, last = True, seq
                break
        part = log.between(first, last) if first is not None else EventLog([])
        self.given |= bool(part.counts)
        return part

    def refuse_nothing(self) -> None:
        """Raises InputError where the stretch has not begun by the end of the input."""
        if not self._inside or (self.passed and not self.given):
            said = " ".join(
                f"--{name} {bound}"
                for name, bound in (("since", self._since), ("until", self._until))
                if bound is not None
            )
            seen = f"its stamps begin with {self._first}" if self._first else "it bears no dates"
            raise InputError("E-INPUT-WINDOW", f"nothing of the log lies in {said}", hint=f"{seen}; widen it")

    def _turn(self, stamp: str) -> None:
        if len(stamp) == _LONG:
            self._first = self._first or stamp
            self._year += self._month == "12" and stamp[:2] == "01"
            self._month = stamp[:2]

    def _at(self, bound: str | None, stamp: str) -> int:
        """Below, at or above 0 as `stamp` is before, at or behind `bound` (as far as the bound says)."""
        if bound is None:
            return 0
        if bound[2:3] == ":":
            return _order((0, stamp[-8:].strip().zfill(8)[: len(bound)]), (0, bound))
        if len(stamp) != _LONG:
            return 0
        year = int(self._first[:2]) - int(bound[:2]) > 6
        return _order((self._year, stamp[: len(bound)]), (int(year), bound))


def _order(one: tuple[int, str], other: tuple[int, str]) -> int:
    return (one > other) - (one < other)


def _bound(text: str | None) -> str | None:
    """A bound as the start of a stamp: "1130", "1130 17:52:23" or "17:52"."""
    if text is None:
        return None
    found = _BOUND.fullmatch(text.strip())
    if not found or not text.strip():
        hint = 'write a stamp as the log does: "1130 17:52:23", "1130" or "17:52"'
        raise UsageError("E-USAGE-STAMP", f"{text!r} is no stamp", hint=hint)
    clock = found[2].zfill(8 if found[2].count(":") == 2 else 5) if found[2] else None
    return " ".join(part for part in (found[1], clock) if part)
