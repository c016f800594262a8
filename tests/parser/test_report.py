"""However people paste a log, the same lines count once each (docs/mechanisms 2.2); prose and digests do not."""

from __future__ import annotations

import html
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parser.event import KINDS
from parser.events import parse_lines
from parser.report import is_report, read_report, read_text
from parser.sources import find_sources

CASES = Path(__file__).parents[2] / "fixtures" / "cases"


def parse(line):
    return next(parse_lines([line]).rows(*KINDS))


def read(text):
    lines, hearsay = read_text(text.encode() if isinstance(text, str) else text, parse)
    return lines, hearsay


def counts(text):
    """Events a report gives, without foreign and unknown lines."""
    found = Counter(parse(line).kind for line in read(text)[0])
    return {kind: n for kind, n in found.items() if kind not in ("foreign", "unknown")}


MISS = "live kv cache miss live=89444 prompt=25847 common=27 vision=match reason=token-mismatch"
LOG = [
    f"0915 10:00:01 ds4-server: {MISS}",
    "0915 10:00:02 ds4-server: kv cache evicted reason=disk-cache-full tokens=10240 hits=0 size=157.34 MiB"
    " file=/kv/07e5295786bdb5bf16ef8cba120e188402272a51.kv",
    "0915 10:00:04 ds4-server: kv cache stored tokens=89444 trimmed=0 reason=evict key=token-text"
    " size=1197.29 MiB save=812.4 ms",
    "0915 10:00:05 ds4-server: kv cache hit text tokens=20480 text=84012 quant=2 key=token-text load=301.7 ms"
    " file=/kv/d974ebf9a6942658446dbf9019e4302c25777feb.kv",
    "0915 10:00:05 ds4-server: chat ctx=20480..25851:5371 TOOLS prompt start",
    "0915 10:00:05 ds4-server: chat ctx=20480..25851:5371 TOOLS prefill chunk 0/5371 (0.0%) chunk=0.00 t/s"
    " avg=0.00 t/s 0.001s",
    "0915 10:00:18 ds4-server: chat ctx=20480..25851:5371 TOOLS prompt done 13.142s",
    "0915 10:00:20 ds4-server: chat ctx=25851..25901:50 gen=50 TOOLS THINKING decoding chunk=25.10 t/s"
    " avg=25.10 t/s 1.992s",
    "0915 10:00:21 ds4-server: tool calls ctx=20480..25851:5371 n=1 raw_tool_text=1 ids=[call_x] names=[read]",
    '0915 10:00:31 ds4-server: chat ctx=20480..25851:5371 gen=72 TOOLS finish=error error="client stream write'
    ' failed" 16.022s',
    "0915 10:00:31 ds4-server: KV disk cache /data/kv (budget=65536 MiB, cross-quant=accept, min=512,"
    " cold_max=30000, continued=10000, trim=32, align=2048, hit_half_life=21600s)",
    "0915 10:00:32 ds4-server: persisting resident KV cache before shutdown slot=0 tokens=13057",
]
EXPECTED = {
    "live_miss": 1, "kv_evicted": 1, "kv_stored": 1, "kv_hit": 1, "prompt_start": 1, "prefill_chunk": 1,
    "prompt_done": 1, "decoding": 1, "tool_calls": 1, "finish": 1, "startup": 1, "shutdown": 1,
}  # fmt: skip
BEFORE = "# It is slow\n\nAfter the update each turn takes 3 minutes, see here:\n\n"
AFTER = "\n\nAny idea?\n"

