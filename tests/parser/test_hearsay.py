"""What people say in their own words becomes typed statements with units, and no event."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parser.digest import digest, facts, number
from parser.event import KINDS
from parser.events import parse_lines
from parser.report import read_text
from parser.said import errors, figures, options


def parse(line):
    return next(parse_lines([line]).rows(*KINDS))


def heard(text, *kinds):
    """(kind, fields) of what a report says, of these kinds (all but prose and figures where none is named)."""
    _, hearsay = read_text(text.encode(), parse)
    return [
        (one.kind, dict(one.fields))
        for one in hearsay
        if one.kind in kinds or (not kinds and one.kind not in ("prose", "figure"))
    ]


def events(text):
    lines, _ = read_text(text.encode(), parse)
    return [event.kind for event in map(parse, lines) if event.kind not in ("foreign", "unknown")]


@pytest.mark.parametrize(
    ("line", "kind", "fields"),
    [
        ("10:02:11  stored  10240 continued  size=157.35 MiB", "stored",
         {"stamp": "10:02:11", "tokens": 10240, "reason": "continued", "size_mib": 157.35}),
        ("10:02:11  stored 10k continued, 2 GB", "stored",
         {"stamp": "10:02:11", "tokens": 10000, "reason": "continued", "size_mib": 2048.0}),
        ("10:03:37  evicted 20480 hits=0", "evicted", {"stamp": "10:03:37", "tokens": 20480, "hits": 0}),
        ("evicted: 20480 (hits 3)", "evicted", {"tokens": 20480, "hits": 3}),
        ("   evicted disk-cache-full tokens=548   hits=21 size=30.06 MiB   (shared header)", "evicted",
         {"tokens": 548, "hits": 21, "size_mib": 30.06, "reason": "disk-cache-full"}),
        ("   kept    ...             tokens=88340 hits=1  size=1182.6 MiB", "kept",
         {"tokens": 88340, "hits": 1, "size_mib": 1182.6}),
        ("08:02:10 → 08:16:31  ctx=20480..171206:150726  prefill 801.7s  finish=tool_calls gen=806", "request",
         {"stamp": "08:02:10", "end_stamp": "08:16:31", "span_start": 20480, "span_end": 171206,
          "span_tokens": 150726, "prefill_s": 801.7, "finish": "tool_calls", "generated": 806}),
        ('08:17:44 - 08:31:40 ctx=0..9:9 prefill 13 min 22 s  finish=error "client stream write failed"', "request",
         {"stamp": "08:17:44", "end_stamp": "08:31:40", "span_start": 0, "span_end": 9, "span_tokens": 9,
          "prefill_s": 802.0, "finish": "error", "error": "client stream write failed"}),
        ("17:02:11  prefill done 1522s   → 9 productive turns in 5 min", "prefill",
         {"stamp": "17:02:11", "prefill_s": 1522.0}),
        ("14:06:28  Turn 1 prefill over   257.91 s @ 59.05 t/s ✓  ← a piece every 25 s", "prefill",
         {"stamp": "14:06:28", "prefill_s": 257.91, "rate_tps": 59.05}),
        ("14:07:00  Turn 2 prefill over   (241 tokens, 8.1 s) ✓", "prefill",
         {"stamp": "14:07:00", "tokens": 241, "prefill_s": 8.1}),
        ("17:09:40  common=104377        → parted again, 26 min of prefill", "miss",
         {"stamp": "17:09:40", "common": 104377}),
        ("common=9000 x12", "miss", {"common": 9000, "times": 12}),
        ("cold prefill took 1h 2m 3s for 150,726 tokens", "prefill", {"prefill_s": 3723.0, "tokens": 150726}),
    ],
)  # fmt: skip
def test_a_digest_is_heard_and_is_no_event(line, kind, fields):
    assert digest(line) == (kind, fields)
    assert events(f"```\n{line}\n```") == []
    assert events(line) == []
    assert (kind, fields) in heard(f"```\n{line}\n```")


@pytest.mark.parametrize(
    "line", ["Some words about a store.", "It was evicted.", "prefill", "12:30:01 hello", ""]
)
def test_prose_is_no_digest(line):
    assert digest(line) is None


def test_a_block_of_settings_is_one_statement():
    text = "```\nlive    = 80268\nprompt  = 90076\ncommon  = 11154\nbackend = metal\n```"
    assert heard(text) == [
        ("settings", {"live": 80268, "prompt": 90076, "common": 11154, "backend": "metal"}),
        ("miss", {"live": 80268, "prompt": 90076, "common": 11154}),
    ]
    assert events(text) == []


def test_a_table_of_lengths_and_states_gives_outcomes():
    text = """\
