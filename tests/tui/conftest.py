"""Opening the timeline headless: `async with opened(path) as (app, pilot)` waits until the log is read and judged.

Judging replays what it finds, which takes most of the time: `judged=False` leaves it out where no finding is looked at.
"""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from tui.app import JUDGED_AT_ONCE, TimelineApp
from tui.feed import Wanted

FIXTURES = Path(__file__).parents[2] / "fixtures"


async def settled(app, *, judged=True):
    """Wait until nothing is being read or worked out."""
    for _ in range(600):
        await asyncio.sleep(0.02)
        if not app.reading and not (judged and app.work):
            return
    raise AssertionError(f"still reading ({app.reading}) or working ({app.work!r})")


@asynccontextmanager
async def _opened(*inputs, size=(80, 24), judged=True, **options):
    traces = options.pop("traces", ())
    app = TimelineApp(Wanted(tuple(str(one) for one in inputs), traces), **options)
    unasked = patch("tui.app.JUDGED_AT_ONCE", JUDGED_AT_ONCE if judged else 0)
    async with app.run_test(size=size) as pilot:
        with unasked:
            await settled(app)
            await pilot.pause()
        yield app, pilot


@pytest.fixture
def opened():
    return _opened


@pytest.fixture
def settle():
    return settled


@pytest.fixture
def fixtures():
    return FIXTURES


@pytest.fixture
def three_chats():
    """Three conversations on two slots: misses, evictions, restores, a healthy tail."""
    return FIXTURES / "captures/d-3conv-2slots/server.log"


@pytest.fixture
def stolen():
    """Two conversations in one of two slots, the other empty throughout."""
    return FIXTURES / "captures/a-steal-sequential-11k/server.log"
