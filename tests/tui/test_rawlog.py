"""Raw lines: any line of any file, as the file has it, without reading what is not asked for."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.rawlog import RawLog

TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)


def no():
    return False


@settings(max_examples=15, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=3000), st.data(), st.booleans())
def test_lines_are_those_of_the_file(tmp_path_factory, lines, data, ended):
    place = tmp_path_factory.mktemp("raw") / "a.log"
    lines = ["x", *lines, "y"]
    place.write_text("\n".join(lines) + ("\n" if ended else ""))
    file = RawLog([str(place)]).files[0]
    first = data.draw(st.integers(1, len(lines)))
    count = data.draw(st.integers(1, 50))
    assert file.lines(first, count) == lines[first - 1 : first - 1 + count]
    assert file.last() == len(lines)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(["miss", "hit Miss", "hit", ""]), min_size=1, max_size=1500), st.data())
def test_search_finds_the_next_and_the_last_line(tmp_path_factory, lines, data):
    place = tmp_path_factory.mktemp("raw") / "a.log"
    lines = ["first", *lines]
    place.write_text("\n".join(lines) + "\n")
    file = RawLog([str(place)]).files[0]
    at = data.draw(st.integers(1, len(lines)))
    places = [number for number, line in enumerate(lines, 1) if "miss" in line.lower()]
    assert file.find("MISS", at, no) == next((number for number in places if number >= at), None)
    assert file.find_back("miss", at, no) == next(
        (number for number in reversed(places) if number < at), None
    )


def test_packed_and_two_byte_files_read_as_plain_ones(tmp_path):
    text = "1130 17:52:23 ds4-server: chat ctx=0..5:5 prompt start\nzweite Zeile: äöü\n"
    (tmp_path / "a.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "b.log").write_bytes(text.encode("utf-16"))
    (tmp_path / "c.log").write_bytes(b"\xef\xbb\xbf" + text.encode())
    for name in ("a.gz", "b.log", "c.log"):
        file = RawLog([str(tmp_path / name)]).files[0]
        assert file.lines(1, 5) == text.splitlines()


def test_a_long_line_is_cut_and_controls_are_shown(tmp_path):
    place = tmp_path / "a.log"
    place.write_bytes(b"ds4-server: \x1b[31mred\x1b[0m \x1b]0;title\x07 \x08\n" + b"a" * 10_000 + b"\n")
    first, second = RawLog([str(place)]).files[0].lines(1, 2)
    assert first == r"ds4-server: red \e]0;title\x07 \x08"
    assert len(second) < 4200
    assert second.endswith("…")


@pytest.mark.parametrize("stop", [True, False])
def test_a_search_can_be_stopped(tmp_path, stop):
    place = tmp_path / "a.log"
    place.write_text("ds4-server: nothing\n" * 10)
    file = RawLog([str(place)]).files[0]
    assert file.find("nothing", 1, lambda: stop) == (None if stop else 1)


def test_a_search_finds_letters_of_any_script(tmp_path):
    path = tmp_path / "server.log"
    path.write_text("one\nnaïve ÄPFEL 日本\n", encoding="utf-8")
    log = RawLog([str(path)])
    for text in ("ÄPFEL", "Äpfel", "日本", "NAïve"):
        assert log.find(text, (0, 0), no) == (0, 2), text
        assert log.find_back(text, (0, 3), no) == (0, 2), text
    log.close()