| Length of the prompt | Status | Answer |
|---|---|---|
| 6000 | 200 | fine |
| **9,000** | **500** | `{"error":{"message":"metal prefill failed at token 0"}}` |
| 12k and more | 500 | as above |
"""
    assert heard(text, "outcome") == [
        ("outcome", {"tokens": 6000, "status": 200, "ok": True}),
        ("outcome", {"tokens": 9000, "status": 500, "ok": False,
                     "error": '{"error":{"message":"metal prefill failed at token 0"}}'}),
        ("outcome", {"tokens": 12000, "status": 500, "ok": False, "error": "as above"}),
    ]  # fmt: skip
    assert heard(text, "error") == [
        ("error", {"message": "metal prefill failed at token 0", "engine": True, "position_tokens": 0})
    ]


def test_outcomes_may_be_words():
    text = "| prompt | result |\n|-|-|\n| 4096 | ok |\n| 8192 | ❌ crash |\n"
    assert [fields["ok"] for _, fields in heard(text, "outcome")] == [True, False]


def test_any_other_table_gives_its_rows():
    text = "| streams | path A | change |\n|---|---|---|\n| 2 | 322 | −82 ms |\n"
    assert heard(text) == [("row", {"streams": 2, "path A": 322, "change": "−82 ms"})]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`--batched-session 2` behaves like one slot", [("--batched-session", "2", "prose")]),
        ("Model: x.gguf, --metal -c 131072 --mtp", [("--metal", None, "prose"), ("-c", "131072", "prose"),
                                                    ("--mtp", None, "prose")]),
        ("$ ./ds4-server -m x.gguf --kv-disk-dir /kv --kv-disk-space-mb=65536",
         [("-m", "x.gguf", "command"), ("--kv-disk-dir", "/kv", "command"), ("--kv-disk-space-mb", "65536", "command")]),
        ("disk KV enabled (--kv-disk-dir, 1 TB budget)", [("--kv-disk-dir", None, "prose")]),
        ("`--batched-session N` and --kv-disk-dir ...", [("--batched-session", None, "prose"),
                                                         ("--kv-disk-dir", None, "prose")]),
        ("grep --color -c 5 server.log", []),
        ("a -- b --unknown-option 5", []),
    ],
)  # fmt: skip
def test_options_in_prose_and_command_lines(text, found):
    assert [(one["name"], one.get("value"), one["where"]) for one in options(text)] == found


def test_a_word_is_no_value_of_an_option_that_takes_a_number():
    (one,) = options("with --ctx the user gets more room")
    assert "value" not in one


def test_options_that_are_said_not_to_be_used():
    (one,) = options("it also happens without `--batched-session 2`")
    assert one["negated"] is True


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("23–26 s/turn", [(23.0, 26.0, "s", "turn")]),
        ("24-28 s per turn", [(24.0, 28.0, "s", "turn")]),
        ("18 minutes each", [(1080.0, None, "s", None)]),
        ("the same system prompt (11K tokens)", [(11000, None, "tokens", None)]),
        ("a ~335k-token prompt", [(335000, None, "tokens", None)]),
        ("(340,144 / 340,551 tokens)", [(340551, None, "tokens", None)]),
        ("8 misses, 8 restores", [(8, None, "misses", None), (8, None, "restores", None)]),
        ("1 TB budget", [(1048576.0, None, "mib", None)]),
        ("45.5 t/s", [(45.5, None, "tps", None)]),
        ("build 6289c51 of v0.9.1", []),
    ],
)
def test_figures_with_units(text, found):
    got = [(one["value"], one.get("high"), one["unit"], one.get("per")) for one in figures(text)]
    assert got == found


def test_an_error_about_a_call_id_over_several_lines():
    lines = [
        'POST /v1/messages: 400 Bad Request {"error":{"message":"Anthropic',
        "continuation state is not available for tool_use_id **toolu_7c2d1a3de7738846**; retry",
        'by replaying the full messages history","type":"invalid_request_error"}}',
    ]
    ((at, fields),) = errors(lines)
    assert at == 0
    assert fields["status"] == 400 and fields["lost_call"] is True and fields["engine"] is False
    assert fields["tool_ids"] == ["toolu_7c2d1a3de7738846"]


@pytest.mark.parametrize(
    ("text", "status", "engine"),
    [
        ("The client gets HTTP 409 for call_2a2940f78239c4a7 then.", 409, False),
        ('{"error":{"message":"prefill failed: metal graph failed","type":"x"}}', None, True),
        ("ds4: ROCm tensor alloc failed: out of memory", None, True),
    ],
)
def test_errors_of_engines_and_answers(text, status, engine):
    ((_, fields),) = errors([text])
    assert (fields.get("status"), fields["engine"]) == (status, engine)


@pytest.mark.parametrize(
    "text",
    [
        "FAILED ... falling back to the CPU",
        "client stream write failed",
        "all is well, 500 tokens",
        "oom_score_adj=1000",
    ],
)
def test_what_is_no_error(text):
    assert list(errors([text])) == []


def test_remarks_behind_log_lines_and_pieces_of_a_trace():
    text = "```\nprompt done 1204.366s   ← from nothing, 246,020 tokens\n```\n```\ncache_source: none\ncached_tokens: 0\n```"
    assert heard(text) == [
        ("comment", {"tokens": 246020}),
        ("trace", {"cache_source": "none", "cached_tokens": 0}),
    ]


def test_lines_that_are_events_are_not_said_again():
    assert heard("```\nlive kv cache miss live=5000 prompt=6000 common=3000 reason=token-mismatch\n```") == []
    assert heard("It prints `live kv cache miss live=5000 prompt=6000 common=3000`.") == []


def test_statements_stand_in_order_with_their_lines():
    _, hearsay = read_text(b"One.\n\nTwo took 5 s.\n\n```\ncommon=5\n```\nThree.", parse)
    assert [(one.kind, one.line) for one in hearsay] == [
        ("prose", 1), ("figure", 3), ("prose", 3), ("miss", 6), ("prose", 8),
    ]  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(alphabet=" =:.,0123456789kKMGiBs/t→-x×()[]\"'|storedhvicmng_", max_size=120))
def test_no_text_breaks_it(text):
    digest(text)
    facts(text)
    number(text)
    list(options(text))
    list(figures(text))
    list(errors(text.split("x")))


@given(st.integers(0, 10**9))
def test_numbers_are_read_with_and_without_separators(value):
    assert number(f"{value:,}") == number(str(value)) == number(f"**{value}**") == value