#: How one line may look; `l` is the line as the server printed it, `n` its number.
LINES = {
    "as printed": lambda s, n: s,
    "no date": lambda s, n: s[5:],
    "no stamp": lambda s, n: s[14:],
    "no name": lambda s, n: s[:14] + s[26:],
    "message only": lambda s, n: s[26:],
    "first digit lost": lambda s, n: s[1:],
    "quote": lambda s, n: f"> {s}",
    "nested quote": lambda s, n: f"> > {s}",
    "e-mail quote": lambda s, n: f">> {s}",
    "indented": lambda s, n: f"    {s}",
    "tab": lambda s, n: f"\t{s}",
    "list": lambda s, n: f"- {s}",
    "nested list": lambda s, n: f"  * {s}",
    "numbered list": lambda s, n: f"{n}. {s}",
    "tag": lambda s, n: f"[server] {s}",
    "long tag": lambda s, n: f"[pod/ds4-0/server] {s}",
    "compose": lambda s, n: f"ds4-1  | {s}",
    "pm2": lambda s, n: f"0|ds4      | {s}",
    "kubernetes": lambda s, n: f"2026-09-15T10:00:01.123456789Z stderr F {s}",
    "syslog": lambda s, n: f"Sep 15 10:00:01 node7 ds4-server[4121]: {s}",
    "journald iso": lambda s, n: f"2026-09-15T10:00:01+0200 node7 ds4-server[4121]: {s}",
    "syslog priority": lambda s, n: f"<13>Sep  5 10:00:01 node7 ds4: {s}",
    "rfc 5424": lambda s, n: f"<13>1 2026-09-15T10:00:01.003Z node7 ds4 4121 - - {s}",
    "since boot": lambda s, n: f"[12345.678901] node7 ds4-server[4121]: {s}",
    "docker json": lambda s, n: json.dumps({"log": f"{s}\n", "stream": "stderr", "time": "2026-09-15T10:00:01Z"}),
    "journald json": lambda s, n: json.dumps({"__CURSOR": "x", "MESSAGE": s, "PRIORITY": "6"}),
    "journald bytes": lambda s, n: json.dumps({"MESSAGE": list(f"\x1b[33m{s}\x1b[0m".encode())}),
    "ts": lambda s, n: f"Sep 15 10:00:01 {s}",
    "ts iso": lambda s, n: f"[2026-09-15 10:00:01] {s}",
    "ts clock": lambda s, n: f"10:00:01.123 {s}",
    "level": lambda s, n: f"2026-09-15 10:00:01,123 INFO {s}",
    "channel": lambda s, n: f"stderr | {s}",
    "grep -n": lambda s, n: f"{n + 120}:{s}",
    "grep -H": lambda s, n: f"server.log:{n + 9}:{s}",
    "grep path": lambda s, n: f"/var/log/ds4/server.log:{s}",
    "grep -C": lambda s, n: f"{n + 9}-{s}",
    "cat -n": lambda s, n: f"{n + 9:6}\t{s}",
    "editor": lambda s, n: f"{n + 9:4} | {s}",
    "number": lambda s, n: f"{n + 9} {s}",
    "bold": lambda s, n: f"**{s}**",
    "italic": lambda s, n: f"*{s}*",
    "back quotes": lambda s, n: f"`{s}`",
    "double back quotes": lambda s, n: f"``{s}``",
    "table cell": lambda s, n: f"| {n} | `{s}` | fine |",
    "bare cell": lambda s, n: f"| {s} |",
    "html code": lambda s, n: f"<code>{s}</code>",
    "html break": lambda s, n: f"{s}<br>",
    "html escaped": lambda s, n: html.escape(s),
    "colour": lambda s, n: f"{s[:14]}\x1b[38;5;208m{s[14:]}\x1b[0m",
    "visible colour": lambda s, n: f"{s[:14]}^[[33m{s[14:]}^[[0m",
    "escape lost": lambda s, n: f"{s[:14]}[38;5;208m{s[14:]}[0m",
    "escape spelled": lambda s, n: f"{s[:14]}\\033[33m{s[14:]}\\033[0m",
    "windows": lambda s, n: f"{s}\r",
    "odd blanks": lambda s, n: s.replace(" ", "\u00a0"),
    "zero width": lambda s, n: f"\u200b{s}",
    "nul": lambda s, n: f"{s}\0",
    "smart quotes": lambda s, n: s.replace('"client', "“client").replace('failed"', "failed”"),
    "backslashes": lambda s, n: s.replace("_", "\\_").replace("[", "\\["),
    "diff": lambda s, n: f"+{s}",
    "chat name": lambda s, n: f"bob: {s}",
    "json strings": lambda s, n: f"{json.dumps(s)}," if '"' not in s else f"'{s}',",
    "mark": lambda s, n: f"❌ {s}",
    "remark arrow": lambda s, n: f"{s}   ← here it begins",
    "remark dashes": lambda s, n: f"{s}   <-- this one",
    "remark ascii": lambda s, n: f"{s} -> too slow",
    "remark hash": lambda s, n: f"{s}     # 3 minutes",
    "remark brackets": lambda s, n: f"{s} (this one is slow)",
    "repeated": lambda s, n: f"{s} (repeated)",
    "times": lambda s, n: f"{s} (x3)",
}  # fmt: skip


