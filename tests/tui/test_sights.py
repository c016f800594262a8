"""What is in sight: lanes that do not all fit, logs with nothing to draw, one of a thing, several processes."""

from tui.dump import screen_text
from tui.layout import first_lane

BATCHED = (
    "1130 17:52:23 ds4-server: batched mode enabled resident_sessions={} prefill_quantum=2048 "
    "mixed_prefill_quantum=128 decode_coalesce_us=2000\n"
)


def many_slots(slots):
    """Two overlapping requests for each of many slots."""
    lines = [BATCHED.format(slots)]
    for number in range(2 * slots):
        at, prompt = f"1130 17:53:{number % 60:02} ds4-server: ", 1000 + 37 * number
        chat = f"{at}chat ctx=0..{prompt}:{prompt}"
        lines += [f"{chat} prompt start\n", f"{chat} prompt done 0.5s\n", f"{chat} gen=9 finish=stop 1.1s\n"]
    return "".join(lines)


async def test_the_lane_of_the_chosen_request_is_in_sight(opened, tmp_path):
    log = tmp_path / "server.log"
    log.write_text(many_slots(16))
    async with opened(log, judged=False) as (app, pilot):
        session, timeline = app.session, app.main.timeline

        def drawn():
            return [row.lane for row in timeline.rows if row.lane >= 0]

        assert len(session.scene.lanes) == 16
        for row in (31, 0, 15, 3, 20):
            session.choose(row)
            timeline.changed()
            await pilot.pause()
            assert session.lane in drawn()
        session.change_lane(14 - session.lane)
        await pilot.press("down")
        await pilot.pause()
        assert drawn()[-1] == session.lane == 15
        above, below = drawn()[0], 15 - drawn()[-1]
        assert f"time ↑{above} " in screen_text(app.screen)
        assert below == 0
        await pilot.resize_terminal(80, 48)
        await pilot.pause()
        assert set(drawn()) == set(range(16))  # there is room for all now
        assert "↑" not in screen_text(app.screen)


def test_lanes_move_as_little_as_they_must():
    assert first_lane(3, 12, 2, 1) == 0
    assert first_lane(16, 11, 0, 9) == 0
    assert first_lane(16, 11, 0, 10) == 1
    assert first_lane(16, 11, 6, 5) == 5
    assert first_lane(0, 5, 0, 0) == 0


async def test_what_was_found_is_said_though_no_request_is_there(opened, fixtures):
    async with opened(fixtures / "cases/010-retyped-eviction-list/input.md") as (app, pilot):
        assert not len(app.session.scene.table)
        assert app.findings.found
        assert app.findings.headline()[:30] in screen_text(app.screen)
        for key in ("m", "d", "enter", "o", "z", "right", "pagedown", "plus", "t", "home", "down"):
            await pilot.press(key)
        assert app.is_running


async def test_one_request_is_one(opened, fixtures):
    async with opened(fixtures / "cases/095-night-gap/input.md", judged=False) as (app, _):
        assert "· 1 request ·" in screen_text(app.screen)


async def test_the_slots_are_those_of_the_largest_process(opened, fixtures):
    """Two slots, and one after each of two restarts."""
    async with opened(fixtures / "captures/h-sigterm-busy/server.log", judged=False) as (app, _):
        assert "2 slots" in screen_text(app.screen).splitlines()[0]
        assert [lane.name for lane in app.session.scene.lanes] == ["slot 0", "slot 1"]


async def test_nothing_of_a_request_is_hidden_behind_the_scrollbar(opened, three_chats):
    async with opened(three_chats, size=(144, 36), judged=False) as (app, pilot):
        app.session.choose(15)
        await pilot.press("enter")
        await pilot.pause()
        pane = app.main.query_one("#request")
        assert pane.show_vertical_scrollbar
        room = pane.scrollable_content_region.width
        assert all(strip.cell_length <= room for strip in pane._strips)
