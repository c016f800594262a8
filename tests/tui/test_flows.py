"""Whole flows as a person does them: filter, search, go to, look closer, compare, mouse."""

import pytest
from textual import events

from tui.contest import Contest
from tui.dump import screen_text
from tui.keys import COMPARE_KEYS
from tui.layout import GUTTER


async def answer(pilot, key, text):
    """Press a key that asks, type the answer."""
    await pilot.press(key)
    await pilot.pause()
    pilot.app.screen.query_one("Input").value = text
    await pilot.press("enter")
    await pilot.pause()


async def tried(pilot, answered, text):
    """The same answer without the typing."""
    answered(text)
    await pilot.pause()


FILTERS = {
    "conv=A": ("conv", 0),
    "A": ("conv", 0),
    "slot=1": ("slot", 1),
    "source=disk-text": ("disk_hit", None),
}


async def test_a_filter_shows_only_what_passes(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        for text, (column, value) in FILTERS.items():
            await answer(pilot, "x", text)
            kept = app.session.scene.table.filter(app.session.scene.table["keep"])
            assert 0 < len(kept) < len(app.session.scene.table), text
            assert kept[column].is_not_null().all() if value is None else (kept[column] == value).all(), text
            assert "only " in screen_text(app.screen)
            visited = []
            while app.session.jump("request", True):
                visited.append(app.session.chosen())
            assert set(visited) <= set(kept["row"]), text
            await pilot.press("X", "home")
            assert app.session.scene.kept == len(app.session.scene.table)


async def test_a_filter_by_mechanism_keeps_the_requests_of_its_findings(opened, stolen):
    async with opened(stolen) as (app, pilot):
        await answer(pilot, "x", "why=slot-steal-shared-prefix")
        kept = app.session.scene.table.filter(app.session.scene.table["keep"])["row"].to_list()
        assert kept == sorted(app.findings.mechanisms()["slot-steal-shared-prefix"])


async def test_a_filter_that_cannot_be_says_so_and_changes_nothing(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        for text in (
            *("slot=x", "slot=9", "source=nowhere", "conv=Z", "why=weather", "colour=red", "'"),
            *("A B", "slot=0 slot=1"),
        ):
            await (answer(pilot, "x", text) if text == "slot=x" else tried(pilot, app.main._filtered, text))
            assert app.session.scene.kept == len(app.session.scene.table), text
            assert len(app._notifications) == 1, text
            app.clear_notifications()


async def test_search_finds_lines_forward_back_and_around_the_end(opened, settle, three_chats):
    lines = three_chats.read_text().splitlines()
    places = [number for number, line in enumerate(lines, 1) if "reason=cold" in line]
    assert len(places) >= 2
    async with opened(three_chats, judged=False) as (app, pilot):
        found = []
        await answer(pilot, "slash", "reason=COLD")
        for key in ("n", "n", "N"):
            await settle(app)
            await pilot.pause()
            found.append(app.main.place[1])
            await pilot.press(key)
        await settle(app)
        assert found == [places[0], places[1], places[2 % len(places)]]
        await pilot.pause()
        assert app.main.place[1] == places[1]  # and back
        assert app.main.shown == "log"


async def test_a_search_without_a_match_says_so(opened, settle, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        await answer(pilot, "slash", "no such text [red]here")
        await settle(app)
        await pilot.pause()
        assert "is not there" in next(iter(app._notifications)).message


PLACES = {"request 12": 12, "line 233": 19, "r 3": 3, "17:53:58": None, "+2": None}


async def test_go_to_a_request_a_line_or_a_time(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        session = app.session
        for text, request_number in PLACES.items():
            await answer(pilot, "g", text)
            if request_number is not None:
                row = session.chosen()
                request = app.request(row)
                assert request.request == request_number or request.line <= 233, text
                assert session.at == session.scene.table["begin"][row]
            else:
                assert session.at == pytest.approx(session.scene.axis.parse(text))


async def test_go_to_nowhere_says_what_is_understood(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        at = app.session.at
        for text in (
            *("nonsense", "request 999", "25:99", "line", "line x:1", "+nan", "+inf", "+1e400", "+1:xx"),
            *("-5", "0230 17:53:59", "line " + 30 * "9", "#" + 30 * "9"),
        ):
            await (answer(pilot, "g", text) if text == "nonsense" else tried(pilot, app.main._gone, text))
            assert app.session.at == at, text
            said = next(iter(app._notifications)).message
            assert not any(word in said for word in ("float", "int()", "0..23", "out of range")), said
            app.clear_notifications()


async def test_a_bare_number_is_a_request_on_either_axis(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        for axis in ("time", "order"):
            assert app.session.scene.axis.kind == axis
            for text in ("4", "#4", "r4"):
                app.session.edge(last=False)
                await tried(pilot, app.main._gone, text)
                assert app.request(app.session.chosen()).request == 4, text
            await pilot.press("t")


async def test_findings_and_timeline_are_linked_both_ways(opened, stolen):
    async with opened(stolen) as (app, pilot):
        await pilot.press("d")
        await pilot.pause()
        pane = app.main.query_one("#findings")
        linked = next(number for number, rows in enumerate(app.findings.places) if rows)
        pane.highlighted = None
        pane.highlighted = linked
        await pilot.pause()
        assert app.session.chosen() == app.findings.places[linked][0]  # list -> timeline
        await pilot.press("tab", "home")
        app.session.choose(app.findings.places[linked][-1])
        app.main.timeline.changed()
        await pilot.pause()
        assert app.findings.at_row(app.session.chosen()) == pane.highlighted  # timeline -> list


async def test_raw_lines_and_timeline_are_linked_both_ways(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        await pilot.press("m", "o")
        await pilot.pause()
        pane = app.main.query_one("#log")
        request = app.request(app.session.chosen())
        assert set(pane.lit) == set(request.lines)
        shown = screen_text(app.screen)
        assert f"{request.line} ▶" in shown
        await pilot.click("#log", offset=(20, 4))
        await pilot.pause()
        row = app.session.chosen()
        assert app.request(row).line <= app.main.place[1]


async def test_mouse_chooses_zooms_and_pans(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        session, timeline = app.session, app.main.timeline
        y = next(number for number, row in enumerate(timeline.rows) if row.kind == "who" and row.lane == 1)
        await pilot.click("#timeline", offset=(GUTTER + 30, y))
        assert session.window.column(session.at) == 30
        assert session.lane == 1
        length = session.hi - session.lo
        await wheel(pilot, "MouseScrollUp", 30)
        assert session.hi - session.lo < length
        zoomed, lo = session.hi - session.lo, session.lo
        await wheel(pilot, "MouseScrollDown", 30, shift=True)
        assert session.lo > lo
        await wheel(pilot, "MouseScrollDown", 30)
        assert session.hi - session.lo > zoomed
        await pilot.double_click("#timeline", offset=(GUTTER + 30, y))
        await pilot.pause()
        assert app.main.shown == "request"


async def test_a_click_on_a_letter_chooses_the_request_that_begins_there(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        who = next(row for row in app.main.timeline.rows if row.kind == "who" and row.lane == 1)
        y = app.main.timeline.rows.index(who)
        columns = [column for column, char in enumerate(who.text) if char in "ABC"]
        for column in columns:
            await pilot.click("#timeline", offset=(GUTTER + column, y))
            row = app.session.chosen()
            assert row is not None
            assert app.request(row).conversation == who.text[column]
            assert app.session.window.column(app.session.scene.table["begin"][row]) == column
        await pilot.press("home")
        assert app.request(app.session.chosen()).request == 2  # the first of this lane


async def test_a_filter_shows_where_the_others_sat_as_nothing(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        await answer(pilot, "x", "A")
        for row in app.main.timeline.rows:
            assert row.kind != "who" or set(row.text) <= set("A─ ")
        assert "only conv=A" in screen_text(app.screen)
        assert "misses" in screen_text(app.screen).splitlines()[1]  # the sums of what is shown


async def test_dragging_moves_the_window_and_leaves_the_lane(opened, three_chats):
    async with opened(three_chats, judged=False) as (app, pilot):
        session = app.session
        session.zoom(0.25)
        session.pan(40)
        lo, cell = session.lo, session.window.cell
        await pilot.mouse_down("#timeline", offset=(GUTTER + 30, 2))
        await pilot.hover("#timeline", offset=(GUTTER + 20, 2))
        await pilot.mouse_up("#timeline", offset=(GUTTER + 20, 2))
        assert session.lo == pytest.approx(lo + 10 * cell, rel=1e-6)
        session.lane, at = 1, session.at
        await pilot.mouse_down("#timeline", offset=(GUTTER + 20, 2))
        await pilot.hover("#timeline", offset=(GUTTER + 22, 2))
        await pilot.mouse_up("#timeline", offset=(GUTTER + 22, 2))
        await pilot._post_mouse_events([events.Click], "#timeline", offset=(GUTTER + 22, 2), button=1)
        assert session.lane == 1
        assert session.at == pytest.approx(at - 2 * cell, rel=1e-6)


async def wheel(pilot, kind, column, *, shift=False):
    """Turn the wheel over a column of the timeline."""
    timeline = pilot.app.main.timeline
    x, y = column + GUTTER, 2
    event = getattr(events, kind)(timeline, x, y, 0, 0, 0, shift, False, False, x, y)
    timeline.post_message(event)
    await pilot.pause()


async def test_a_policy_is_replayed_beside_the_log_and_stepped_through(opened, settle, stolen):
    """The reuse-aware choice leaves the empty slot to the second chat: no miss is left (issue #1069)."""
    async with opened(stolen, size=(100, 34)) as (app, pilot):
        await pilot.press("c")
        await pilot.pause()
        pilot.app.screen.query_one("Input").focus()
        pilot.app.screen.query_one("Input").value = "ds4-2026-09-reuse"
        await pilot.press("enter")
        await settle(app)
        await pilot.pause(0.1)
        contest = app.screen
        assert isinstance(contest, Contest)
        assert contest.versus.own.outcome.totals.live_misses == 15
        assert contest.versus.other.outcome.totals.live_misses == 0
        text = screen_text(contest)
        assert "time waited for answers" in text
        assert "scores" in text or "›0:" in text
        first = contest.number
        assert first == min(contest.versus.different)
        for key, expected in (("n", first + 1), ("p", first), ("d", first + 1), ("D", first)):
            await pilot.press(key)
            assert contest.number == expected, key
        for key, expected in (("right", first + 1), ("h", first), ("l", first + 1), ("left", first)):
            await pilot.press(key)
            assert contest.number == expected, key
        await pilot.press("ctrl+p")
        await pilot.pause()
        titles = {command.title for command in app.get_system_commands(contest)}
        assert {key.text for key in COMPARE_KEYS} <= titles
        await pilot.press("escape")
        await pilot.press("plus")
        assert (contest.seen.lo, contest.seen.hi) == (contest.other.lo, contest.other.hi)
        assert contest.seen.hi - contest.seen.lo < contest.seen.scene.axis.hi - contest.seen.scene.axis.lo
        await pilot.press("0", "t")
        assert contest.seen.scene.axis.kind == "order"
        await pilot.press("escape")
        assert app.screen is app.main


async def test_the_servers_own_options_can_be_compared(opened, settle, fixtures):
    """With ten times the budget nothing is deleted from disk; a plug-in is named without its folder."""
    async with opened(fixtures / "captures/g-disk-pressure-400mb/server.log", judged=False) as (app, pilot):
        app._compare("kv-disk-space-mb=4000")
        await settle(app)
        await pilot.pause(0.1)
        versus = app.screen.versus
        assert versus.own.outcome.totals.evictions > versus.other.outcome.totals.evictions == 0
        await pilot.press("escape")


async def test_scores_are_those_of_the_replays_own_decisions(opened, settle, stolen):
    async with opened(stolen) as (app, pilot):
        app._compare("scheduler=reuse-aware")
        await settle(app)
        await pilot.pause(0.1)
        versus = app.screen.versus
        for number in versus.numbers:
            decision = versus.other.dispatched[number]
            assert decision.slot == versus.other.served[number].slot
            known = [score for score in decision.scores if score is not None]
            assert decision.scores[decision.slot] == max(known)


POLICIES = (
    *("nowhere.py:Nothing", "scheduler=none", "slots=x", "slots=0", "slots=99999999", "foo=bar", "blah", ""),
    *("ctx=x", "ctx=1e3", "kv_disk=maybe", "server=none"),
)


async def test_a_policy_that_does_not_work_says_so(opened, settle, stolen):
    async with opened(stolen, judged=False) as (app, pilot):
        for policy in POLICIES:
            await (
                answer(pilot, "c", policy) if policy in ("blah", "") else tried(pilot, app._compare, policy)
            )
            await settle(app)
            await pilot.pause(0.02)
            assert not isinstance(app.screen, Contest), policy
            said = next(iter(app._notifications)).message
            assert not any(word in said for word in ("Error", "invalid literal")), said
            app.clear_notifications()
            if app.screen is not app.main:
                await pilot.press("escape")


async def test_a_policy_is_typed_at_once_or_chosen_below(opened, settle, stolen):
    async with opened(stolen, judged=False) as (app, pilot):
        await pilot.press("c", *"slots=3", "enter")
        await settle(app)
        await pilot.pause(0.1)
        assert app.screen.versus.other.slots == 3
        await pilot.press("escape", "c", "down", "down", "enter")
        await settle(app)
        await pilot.pause(0.1)
        assert app.screen.versus.other.name == "ds4-2026-07"


PLUGINS = """
from replay.seams import Offer, Scheduler

class Raises(Scheduler):
    def score(self, offer: Offer) -> int:
        raise RuntimeError("bad \\x1b]0;OWNED\\x07 [red]thing")

class Leaves(Scheduler):
    def score(self, offer: Offer) -> int:
        raise SystemExit(3)
"""


@pytest.mark.parametrize(("name", "said"), [("Raises", "[red]thing"), ("Leaves", "SystemExit: 3")])
async def test_a_plugin_that_fails_is_said_in_plain_text(opened, settle, stolen, tmp_path, name, said):
    (tmp_path / "mine.py").write_text(PLUGINS)
    async with opened(stolen, judged=False) as (app, pilot):
        app._compare(f"{tmp_path / 'mine.py'}:{name}")
        await settle(app)
        await pilot.pause(0.1)
        assert app.is_running
        assert app.screen is app.main
        message = next(iter(app._notifications)).message
        assert message.startswith("replaying: the policy failed: ")
        assert said in message
        assert "\x1b" not in message


async def test_several_files_are_one_timeline_with_their_own_line_numbers(opened, fixtures):
    one = fixtures / "captures/c-single-slot-11k/server.log"
    two = fixtures / "captures/d-3conv-2slots/server.log"
    async with opened(one, two, judged=False) as (app, pilot):
        table = app.session.scene.table
        assert set(table["file"]) == {0, 1}
        assert len(app.session.scene.restarts) == 1
        app.session.choose(len(table) - 1)
        await pilot.press("o")
        await pilot.pause()
        line = two.read_text().splitlines()[int(table["line"][-1]) - 1]
        assert line[:50] in screen_text(app.screen)


async def test_a_packed_log_opens_as_the_plain_one(opened, three_chats, tmp_path):
    import gzip

    packed = tmp_path / "server.log.gz"
    packed.write_bytes(gzip.compress(three_chats.read_bytes()))
    async with opened(three_chats, judged=False) as (plain, _):
        expected = plain.session.scene.table["line"].to_list()
    async with opened(packed, judged=False) as (app, pilot):
        assert app.session.scene.table["line"].to_list() == expected
        await pilot.press("o")
        await pilot.pause()
        assert "ds4-server: chat ctx=" in screen_text(app.screen)


async def test_a_report_without_a_clock_is_shown_in_order_and_says_so(opened, settle, tmp_path):
    log = tmp_path / "excerpt.log"
    log.write_text(
        "ds4-server: live kv cache miss live=90000 prompt=12000 common=27 reason=token-mismatch\n"
        "ds4-server: chat ctx=0..12000:12000 prompt start\n"
        "ds4-server: chat ctx=12100..12300:200 prompt start\n"
    )
    async with opened(log) as (app, _):
        assert app.session.scene.axis.kind == "order"
        await settle(app)
        assert app.findings.found  # what is wrong comes first; that widths are no times is said beside it
        lines = screen_text(app.screen).splitlines()
        assert lines[0].endswith("by order, not by time")
        assert lines[1].strip().startswith(app.findings.headline()[:40])


async def test_the_traces_token_window_is_shown_where_prompt_and_live_state_part(opened, fixtures):
    folder = fixtures / "captures/e-tail-mismatch-ds4"
    async with opened(folder / "server.log", size=(160, 60), traces=(str(folder / "trace.txt"),)) as (
        app,
        pilot,
    ):
        while app.session.jump("miss", True):
            request = app.request(app.session.chosen())
            if request.mismatch_first is not None and app.feed.trace(request.request).window:
                break
        await pilot.press("enter")
        await pilot.pause()
        text = screen_text(app.screen)
        assert f"part at token {request.mismatch_first:,}" in text
        assert "!=" in text


async def test_search_and_go_to_cross_from_file_to_file(opened, settle, three_chats, stolen):
    """Forward through both files, around the end, and back; a line of another file is named NAME:LINE."""
    kept = {}
    for number, log in enumerate((three_chats, stolen)):
        lines = log.read_text().splitlines()
        kept[number] = [n for n, line in enumerate(lines, 1) if "listening on" in line]
    places = [(number, line) for number, lines in kept.items() for line in lines]
    assert {number for number, _ in places} == {0, 1}
    async with opened(three_chats, stolen, judged=False) as (app, pilot):
        found = []
        await answer(pilot, "slash", "listening on")
        for key in ("n", "n", "N"):
            await settle(app)
            await pilot.pause()
            found.append(app.main.place)
            await pilot.press(key)
        await settle(app)
        await pilot.pause()
        found.append(app.main.place)
        first, second = places  # the cursor stands on the first request, behind the first place
        assert found == [second, first, second, first]
        assert "listening on" in screen_text(app.screen)
        await answer(pilot, "g", "line server.log:20")
        assert len(app._notifications) == 1  # both files have that name
        await answer(pilot, "g", f"line {three_chats.parent.name}/server.log:20")
        assert app.main.place == (0, 20)
        await answer(pilot, "g", "line 21")
        assert app.main.place == (0, 21)
        assert int(app.session.scene.table["file"][app.session.chosen()]) == 0