def wrapped(width, indent=0, *, hard=False):
    """Lines cut at `width`, at blanks or (hard) anywhere."""

    def cut(lines):
        for line in lines:
            while len(line) > width:
                at = line.rfind(" ", indent + 1, width)
                if hard or at <= 0:
                    at = width
                yield line[:at]
                line = " " * indent + (line[at:] if hard else line[at:].lstrip())
            yield line

    return lambda lines: list(cut(lines))


BLOCKS = {
    "bare": lambda ls: ls,
    "fence": lambda ls: ["```", *ls, "```"],
    "named fence": lambda ls: ["```text", *ls, "```"],
    "tildes": lambda ls: ["~~~", *ls, "~~~"],
    "glued to the opening mark": lambda ls: [f"```{ls[0]}", *ls[1:], "```"],
    "glued behind the name": lambda ls: [f"```text {ls[0]}", *ls[1:], "```"],
    "glued to the closing mark": lambda ls: ["```", *ls[:-1], f"{ls[-1]}```"],
    "never closed": lambda ls: ["```", *ls],
    "a fence a line": lambda ls: [part for line in ls for part in ("```", line, "```", "")],
    "one-line fences": lambda ls: [f"```{line}```" for line in ls],
    "fence in a quote": lambda ls: ["> ```", *(f"> {line}" for line in ls), "> ```"],
    "fence in a list": lambda ls: ["1. first", "   ```", *(f"   {line}" for line in ls), "   ```"],
    "pre": lambda ls: ["<pre>", *ls, "</pre>"],
    "pre code": lambda ls: [f"<pre><code>{ls[0]}", *ls[1:], "</code></pre>"],
    "details": lambda ls: ["<details><summary>log</summary>", "", "```", *ls, "```", "</details>"],
    "blank lines": lambda ls: [part for line in ls for part in (line, "")],
    "elisions": lambda ls: [part for line in ls for part in (line, "...")],
    "grep groups": lambda ls: ["```", *[part for line in ls for part in (line, "--")], "```"],
    "shell": lambda ls: ["```", "$ tail -f server.log", *ls, "^C", "```"],
    "e-mail": lambda ls: ["On Monday Bob wrote:", *(f"> {line}" for line in ls)],
    "80 columns": wrapped(80),
    "80 columns, set in": wrapped(80, 14),
    "80 columns in a fence": lambda ls: ["```", *wrapped(80, 14)(ls), "```"],
    "hard 100 columns": wrapped(100, hard=True),
    "hard 80 columns in a fence": lambda ls: ["```", *wrapped(80, hard=True)(ls), "```"],
}


@pytest.mark.parametrize("look", LINES)
@pytest.mark.parametrize("block", ["bare", "fence"])
def test_a_line_counts_in_every_look(look, block):
    lines = [LINES[look](line, n) for n, line in enumerate(LOG, 1)]
    assert counts(BEFORE + "\n".join(BLOCKS[block](lines)) + AFTER) == EXPECTED


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("look", ["as printed", "no date", "no stamp"])
def test_a_line_counts_in_every_block(look, block):
    lines = [LINES[look](line, n) for n, line in enumerate(LOG, 1)]
    assert counts(BEFORE + "\n".join(BLOCKS[block](lines)) + AFTER) == EXPECTED


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(look=st.sampled_from(sorted(LINES)), block=st.sampled_from(sorted(BLOCKS)[:16]))
def test_looks_and_blocks_combine(look, block):
    lines = [LINES[look](line, n) for n, line in enumerate(LOG[:5], 1)]
    found = counts(BEFORE + "\n".join(BLOCKS[block](lines)) + AFTER)
    if "cell" not in look and not ("column" in block and "j" in look):  # no one wraps a cell or a JSON record
        assert found == {"live_miss": 1, "kv_evicted": 1, "kv_stored": 1, "kv_hit": 1, "prompt_start": 1}


def test_stamps_and_fields_survive_wrapping():
    text = "```text\n0904 03:12:44 live kv cache miss live=48816 prompt=48520 common=48520\n"
    (line,), _ = read(text + "              reason=token-mismatch\n```\n")
    assert (line.stamp, line.line, line.program) == ("0904 03:12:44", 2, None)
    event = parse(line)
    fields = {name: value for name, value in event.fields.items() if value}
    assert fields == {"live": 48816, "prompt": 48520, "common": 48520, "reason": "token-mismatch"}
    assert line.length == len(text.encode()) - len("```text\n") - 1 + len(
        "\n              reason=token-mismatch"
    )


