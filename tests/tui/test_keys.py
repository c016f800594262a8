"""Every key of the main screen, pressed, and what it does."""

from tui.ask import Ask
from tui.contest import Policies
from tui.dump import screen_text
from tui.help import Help, key_table
from tui.keys import ALL_KEYS, APP_KEYS, COMPARE_KEYS, MAIN_KEYS, TIMELINE_KEYS


async def test_every_key_of_the_timeline_moves_the_cursor(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        session, seen = app.session, set()

        async def press(name, key):
            seen.add(name)
            await pilot.press(key)
            await pilot.pause()

        session.put((session.lo + session.hi) / 2)
        for right, left in (("right", "left"), ("l", "h")):
            column = session.window.column(session.at)
            await press("right", right)
            assert session.window.column(session.at) == column + 1
            await press("left", left)
            assert session.window.column(session.at) == column
        for down, up in (("down", "up"), ("j", "k")):
            session.lane = 0
            await press("down", down)
            assert session.lane == 1
            await press("up", up)
            assert session.lane == 0
        session.zoom(0.2)
        for on, back in (("shift+right", "shift+left"), ("L", "H"), ("pagedown", "pageup")):
            lo = session.lo
            await press("page_on", on)
            assert session.lo > lo
            await press("page_back", back)
            assert abs(session.lo - lo) < 1e-6
        await press("last", "end")
        assert session.at == session.scene.axis.hi
        for end, home in (("end", "home"), ("G", "circumflex_accent"), ("dollar_sign", "home")):
            await press("last", end)
            assert session.at == session.scene.axis.hi
            await press("first", home)
            assert session.lo == session.scene.axis.lo
            assert session.window.column(session.at) == 0
        assert seen == {key.id for key in TIMELINE_KEYS}


async def test_with_the_whole_log_in_sight_half_a_window_on_moves_the_cursor(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        session = app.session
        for key, column in (("pagedown", 32), ("pagedown", 64), ("pageup", 32), ("shift+left", 0)):
            await pilot.press(key)
            assert abs(session.window.column(session.at) - column) <= 1, key
            assert abs(session.lo - session.scene.axis.lo) < 1e-9


async def test_zoom_keys_keep_the_cursor_where_it_is(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        session = app.session
        session.put((session.lo + session.hi) / 3)
        for key in ("plus", "equals_sign", "i"):
            length, at, column = session.hi - session.lo, session.at, session.window.column(session.at)
            await pilot.press(key)
            assert session.hi - session.lo < length
            assert session.at == at
            assert abs(session.window.column(session.at) - column) <= 1
        for key in ("minus", "u"):
            length = session.hi - session.lo
            await pilot.press(key)
            assert session.hi - session.lo > length
        for key in ("0", "a"):
            await pilot.press("plus", key)
            assert (session.lo, session.hi) == (session.scene.axis.lo, session.scene.axis.hi)
        await pilot.press("m", "z")
        begin, end = (session.scene.table[name][session.chosen()] for name in ("begin", "end"))
        assert session.lo <= begin < end <= session.hi < session.lo + 2 * (end - begin) + 0.1


async def test_jumps_go_to_the_next_stop_and_back(opened, three_chats):
    async with opened(three_chats) as (app, pilot):
        table = app.session.scene.table
        wanted = {
            ("m", "M"): table.filter(table["miss"]),
            ("e", "E"): table.filter(table["evicted"].fill_null(0) > 0),
            ("r", "R"): table.filter(table["disk_hit"].fill_null(0) > 0),
            ("right_square_bracket", "left_square_bracket"): table,
            ("w", "b"): table,
            ("f", "F"): table.filter(table["row"].is_in(app.findings.all_rows())),
        }
        for (forward, back), stops in wanted.items():
            rows = stops.sort("begin", "row")["row"].to_list()
            app.session.choose(rows[0])
            await pilot.press(forward)
            assert app.session.chosen() == rows[1], forward
            await pilot.press(forward)
            assert app.session.chosen() == rows[2], forward
            await pilot.press(back)
            assert app.session.chosen() == rows[1], back
            app.session.choose(rows[-1])
            await pilot.press(forward)
            assert app.session.chosen() == rows[-1]  # there is no further one


async def test_panes_open_and_close(opened, three_chats):
    async with opened(three_chats) as (app, pilot):
        main = app.main
        assert main.shown == "state"
        await pilot.press("m", "enter")
        await pilot.pause()
        assert main.shown == "request"
        assert "Cache ladder" in screen_text(app.screen)
        await pilot.press("o")
        await pilot.pause()
        assert main.shown == "log"
        assert "prompt start" in screen_text(app.screen) or "live kv cache miss" in screen_text(app.screen)
        await pilot.press("o")
        await pilot.pause()
        assert main.shown == "state"
        await pilot.press("d")
        await pilot.pause()
        assert main.shown == "findings"
        await pilot.press("tab")
        assert app.focused is main.timeline
        await pilot.press("tab")
        assert app.focused is main.query_one("#findings")
        await pilot.press("escape")
        await pilot.pause()
        assert main.shown == "state"
        assert app.focused is main.timeline


async def test_questions_are_asked_and_left(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        for key in ("slash", "g", "colon", "x"):
            await pilot.press(key)
            await pilot.pause()
            assert isinstance(app.screen, Ask), key
            await pilot.press("escape")
            await pilot.pause()
            assert app.screen is app.main
        await pilot.press("c")
        await pilot.pause()
        assert isinstance(app.screen, Policies)
        await pilot.press("escape")
        for key in ("question_mark", "f1"):
            await pilot.press(key)
            await pilot.pause()
            assert isinstance(app.screen, Help)
            await pilot.press(key)  # the key that opened the page closes it
            await pilot.pause()
            assert app.screen is app.main


async def test_axis_follow_copy_and_quit(opened, three_chats):
    async with opened(three_chats) as (app, pilot):
        await pilot.press("t")
        assert app.session.scene.axis.kind == "order"
        assert "by order" in screen_text(app.screen)
        await pilot.press("t")
        assert app.session.scene.axis.kind == "time"
        await pilot.press("v")
        assert app.feed.following
        await pilot.pause()
        assert "following" in screen_text(app.screen)
        await pilot.press("v")
        assert not app.feed.following
        await pilot.press("y")
        assert "ds4scope server.log" in app.clipboard
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert any("press q to leave" in note.message for note in app._notifications)
        await pilot.press("q")
    assert app.return_code == 0


async def test_screenshot_is_an_svg(opened, three_chats, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/nowhere")  # not every machine has a folder for downloads
    async with opened(three_chats, judged=False) as (_, pilot):
        await pilot.press("ctrl+s")
        await pilot.pause(0.5)
        saved = next(tmp_path.glob("*.svg")).read_text()
        assert saved.startswith("<svg")
        assert "slot" in saved


async def test_a_screenshot_that_cannot_be_written_says_why(opened, three_chats, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()  # as a folder that may not be written to, also for root
    async with opened(three_chats, judged=False) as (app, pilot):
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert "No such file" in next(iter(app._notifications)).message


async def test_the_palette_offers_every_key_of_the_main_screen(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        titles = {command.title for command in app.get_system_commands(app.screen)}
        assert {key.text for key in (*MAIN_KEYS, *TIMELINE_KEYS, *APP_KEYS)} <= titles
        await pilot.press("ctrl+p")
        await pilot.press(*"whole")
        await pilot.pause(0.3)
        await pilot.press("plus")  # goes into the palette's input, not to the timeline
        assert app.session.whole_wanted
        await pilot.press("escape")
        run = {command.title: command.callback for command in app.get_system_commands(app.main)}
        await run["to the end"]()
        assert app.session.at == app.session.scene.axis.hi


async def test_help_names_every_key(opened, three_chats):
    async with opened(three_chats, size=(100, 50)) as (app, pilot):
        await pilot.press("question_mark")
        await pilot.pause()
        page = "\n".join("".join(text for text, _ in line) for line in app.screen._lines)
        for key in (*TIMELINE_KEYS, *MAIN_KEYS, *COMPARE_KEYS, *APP_KEYS):
            assert key.text in page


def test_ids_and_keys_are_unique_on_each_screen():
    assert len({key.id for key in ALL_KEYS}) == len(ALL_KEYS)
    for keys in ((*TIMELINE_KEYS, *MAIN_KEYS, *APP_KEYS), (*COMPARE_KEYS, *APP_KEYS)):
        pressed = [one for key in keys for one in key.keys.split(",")]
        assert len(set(pressed)) == len(pressed)


def test_the_documented_keys_are_the_bound_ones(fixtures):
    page = (fixtures.parent / "docs" / "timeline.md").read_text(encoding="utf-8")
    assert key_table() in page
