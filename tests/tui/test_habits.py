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