def test_a_stamp_glued_behind_other_text_begins_a_line():
    lines, _ = read(
        "```\nmirrored over some transport0913 16:22:08 ds4-server: listening on http://0.0.0.0:8000\n```"
    )
    assert [(line.stamp, parse(line).kind) for line in lines] == [
        (None, "foreign"),
        ("0913 16:22:08", "startup"),
    ]


# -- rule 4 and 5: back quotes, tables, placeholders -------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "It says `finish=stop` and `common=12` all the time.",
        "`prompt done 12.3s` is what I see, and `chunk 3/4 (75.0%)`.",
        "Then `live=5 prompt=6 common=3` and so forth.",
        "The template is `live kv cache miss live=%d prompt=%d common=%d reason=%s`.",
        "`live kv cache miss live=... prompt=... common=...` comes in the log.",
        "`kv cache stored tokens=... reason=continued` was missing.",
        "`kv cache stored tokens=<n> reason=cold/evict` was missing.",
        "There is a live kv cache miss live=5 prompt=6 common=3 on every turn.",
        "The log shows kv cache stored tokens=5 reason=cold and then nothing.",
        f"| turn | before | after |\n|---|---|---|\n| 1 | `{MISS}` | `{MISS.replace('27', '29')}` |",
        "| before | after |\n|---|---|\n| prompt done 900.1s | prompt done 3.0s |",
        f"<!-- paste your log here, e.g.\n{MISS}\n-->",
    ],
)
def test_what_does_not_count(text):
    assert counts(text) == {}


def test_a_fragment_in_back_quotes_counts_with_its_head():
    assert counts(f"I see `{MISS}` and then `chat ctx=0..5:5 TOOLS prompt start`.") == {
        "live_miss": 1, "prompt_start": 1,
    }  # fmt: skip


def test_a_fragment_may_run_over_lines_and_lose_its_partner():
    assert counts(
        "the state is fine: `live kv cache miss live=16251 prompt=16213 common=5\nreason=token-mismatch`."
    ) == {"live_miss": 1}
    assert counts(f"see `this and then `{MISS}` here") == {"live_miss": 1}
    assert counts(f"see `{MISS}") == {"live_miss": 1}


def test_one_cell_with_log_text_counts():
    assert counts(f"| K4 | it stopped | `{MISS}` - as above |") == {"live_miss": 1}


# -- lines that are said twice -----------------------------------------------------------------------------------


def test_a_line_quoted_in_prose_and_shown_in_an_excerpt_is_one_event():
    assert counts(f"What it prints is `{MISS}`, in full:\n\n```\n{LOG[0]}\n```\n") == {"live_miss": 1}
    assert counts(
        f"```\n{LOG[0]}\n```\n\nThe line `live kv cache miss live=89444 prompt=25847 common=27` again."
    ) == {"live_miss": 1}
    assert counts(f"1. No rewind:\n\n   ds4-server: {MISS}\n\nThe log:\n\n```\n{LOG[0]}\n```") == {
        "live_miss": 1
    }
    assert counts(f"```\n{MISS}\n```\n\nThe log:\n\n```\n{LOG[0]}\n```") == {
        "live_miss": 1
    }  # its stamp was lost


def test_another_line_of_the_same_kind_is_another_event():
    other = MISS.replace("89444", "90000")
    assert counts(f"First `{other}`.\n\n```\n{LOG[0]}\n```\n") == {"live_miss": 2}


def test_equal_lines_of_one_excerpt_are_an_event_each():
    assert counts(f"```\n{LOG[0]}\n{LOG[0]}\n```") == {"live_miss": 2}
    assert counts(f"```\n{MISS}\n{MISS}\n{MISS}\n```") == {"live_miss": 3}


def test_an_answer_that_quotes_the_excerpt_adds_nothing():
    text = "\n".join(LOG)
    quote = "\n".join(f"> {line}" for line in LOG)
    assert counts(f"```\n{text}\n```\n\nBob wrote:\n\n{quote}\n\nThanks, Bob") == EXPECTED


