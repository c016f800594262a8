"""A person's own keys and theme: what works, and what is said where the file is wrong."""

import pytest

from parser.errors import UsageError
from tui.keys import Habits, load_habits


def test_no_file_means_the_defaults(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load_habits() == Habits()


def test_the_usual_place_is_read(monkeypatch, tmp_path):
    place = tmp_path / "ds4scope" / "keys.toml"
    place.parent.mkdir()
    place.write_text('theme = "nord"\n[keys]\nnext_miss = "ctrl+n"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load_habits() == Habits({"next_miss": "ctrl+n"}, "nord")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[keys]\nnext_mis = 'm'", "no key is called 'next_mis'"),
        ("[keys]\nnext_miss = 1", "[keys] needs lines like"),
        ("keys = 1", "[keys] needs lines like"),
        ("colour = 'red'", "unknown setting 'colour'"),
        ("[keys", "cannot read the key file"),
        ("theme = 3", "theme needs a name"),
        ("[keys]\nnext_miss = 'ctlr+n'", "there is no key 'ctlr+n'"),
        ("[keys]\nnext_miss = 'zzfoo'", "there is no key 'zzfoo'"),
        ("[keys]\nnext_miss = 'j,y'\nzoom_in = 'y'", "'y' is given to zoom_in and to next_miss"),
    ],
)
def test_a_wrong_file_says_what_is_wrong_and_where(tmp_path, text, said):
    place = tmp_path / "keys.toml"
    place.write_text(text)
    with pytest.raises(UsageError) as error:
        load_habits(str(place))
    assert said in str(error.value)
    assert str(place) in str(error.value)


def test_a_named_file_must_exist(tmp_path):
    with pytest.raises(UsageError):
        load_habits(str(tmp_path / "none.toml"))


async def test_rebound_keys_work_and_the_old_ones_do_not(opened, three_chats):
    async with opened(three_chats, habits=Habits({"next_miss": "ctrl+n"}, "textual-light")) as (app, pilot):
        assert app.theme == "textual-light"
        before = app.session.chosen()
        await pilot.press("m")
        assert app.session.chosen() == before
        await pilot.press("ctrl+n")
        assert app.session.chosen() != before
        assert app.session.scene.table["miss"][app.session.chosen()]


def habits_of(tmp_path, text):
    place = tmp_path / "keys.toml"
    place.write_text(f"[keys]\n{text}")
    return load_habits(str(place))


def test_keys_are_understood_as_a_person_writes_them(tmp_path):
    keys = habits_of(
        tmp_path, "zoom_in = 'plus, f5'\nsearch = '?'\nnext_miss = 'ctrl+n'\nlast = 'shift+end'"
    ).keys
    assert keys["zoom_in"] == "plus,f5"
    assert keys["search"] == "question_mark"
    assert keys["help"] == "f1"  # what was given away is gone there


def test_each_screen_has_its_own_keys(tmp_path):
    keys = habits_of(tmp_path, "next_decision = 'm'").keys
    assert keys == {"next_decision": "m"}


async def test_a_key_given_to_something_else_does_only_that(opened, three_chats, tmp_path):
    habits = habits_of(tmp_path, "zoom_in = 'plus,z'\nhelp = 'H'\nnext_eviction = ''")
    async with opened(three_chats, habits=habits, judged=False) as (app, pilot):
        length = app.session.hi - app.session.lo
        await pilot.press("z")
        assert app.session.hi - app.session.lo == length / 2  # not zoomed to the request
        at = app.session.at
        await pilot.press("e")
        assert app.session.at == at  # no key for it any more
        await pilot.press("H")
        await pilot.pause()
        page = "\n".join("".join(text for text, _ in line) for line in app.screen._lines)
        for what, shown in {
            "this page": ["H"],
            "zoom in at the cursor": ["+", "z"],
            "zoom to the chosen request": ["–"],
            "next eviction": ["–"],
        }.items():
            assert any(line.split()[: len(shown)] == shown for line in page.split("\n") if what in line), what
        await pilot.press("H")
        await pilot.pause()
        assert app.screen is app.main
