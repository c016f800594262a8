"""--since and --until: a stretch by stamps that bear no year."""

import pytest

from parser.errors import InputError, UsageError
from parser.events import read_events
from parser.reading import read


def log(tmp_path, stamps):
    path = tmp_path / "server.log"
    path.write_text(
        "".join(
            f"{stamp} ds4-server: decode batch count={n}\n" if stamp else "ds4: note\n"
            for n, stamp in enumerate(stamps)
        )
    )
    return path


def counts(path, lane="fast", **bounds):
    return [
        e.get("count")
        for block in read_events([path], lane=lane, **bounds)
        for e in block.rows("decode_batch", "foreign")
    ]


DAY = ["0915 09:00:00", "0915 10:00:00", "", "0915 11:00:00", "0916 08:00:00"]


@pytest.mark.parametrize("lane", ["fast", "lark"])
@pytest.mark.parametrize(
    ("bounds", "want"),
    [
        ({}, [0, 1, None, 3, 4]),
        ({"since": "0915 10:00:00"}, [1, None, 3, 4]),
        ({"since": "10:00"}, [1, None, 3, 4]),
        ({"since": "9:30"}, [1, None, 3, 4]),
        ({"until": "0915 10:00"}, [0, 1, None]),
        ({"until": "0915"}, [0, 1, None, 3]),
        ({"since": "0915 10:30", "until": "0916"}, [3, 4]),
        ({"since": "0915 10:00:00", "until": "0915 10:00:00"}, [1, None]),
    ],
)
def test_bounds(tmp_path, lane, bounds, want):
    assert counts(log(tmp_path, DAY), lane, **bounds) == want


def test_a_stretch_that_nothing_lies_in_is_said(tmp_path):
    with pytest.raises(InputError, match="nothing of the log lies in --since 0917"):
        counts(log(tmp_path, DAY), since="0917")
    with pytest.raises(InputError, match="--since 0915 12:00 --until 0915 13:00"):
        counts(log(tmp_path, DAY), since="0915 12:00", until="0915 13:00")


def test_a_log_over_new_year_goes_on(tmp_path):
    path = log(tmp_path, ["1230 10:00:00", "1231 23:59:59", "0101 00:00:01", "0102 10:00:00"])
    assert counts(path, since="1231") == [1, 2, 3]
    assert counts(path, until="0101") == [0, 1, 2]
    assert counts(path, since="0101", until="0101 12:00") == [2]


def test_stamps_may_be_a_second_out_of_order(tmp_path):
    path = log(tmp_path, ["0915 10:00:01", "0915 10:00:00", "0915 10:00:02"])
    assert counts(path, since="0915 10:00:01") == [0, 1, 2]


def test_what_lies_behind_the_stretch_is_not_read(tmp_path, monkeypatch):
    from parser import events

    path = log(tmp_path, ["0915 10:00:00"] * 4000 + ["0916 10:00:00"] * 4000)
    read = []
    original = events.iter_blocks

    def small(source, max_bytes):
        for block in original(source, block_bytes=8000):
            read.append(block.line)
            yield block

    monkeypatch.setattr(events, "iter_blocks", small)
    assert len(counts(path, until="0915")) == 4000
    assert max(read) < 7000


@pytest.mark.parametrize("text", ["yesterday", "", "2026-09-15", "25", "10:00:00:00"])
def test_a_bound_that_is_no_stamp(text):
    with pytest.raises(UsageError):
        list(read_events(["x.log"], since=text))


def test_a_stretch_of_a_pasted_log(tmp_path):
    report = tmp_path / "issue.md"
    lines = [f"0915 10:00:0{n} ds4-server: chat ctx=0..{n}:{n} prompt start" for n in range(1, 5)]
    report.write_text("It is slow:\n\n```\n" + "\n".join(lines) + "\n```\n")

    assert [r.prompt_tokens for r in read([str(report)], since="10:00:03").requests] == [3, 4]
    with pytest.raises(InputError, match="nothing of the log"):
        read([str(report)], since="0916")