# -- rule 7: traces, marks of what was left out ------------------------------------------------------------------

TRACE = """===== request 9 2026-05-09 21:14:16 =====
kind: chat
model: deepseek
stream_include_usage: 1

--- cache decision ---
live_tokens_before: 29571
cache_source: none
  27010 !=          live 33 "a" | prompt 35 "b"

--- raw request json ---
{"messages": "0509 21:14:16 ds4-server: live kv cache miss live=5 prompt=6 common=3 reason=token-mismatch"}

--- generated text ---
0509 21:14:16 ds4-server: live kv cache miss live=5 prompt=6 common=3 reason=token-mismatch
"""


@pytest.mark.parametrize("text", [TRACE, f"```\n{TRACE}```", f"```\n{TRACE}\n===== end request 9 =====\n```"])
def test_a_trace_record_counts_as_nothing(text):
    assert read(text)[0] == []


def test_a_log_behind_a_trace_record_counts():
    assert counts(f"```\n{TRACE}\n===== end request 9 =====\n{LOG[0]}\n```\n```\n{LOG[1]}\n```") == {
        "live_miss": 1, "kv_evicted": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "mark",
    ["", "...", "…", "[...]", "(...)", "[snip]", "--", "(and so on, without end)", "... 34 more lines ...", "⋮",
     "|---|:--|", "```", "(repeated 12 times)", "> ", "***"],
)  # fmt: skip
def test_marks_of_what_was_left_out_are_not_even_foreign(mark):
    lines, _ = read(f"{LOG[0]}\n{mark}\n{LOG[1]}\n")
    assert [parse(line).kind for line in lines] == ["live_miss", "kv_evicted"]


def test_every_other_line_is_kept_as_foreign():
    text = (
        "Some words.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\n$ tail server.log\nds4-tp: gate failed\n```\n"
    )
    assert [parse(line).kind for line in read(text)[0]] == ["foreign"] * 5


# -- text of the model can forge nothing -------------------------------------------------------------------------

FORGED = f"0804 15:20:13 ds4-server: {MISS}"
WARNING = (
    "0804 15:20:07 ds4-server: chat ctx=0..9:9 TOOLS invalid tool call returned as assistant text finish=stop"
    " [text_len=120 saw_start=1 saw_end=0 text_snippet: "
)


@pytest.mark.parametrize(
    "snippet",
    [
        f"look: {FORGED}]",
        f"look:\n{FORGED}\nand more]",
        f"look:\n```\n{FORGED}\n```\nand more]",
        f"look:\n> {FORGED}\n\n\n`{MISS}`]",
    ],
)
def test_raw_model_text_in_a_warning_forges_nothing(snippet):
    report = f"The log:\n\n```\n{WARNING}{snippet}\n{LOG[4]}\n```\n"
    assert counts(report) == {"tool_repair": 1, "prompt_start": 1}


@pytest.mark.parametrize("stamp", ["0804 15:19:00", "0803 15:20:13", "0804 16:20:13"])
def test_a_stamp_that_does_not_fit_forges_nothing(stamp):
    warning = "0804 15:20:07 ds4-server: chat ctx=0..9:9 TOOLS invalid tool call dsml_snippet: <a>"
    forged = f"{stamp} ds4-server: {MISS}"
    real = "0804 15:20:09 ds4-server: chat ctx=0..9:9 gen=4 finish=stop 1.0s"
    filler = "x" * 500
    report = f"```\n{warning}\n{forged}\n{filler}\n{real}\n```\n"
    assert counts(report) == {"tool_repair": 1, "finish": 1}
    assert counts(f"```\n{warning}\n{real}\n```\n") == {"tool_repair": 1, "finish": 1}
    assert counts(f"```\n{warning.replace('<a>', '(none)')}\n{real}\n```\n") == {
        "tool_repair": 1,
        "finish": 1,
    }


def test_remarks_and_elisions_are_set_apart():
    (line,), _ = read(
        "```\n11:20:57  live kv cache miss live=68240 prompt=12715 common=1   ← helper task\n```"
    )
    assert line.comment == "← helper task" and line.stamp == "11:20:57" and not line.elided
    (line,), _ = read("```\nkv cache stored tokens=61344 ... reason=evict\n```")
    assert line.elided


