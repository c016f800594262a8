"""Whatever stands in front of a line, it says the same: stamp, kind and fields do not change."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parser.events import parse_line, read_events
from parser.wrappers import uncoloured, unwrap, unwrap_column

STAMP = "1130 17:52:18"
LINES = [
    f"{STAMP} ds4-server: chat ctx=0..1265:1265 TOOLS prompt start",
    f"{STAMP} ds4-server: kv cache hit text tokens=1086 text=6121 quant=2 key=token-text load=10.2 ms file=/kv/a b.kv",
    f"{STAMP} slot 1: request reuses nothing; evicting checkpoint (500 tokens, idle 12 s, stale)",
    f"{STAMP} ds4-server: tool parse recovered loose nested parameter name=write",
    "ds4: Metal mapped mmaped model as 3 overlapping shared buffers",
    "ds4-server: decode batch count=1 elapsed=1.645 ms status=ok",
    "ds4-tp: big gate window barrier failed",
]


def journald(line: str) -> str:
    return json.dumps({"__REALTIME_TIMESTAMP": "1", "MESSAGE": line, "_PID": "7"})


def journald_bytes(line: str) -> str:
    return json.dumps({"MESSAGE": list(f"\x1b[36m{line}\x1b[0m".encode()), "_PID": "7"})


def docker_json(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-08-19T09:31:14.1Z"})


def coloured(line: str) -> str:
    head, _, text = line.partition("ds4-server: ")
    return f"{head}\x1b[38;5;208mds4-server: {text}\x1b[0m" if text else f"\x1b[32m{line}\x1b[0m"


WRAPPERS = {
    "colour": coloured,
    "crlf": "{}\r",
    "syslog": "Aug 19 09:31:14 node7 ds4-server[4121]: {}",
    "syslog, one digit": "Sep  4 07:05:31 localhost ds4: {}",
    "rfc 5424": "<30>1 2026-08-19T09:31:14.123Z node7 ds4-server 4121 - - {}",
    "journald": "Aug 19 09:31:14.123456 node7 ds4-server[4121]: {}",
    "journald short-iso": "2026-08-19T09:31:14+0200 node7 ds4-server[4121]: {}",
    "journald monotonic": "[12345.678901] node7 ds4-server[4121]: {}",
    "journald json": journald,
    "journald json, bytes": journald_bytes,
    "docker json-file": docker_json,
    "docker logs -t": "2026-08-19T09:31:14.123456789Z {}",
    "compose": "ds4-1  | {}",
    "cri": "2026-08-19T09:31:14.123456789Z stderr F {}",
    "pm2": "0|ds4-server  | {}",
    "ts": "Aug 19 09:31:14 {}",
    "ts iso": "2026-08-19T09:31:14 {}",
    "ts epoch": "1785432000.123456 {}",
    "tag": "[server] {}",
    "two wrappers": "ds4-1  | [server] {}",
    "quote": "> {}",
    "quotes": "> > {}",
    "indented": "    {}",
    "tabs": "\t{}",
}


def wrapped(line, wrapper):
    return wrapper(line) if callable(wrapper) else wrapper.format(line)


def said(event):
    return event.stamp, event.kind, event.rule, dict(event.fields), event.text


@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize("line", LINES, ids=[line[-24:] for line in LINES])
def test_a_wrapper_changes_nothing(line, wrapper):
    assert said(parse_line(wrapped(line, wrapper))) == said(parse_line(line))


@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize("lane", ["fast", "lark"])
def test_a_whole_log_behind_a_wrapper(tmp_path, wrapper, lane):
    plain, behind = tmp_path / "plain.log", tmp_path / "behind.log"
    plain.write_text("\n".join(LINES) + "\n", newline="")
    behind.write_text("".join(wrapped(line, wrapper) + "\n" for line in LINES), newline="")
    assert events(behind, lane) == events(plain, "lark")


def events(path, lane):
    return [said(event) for log in read_events([path], lane=lane) for event in log.rows(*log.counts)]


@pytest.mark.parametrize(
    "prefix", ["14:", "14-", "server.log:", "logs/server.log:14:", "server.log.1-14-", "./a/ds4.txt:"]
)
def test_grep_numbers_and_names(prefix):
    for line in LINES[:2]:
        assert said(parse_line(prefix + line)) == said(parse_line(line))


@pytest.mark.parametrize(
    ("line", "stamp"),
    [
        ("09:12:40 live kv cache miss live=5 prompt=6 common=4", "09:12:40"),
        ("[09:12:40] live kv cache miss live=5 prompt=6 common=4", "09:12:40"),
        ("14:09:12:40 live kv cache miss live=5 prompt=6 common=4", "09:12:40"),
        ("live kv cache miss live=5 prompt=6 common=4", None),
        ("ds4-server: live kv cache miss live=5 prompt=6 common=4", None),
        ("915 10:00:01 ds4-server: live kv cache miss live=5 prompt=6 common=4", "915 10:00:01"),
        ("00:00:12 0915 10:00:01 ds4-server: live kv cache miss live=5 prompt=6 common=4", "0915 10:00:01"),
    ],
)
def test_stamps_in_full_in_part_or_not_at_all(line, stamp):
    event = parse_line(line)
    assert (event.kind, event.stamp) == ("live_miss", stamp)


def test_a_wrappers_own_time_is_no_stamp_of_the_server():
    assert parse_line("2026-08-19T09:31:14Z kv cache stored tokens=5 trimmed=0 reason=evict").stamp is None


@pytest.mark.parametrize("lane", ["fast", "lark"])
def test_a_glued_stamp_starts_a_new_line(tmp_path, lane):
    """The server writes stamp, text and newline in three calls; others write to the same stderr meanwhile."""
    log = tmp_path / "server.log"
    first = "tensor parallelism bound: rank 0, 50/50 expert split, rdma transport"
    log.write_text(
        f"{first}{LINES[0]}\n{STAMP} ds4: something failed\n{STAMP} {STAMP} ds4-server: prompt start\n"
    )
    found = [
        (e.line, e.offset, e.length, e.kind, e.stamp)
        for b in read_events([log], lane=lane)
        for e in b.rows(*b.counts)
    ]
    end = len(first) + len(LINES[0]) + 1
    assert found[:3] == [
        (1, 0, len(first), "startup", None),
        (1, len(first), len(LINES[0]), "prompt_start", STAMP),
        (2, end, 35, "foreign", STAMP),
    ]
    assert found[-1][3:] == ("prompt_start", STAMP)


def test_one_expression_serves_a_line_and_a_column():
    lines = [uncoloured(wrapped(line, wrapper)) for line in LINES for wrapper in WRAPPERS.values()]
    import polars as pl

    assert list(unwrap_column(pl.Series(lines)).iter_rows()) == [unwrap(line) for line in lines]


@settings(max_examples=200)
@example(["[", "10:00:01 ", "x", "]"])
@given(
    st.lists(
        st.sampled_from(
            [*"[]>|:-. 0123456789", "Aug 19 ", "10:00:01 ", "0915 ", "ds4-server: ", "x", "é", "[a] ", "> "]
        ),
        max_size=14,
    )
)
def test_one_expression_serves_any_line(parts):
    import polars as pl

    line = uncoloured("".join(parts))
    assert unwrap_column(pl.Series([line, "x"])).row(0) == unwrap(line)


@pytest.mark.parametrize(
    "text",
    [
        " " * 40_000,
        "> " * 20_000,
        "Aug 19 09:31:14 h p[1]: " * 2000,
        "a-" * 30_000,
        "[a] " * 15_000,
        "12:" * 20_000,
    ],
)
def test_no_line_is_tried_very_many_ways(text):
    """A wrong expression would need minutes here (the suite has a limit, this test has no clock)."""
    unwrap(uncoloured(text + "x"))
