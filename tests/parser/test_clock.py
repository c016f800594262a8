"""Stamps to seconds, and when a request began."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parser.clock import Clock, Stamp, first_year, start_interval, wall_time


def seconds(*stamps: str, year: int | None = None) -> list[float | None]:
    clock = Clock(year)
    return [clock.seconds(stamp) for stamp in stamps]


@pytest.mark.parametrize(
    ("stamps", "expected"),
    [
        (["1130 17:52:23", "1130 17:52:24"], [0, 1]),
        (["1130 17:52:24", "1130 17:52:23"], [0, -1]),  # threads: neighbours may be out of order
        (["1130 23:59:59", "1201 00:00:01"], [0, 2]),
        (["1231 23:59:59", "0101 00:00:01"], [0, 2]),
        (
            ["1231 23:59:59", "0101 00:00:01", "1231 23:59:59", "0101 00:00:00"],
            [0, 2, 31_536_000, 31_536_001],
        ),
        (["23:59:59", "00:00:01", "23:00:00", "01:00:00"], [0, 2, 82_801, 90_001]),
        (["1101 01:59:58", "1101 01:00:01"], [0, 3]),  # summer time ends
        (["0329 01:59:59", "0329 03:00:00", "0329 03:00:02"], [0, 1, 3]),  # and begins
        (["0630 12:00:00", "0630 11:30:00"], [0, -1800]),  # a clock set back is kept as printed
        ([None, "nonsense", "0915 10:00:00", "no 99:99", "0915 10:00:05"], [None, None, 0, None, 5]),
    ],
)
def test_seconds_from_the_first_stamp(stamps, expected):
    assert seconds(*stamps) == expected


def test_leap_days_where_the_year_is_known_or_shows():
    assert seconds("0228 00:00:00", "0301 00:00:00", year=2028) == [0, 2 * 86_400]
    assert seconds("0228 00:00:00", "0301 00:00:00", year=2027) == [0, 86_400]
    assert seconds("0228 00:00:00", "0229 00:00:00", "0301 00:00:00") == [0, 86_400, 2 * 86_400]


@given(
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 11, 1)),
    st.lists(st.integers(0, 5_000_000), max_size=30),
)
def test_a_clock_that_only_runs_forward_is_followed_over_years(start, steps):
    """Gaps below half a year, no change to summer time: seconds are the real ones."""
    now, moments = start.replace(microsecond=0), []
    for step in [0, *steps]:
        now += timedelta(seconds=step)
        moments.append(now)
    if moments[-1] < datetime(2028, 2, 29):
        found = seconds(*(f"{m:%m%d %H:%M:%S}" for m in moments), year=start.year)
        skipped = any(  # a step from 01:59 to 03:00 of one day reads like summer time
            b.hour == 3 and b.minute < 2 and timedelta(hours=1) <= b - a < timedelta(seconds=3840)
            for a, b in pairwise(moments)
        )
        assert skipped or found == [(m - moments[0]).total_seconds() for m in moments]


@given(st.text(max_size=20))
def test_no_text_breaks_a_stamp(text):
    assert Stamp.parse(text) is None or Stamp.parse(text).second >= 0
    Clock().seconds(text)


def test_the_start_is_known_to_milliseconds_where_elapsed_times_meet_stamp_steps():
    low, high = start_interval(100.0, [(101.0, 0.95), (110.0, 10.02), (120.0, 19.30), (130.0, 29.99)])
    assert 100.6 < low < high < 101.0
    assert high - low < 0.35


def test_a_line_that_contradicts_the_others_is_left_out():
    """The machine slept: the stamp ran on, the elapsed time did not."""
    assert start_interval(100.0, [(110.0, 9.5), (4000.0, 20.0)]) == start_interval(100.0, [(110.0, 9.5)])


def test_without_a_prompt_start_any_line_with_elapsed_time_tells():
    assert start_interval(None, [(110.0, 9.5)]) is not None
    assert start_interval(None, [(None, 9.5), (110.0, None)]) is None


@given(st.floats(0, 1000), st.lists(st.floats(0, 500), min_size=1, max_size=40))
def test_the_true_start_lies_in_the_interval(start, offsets):
    """Lines printed at start + elapsed, stamped with the whole second: the interval holds the start."""
    seen = [(float(int(start + off)), off) for off in offsets]
    low, high = start_interval(float(int(start)), seen)
    assert low - 1e-6 <= start <= high + 1e-6


@pytest.mark.parametrize(
    ("first", "date", "year"),
    [
        ("1130 10:00:00", (2026, 12, 2), 2026),
        ("1230 10:00:00", (2027, 1, 3), 2026),
        ("10:00:00", (2027, 1, 3), None),
    ],
)
def test_the_year_of_the_first_stamp(first, date, year):
    assert first_year(first, *date) == year


def test_wall_time():
    assert wall_time(86_400.5, "1231 10:00:00", 2026) == datetime(2027, 1, 1, 10, 0, 0, 500_000)
    assert wall_time(1.0, "10:00:00", 2026) is None