def test_excerpts_are_numbered():
    lines, _ = read(
        f"{LOG[0]}\n{LOG[1]}\n\nthen some prose\n\n```\n{LOG[2]}\n```\n```\n{LOG[3]}\n```\n`{LOG[4]}`\n"
    )
    assert [(line.excerpt, line.place) for line in lines if line.place != "prose"] == [
        (1, "excerpt"), (1, "excerpt"), (2, "excerpt"), (3, "excerpt"), (3, "inline"),
    ]  # fmt: skip


# -- is it a report at all ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "report"),
    [
        ("a.md", "\n".join(LOG), True),
        ("a.log", "\n".join(LOG), False),
        ("a.txt", "\n".join(LOG), False),
        ("a.log", "\n".join(f"ds4-1  | {line}" for line in LOG), False),
        ("a.log", "\n".join(f"Sep 15 10:00:01 node7 ds4-server[4121]: {line}" for line in LOG), False),
        ("a.log", f"{LOG[0]}\n...\n{LOG[1]}\n", False),
        ("a.log", f"{WARNING}some text\n```\n{FORGED}\n```\n]\n" + "\n".join(LOG * 2), False),
        ("a.txt", f"Hello,\n\n```\n{LOG[0]}\n```\n", True),
        ("a.txt", f"> {LOG[0]}\n> {LOG[1]}\n", True),
        ("a", f"Each turn is slow since the update, here is the log:\n{LOG[0]}\n", True),
        (
            "a.txt",
            "   evicted disk-cache-full tokens=548   hits=21 size=30.06 MiB   (shared header of all)\n",
            True,
        ),
    ],
)
def test_a_report_is_told_from_a_log(tmp_path, name, text, report):
    path = tmp_path / name
    path.write_text(text)
    (source,) = find_sources([path])
    assert is_report(source) is report


@pytest.mark.parametrize(
    "wrap",
    [
        lambda line: f'"2026-09-12 10:00:00","{{job=""ds4""}}","{line}"',
        lambda line: line.replace("ds4-server", "^[[33mds4-server") + "^[[0m",
        lambda line: line.replace("ds4-server", "\\u001b[33mds4-server") + "\\u001b[0m",
    ],
    ids=["rows of a query tool", "colour made visible", "colour as JSON writes it"],
)
def test_a_log_file_in_an_odd_wrapper_is_read_as_pasted_text(tmp_path, wrap):
    printed = [
        "0912 10:00:10 ds4-server: chat ctx=20480..30800:10320 prompt start",
        "0912 10:00:48 ds4-server: chat ctx=20480..30800:10320 prompt done 38.002s",
    ]
    path = tmp_path / "server.log"
    path.write_text("".join(wrap(line) + "\n" for line in printed))
    (source,) = find_sources([path])
    assert is_report(source)
    lines, _ = read_report(source)
    assert [parse(line).kind for line in lines] == ["prompt_start", "prompt_done"]


def test_a_program_name_in_other_letters():
    lines, _ = read("0912 10:00:10 DS4-Server: chat ctx=20480..30800:10320 prompt start\n")
    assert [parse(line).kind for line in lines] == ["prompt_start"]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(alphabet='`>|~# \n\t-*:.…<!>abkv=0123456789[]{}"\\', max_size=400))
def test_no_text_breaks_it(text):
    lines, _ = read(text)
    numbers = [line.line for line in lines]
    assert numbers == sorted(numbers)
    for line in lines:
        assert line.offset >= 0 and line.offset + line.length <= len(text.encode())


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=300))
def test_no_bytes_break_it(data):
    read(data)


# -- the cases ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", sorted(path.name for path in CASES.iterdir() if path.is_dir()))
def test_events_of_the_cases(case):
    folder = CASES / case
    expected = json.loads((folder / "expected.json").read_text())
    (source,) = find_sources([next(folder.glob("input.*"))])
    lines, _ = read_report(source)
    found = dict(parse_lines(lines).counts)
    wanted, more = expected["events"], expected.get("events_optional", {})
    # start lines of the engine may count as startup or as foreign: then foreign is open as well
    kinds = (set(found) | set(wanted)) - ({"foreign"} if "startup" in more else set())
    outside = {
        kind: (found.get(kind, 0), wanted.get(kind, 0))
        for kind in kinds
        if not wanted.get(kind, 0) <= found.get(kind, 0) <= wanted.get(kind, 0) + more.get(kind, 0)
    }
    assert outside == {}
