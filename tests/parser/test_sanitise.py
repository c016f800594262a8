"""Nothing from a log steers a terminal, turns a line of text round, or hides."""

import unicodedata

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parser.sanitise import sanitise

HOSTILE = {
    "colour": ("\x1b[31mred", "\\e[31mred"),
    "title": ("\x1b]0;owned\x07", "\\e]0;owned\\x07"),
    "C1": ("a\x9b2Jb", "a\\x9b2Jb"),
    "backspace": ("ok\b\bno", "ok\\x08\\x08no"),
    "return": ("good\rbad", "good\\rbad"),
    "newline": ("a\nb", "a\\nb"),
    "tab": ("a\tb", "a b"),
    "nul": ("a\0b", "a\\0b"),
    "delete": ("a\x7fb", "a\\x7fb"),
    "bidi": ("a\u202eb\u2066c", "a\\u{202e}b\\u{2066}c"),
    "line separator": ("a\u2028b\u2029c", "a\\u{2028}b\\u{2029}c"),
    "zero width": ("a\u200bb\u200dc\ufeff", "a\\u{200b}b\\u{200d}c\\u{feff}"),
    "soft hyphen": ("a\u00adb", "a\\xadb"),
    "tags": ("a\U000e0041b", "a\\u{e0041}b"),
    "surrogate": ("a\ud800b", "a\\u{d800}b"),
    "plain": ("GLM 5 → größer 日本", "GLM 5 → größer 日本"),
}


@pytest.mark.parametrize(("text", "shown"), HOSTILE.values(), ids=HOSTILE)
def test_signs_are_written_out(text, shown):
    assert sanitise(text) == shown


def test_lines_may_stay_lines():
    assert sanitise("a\nb\r", lines=True) == "a\nb\\r"


@given(st.text())
def test_nothing_but_visible_signs_is_left(text):
    shown = sanitise(text)
    assert not any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") for sign in shown)
    assert sanitise(shown) == shown


@given(st.text(max_size=60))
def test_a_terminal_shows_it_where_it_is_printed(text):
    screen = pyte.Screen(1000, 3)
    stream = pyte.Stream(screen)
    shown = sanitise(text)
    stream.feed(f"[{shown}]")
    assert screen.cursor.y == 0
    assert screen.title == ""
    assert screen.display[1].strip() == screen.display[2].strip() == ""
