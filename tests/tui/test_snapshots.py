"""The main screens as plain text, at 80x24 and 160x48, against `snapshots/`.

After a change that is meant:  DS4SCOPE_SNAPSHOTS=renew pytest tests/tui/test_snapshots.py
then read the difference that git shows.
"""

import os
from pathlib import Path

import pytest

from triage.finding import Counterfactual, Finding
from tui.dump import screen_text
from tui.glyphs import ASCII

SNAPSHOTS = Path(__file__).parent / "snapshots"
SIZES = {"80x24": (80, 24), "160x48": (160, 48)}
SCREENS = {
    "start": [],
    "miss": ["m", "m", "m"],
    "request": ["m", "m", "enter"],
    "log": ["m", "m", "o"],
    "findings": ["d", "down"],
    "help": ["question_mark"],
    "zoomed": ["m", "m", "plus", "plus", "plus"],
    "by-order": ["t"],
}


#: What `triage` says is tested there; here its text stands still.
FINDINGS = (
    Finding(
        "too-few-slots", 1, 0.9, "primary", (3, 4, 6), (26, 48, 73), {},
        "Three conversations take turns in two slots. Each switch costs a store and a load.",
        "start the server with --batched-session 3", "", (), Counterfactual("ds4-2026-08 slots=3", 1200, 4.5), "config",
    ),
    Finding("write-amplification", 2, 0.6, "contributing", (), (), {}, "1.2 GiB were written.", grade="turns"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _same_findings(monkeypatch):
    monkeypatch.setattr("tui.app.TimelineApp._judge", lambda app: app.call_from_thread(app._judged, FINDINGS))


def check(name, text):
    """Compare with the kept picture, or keep it where it is to be renewed."""
    place = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("DS4SCOPE_SNAPSHOTS") == "renew":
        place.parent.mkdir(exist_ok=True)
        place.write_text(text, encoding="utf-8")
    assert place.exists(), f"no snapshot {name}: see the head of this file"
    assert text == place.read_text(encoding="utf-8")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("screen", SCREENS)
async def test_main_screens(opened, three_chats, size, screen):
    async with opened(three_chats, size=SIZES[size]) as (app, pilot):
        for key in SCREENS[screen]:
            await pilot.press(key)
            await pilot.pause()
        await pilot.pause()
        text = screen_text(app.screen)
        width = SIZES[size][0]
        assert all(len(line) <= width for line in text.splitlines())
        check(f"{screen}-{size}", text)


@pytest.mark.parametrize("size", SIZES)
async def test_comparison(opened, settle, stolen, size):
    async with opened(stolen, size=SIZES[size]) as (app, pilot):
        app._compare("ds4-2026-09-reuse")
        await settle(app)
        await pilot.pause(0.1)
        check(f"compare-{size}", screen_text(app.screen))


async def test_ascii(opened, three_chats):
    async with opened(three_chats, glyphs=ASCII) as (app, pilot):
        await pilot.press("m", "m")
        await pilot.pause()
        rows = [row.text for row in app.main.timeline.rows]
        assert all(text.isascii() for text in rows)
        check("ascii-80x24", screen_text(app.screen))


@pytest.mark.parametrize("name", ["slot-steal.md", "image-tail-miss.md"])
async def test_the_seeds(opened, fixtures, name):
    async with opened(fixtures / "seeds" / name) as (app, _):
        check(f"seed-{name.removesuffix('.md')}-80x24", screen_text(app.screen))
