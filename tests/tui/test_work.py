"""Work in the background: it never blocks a key, it can be stopped, and what goes wrong is said."""

import asyncio
import threading

import pytest

from parser.errors import InputError
from tui.app import TimelineApp, void
from tui.dump import screen_text
from tui.feed import Wanted


async def test_stopping_the_work_leaves_the_timeline_usable(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        go_on = threading.Event()
        app.start_work("sleeping", lambda: void(go_on.wait(20)))
        await pilot.pause()
        assert "sleeping …" in screen_text(app.screen)
        await pilot.press("escape")
        go_on.set()
        await _until(lambda: app.work == "")
        await pilot.press("m")
        assert app.session.scene.table["miss"][app.session.chosen()]


async def test_keys_work_while_something_is_worked_out(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        go_on = threading.Event()
        app.start_work("busy", lambda: void(go_on.wait(20)))
        begun = app.session.at
        await pilot.press("right")
        assert app.session.at > begun
        assert app.work == "busy"
        go_on.set()


async def test_an_error_of_the_work_is_said_and_ends_nothing(opened, three_chats):
    def fail():
        raise InputError("E-TEST", "it [bold]cannot[/] be", hint="leave it")

    async with opened(three_chats, judged=False) as (app, pilot):
        app.start_work("trying", fail)
        await asyncio.sleep(0.1)
        await pilot.pause()
        assert "it [bold]cannot[/] be" in next(iter(app._notifications)).message
        assert app.is_running


async def test_an_input_that_cannot_be_read_ends_the_program_with_its_error(tmp_path):
    app = TimelineApp(Wanted((str(tmp_path / "none.log"),)))
    async with app.run_test() as pilot:
        await asyncio.sleep(0.2)
        await pilot.pause()
    assert isinstance(app.failure, InputError)
    assert app.return_code == 3


async def test_reading_can_be_stopped(opened, three_chats, monkeypatch, tmp_path):
    """A long log: what was read until then stays, and the screen says that something is missing."""
    long = tmp_path / "long.log"
    long.write_bytes(three_chats.read_bytes() * 3)
    monkeypatch.setattr("tui.feed._LONG", 1000)
    go_on = threading.Event()

    def never(*_):
        go_on.wait(20)
        yield from ()

    monkeypatch.setattr("tui.feed.follow", never)
    app = TimelineApp(Wanted((str(long),)))
    async with app.run_test() as pilot:
        await _until(lambda: len(app.session.scene.table) > 0)  # its beginning
        await pilot.press("escape")
        assert not app.reading
        assert any("reading stopped" in note.message for note in app._notifications)
        go_on.set()
        assert len(app.session.scene.table) > 0


async def test_the_beginning_of_a_long_log_is_shown_at_once(three_chats, monkeypatch, tmp_path):
    """Before the first segment is read: the lanes of the first 256 KiB on the axis of the whole log."""
    seen = []
    monkeypatch.setattr("tui.feed._LONG", 1000)
    monkeypatch.setattr(TimelineApp, "_show", lambda app, news: seen.append(news))
    app = TimelineApp(Wanted((str(three_chats),)))
    async with app.run_test():
        for _ in range(200):
            await asyncio.sleep(0.02)
            if not app.reading:
                break
    first, last = seen[0], seen[-1]
    assert not first.live
    assert last.live
    assert first.scene.axis.hi >= last.scene.axis.hi - 1.0
    assert 0 < len(first.frozen.requests) <= len(last.frozen.requests)


@pytest.mark.parametrize("change", ["grow", "rotate", "truncate"])
async def test_a_growing_log_is_followed(three_chats, tmp_path, change, monkeypatch):
    monkeypatch.setattr("tui.feed._LOOK", 0.02)
    lines = three_chats.read_bytes().splitlines(keepends=True)
    log = tmp_path / "server.log"
    log.write_bytes(b"".join(lines[:150]))
    app = TimelineApp(Wanted((str(log),)), follow=True)
    async with app.run_test() as pilot:
        await _until(lambda: not app.reading and len(app.session.scene.table) > 5)
        before = len(app.session.scene.table)
        if change == "rotate":
            log.rename(tmp_path / "server.log.1")
        if change == "truncate":
            log.write_bytes(b"")
            await asyncio.sleep(0.1)
        with log.open("ab") as file:
            file.write(b"".join(lines[150:300]))
        await _until(lambda: len(app.session.scene.table) > before + 3)
        assert "following" in screen_text(app.screen)
        await pilot.press("v")
        await _until(lambda: app._reader.is_finished)
        expected = three_chats.read_bytes().splitlines()[:300]
        starts = sum(b"prompt start" in line for line in expected)
        assert len(app.session.scene.table) == starts
        await _raw_lines_are_theirs(app, pilot, expected, gone=150 if change == "truncate" else 0)


async def _raw_lines_are_theirs(app, pilot, lines, *, gone):
    """Every request's raw lines are those that were read, of the file before a rotation too; the first `gone`
    lines of the log are no longer to be had."""
    await pilot.press("o")
    log, known, seen = app.raw_log(), {line.decode() for line in lines}, 0
    for row in range(len(app.session.scene.table)):
        app.session.choose(row)
        app.main.renew()
        source, number = app.main.place
        (text,) = log.files[source].lines(number, 1)[:1]
        if source == 0 and gone:
            assert "these lines are gone" in text
            continue
        begin = app.request(row)
        assert text in known
        assert f":{begin.prompt_tokens - begin.cached_tokens} " in text or "cache miss" in text, text
        seen += 1
    assert seen > 3


async def _until(true):
    for _ in range(1500):
        if true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen")


async def test_following_can_begin_after_the_log_was_read(opened, three_chats, tmp_path, monkeypatch):
    monkeypatch.setattr("tui.feed._LOOK", 0.02)
    lines = three_chats.read_bytes().splitlines(keepends=True)
    log = tmp_path / "server.log"
    log.write_bytes(b"".join(lines[:200]))
    async with opened(log) as (app, pilot):
        before = len(app.session.scene.table)
        app.session.choose(2)
        await pilot.press("v")
        await _until(lambda: not app.catching_up)
        with log.open("ab") as file:
            file.write(b"".join(lines[200:]))
        await _until(lambda: len(app.session.scene.table) > before)
        assert app.session.chosen() == 2  # the cursor stays where it was
        await pilot.press("v")


async def test_a_long_log_is_skimmed_and_shows_the_same(opened, settle, three_chats, monkeypatch):
    """A log of many megabytes: the same requests, conversations and findings; following it reads it whole."""
    shown = (
        "line",
        "prompt",
        "cached",
        "generated",
        "conv",
        "miss",
        "evicted",
        "disk_hit",
        "lost",
        "live_after",
    )
    async with opened(three_chats) as (app, _):
        expected = app.session.scene.table.select(shown)
        named = app.findings.mechanisms().keys()
    monkeypatch.setattr("parser.inputs.LONG", 1000)
    async with opened(three_chats) as (app, pilot):
        assert app.feed.skims
        assert app.session.scene.table.select(shown).equals(expected)
        assert app.findings.mechanisms().keys() == named
        await pilot.press("v")
        await settle(app)
        assert not app.feed.skims
        assert app.session.scene.table.select(shown).equals(expected)
        await pilot.press("v")


async def test_a_line_far_into_the_log_is_counted_beside_the_keys(opened, three_chats, monkeypatch):
    monkeypatch.setattr("tui.rawlog._FAR", 0)
    async with opened(three_chats, judged=False) as (app, pilot):
        app.session.choose(20)
        line = app.request(20).line
        await pilot.press("o")
        await _until(lambda: f"{line} ▶" in screen_text(app.screen))
        assert not app.raw_log().files[0].is_far(line)
        await pilot.pause()
