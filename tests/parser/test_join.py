"""Which lines belong to one request: small logs, one rule each (log-formats section 6)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parser.events import parse_line
from parser.join import Joiner
from parser.reading import read

BATCHED = "context buffers 1739.75 MiB (ctx=65536, backend=metal, prefill_chunk=4096, raw_kv_rows=4352, compressed_kv_rows=16386)\nbatched mode enabled resident_sessions={n} prefill_quantum=2048 mixed_prefill_quantum=128 decode_coalesce_us=2000\nlistening on http://127.0.0.1:8000"
SINGLE = "tracing session to /tmp/trace\nlistening on http://127.0.0.1:8000"
THREE_SLOTS = BATCHED.format(n=3)
CAPTURES = Path(__file__).parents[2] / "fixtures" / "captures"
FILE = "/kv/{:040x}.kv"


def rows(tmp_path, *lines, start=THREE_SLOTS):
    """Requests of a log: one message a line; `@12 ` in front of a message sets its second."""
    text, second = [], 0
    for message in [*start.split("\n"), *(line for block in lines for line in block.strip().split("\n"))]:
        message = message.strip()
        if message.startswith("@"):
            at, message = message[1:].split(" ", 1)
            second = int(at)
        text.append(f"0915 10:{second // 60:02d}:{second % 60:02d} ds4-server: {message}")
    path = tmp_path / "server.log"
    path.write_text("\n".join(text) + "\n")
    return read([str(path)]).requests


def test_one_request_from_miss_to_finish(tmp_path):
    (row,) = rows(
        tmp_path,
        f"""
        live kv cache miss live=89444 prompt=25847 common=10240 reason=token-mismatch
        kv cache evicted reason=disk-cache-full tokens=10240 hits=0 size=157.34 MiB file={FILE.format(1)}
        kv cache stored tokens=89444 trimmed=0 reason=evict key=token-text size=1197.29 MiB save=812.4 ms
        kv cache hit text tokens=20480 text=84012 quant=2 key=token-text load=301.7 ms file={FILE.format(2)}
        chat ctx=20480..25851:5371 TOOLS prompt start
        @13 chat ctx=20480..25851:5371 TOOLS prefill chunk 5371/5371 (100.0%) chunk=405.00 t/s avg=408.70 t/s 13.141s
        chat ctx=20480..25851:5371 TOOLS prompt done 13.142s
        @16 tool calls ctx=20480..25851:5371 n=1 raw_tool_text=1 ids=[call_x] names=[read]
        chat ctx=20480..25851:5371 gen=72 TOOLS DSML_START DSML_END finish=tool_calls 16.022s
        """,
    )
    assert (row.cached_tokens, row.prompt_tokens, row.canonical_prompt_tokens) == (20480, 25851, 25847)
    assert (row.live_before, row.common, row.evicted_live_tokens, row.evict_stored) == (
        89444,
        10240,
        89444,
        True,
    )
    assert (row.source, row.disk_hit_tokens, row.hit_file) == ("disk-text", 20480, f"{2:040x}")
    assert [(s.tokens, s.reason) for s in row.stores] == [(89444, "evict")]
    assert (row.prefill_s, row.total_s, row.finish, row.live_after) == (13.142, 16.022, "tool_calls", 25923)
    assert row.flags == ("TOOLS", "DSML_START", "DSML_END")
    assert row.lines == (4, 5, 6, 7, 8, 10, 11, 12)
    assert len(row.evicted_files) == 1


def test_two_open_requests_with_one_span_part_by_their_tokens_and_seconds(tmp_path):
    first, second = rows(
        tmp_path,
        """
        chat ctx=0..900:900 prompt start
        @1 chat ctx=0..900:900 prompt start
        @5 chat ctx=0..900:900 prompt done 5.000s
        @8 chat ctx=0..900:900 prompt done 7.000s
        @9 chat ctx=900..950:50 gen=50 decoding chunk=10.00 t/s avg=10.00 t/s 4.000s
        @10 chat ctx=900..950:50 gen=50 decoding chunk=10.00 t/s avg=10.00 t/s 2.000s
        @11 chat ctx=950..970:20 gen=70 decoding chunk=10.00 t/s avg=10.00 t/s 6.000s
        @11 chat ctx=0..900:900 gen=70 finish=stop 11.000s
        @14 chat ctx=950..999:49 gen=99 decoding chunk=10.00 t/s avg=10.00 t/s 6.000s
        @14 chat ctx=0..900:900 gen=99 finish=stop 13.000s
        """,
    )
    assert (first.prefill_s, first.generated_tokens, first.total_s) == (5.0, 70, 11.0)
    assert (second.prefill_s, second.generated_tokens, second.total_s) == (7.0, 99, 13.0)
    assert {first.slot, second.slot} == {0, 1}


def test_a_miss_goes_to_the_start_of_its_own_length_though_another_comes_first(tmp_path):
    """Two loads of one file, one from an empty slot: two tokens tell whose the miss was (seen in i-openai-tools)."""
    empty, stolen = rows(
        tmp_path,
        f"""
        live kv cache miss live=4842 prompt=2157 common=2032 reason=token-mismatch
        kv cache stored tokens=4842 trimmed=0 reason=evict key=token-text size=86.42 MiB save=12.6 ms
        kv cache hit text tokens=2031 text=9909 quant=2 key=token-text load=13.7 ms file={FILE.format(5)}
        chat ctx=2031..2155:124 prompt start
        kv cache hit text tokens=2031 text=9909 quant=2 key=token-text load=13.7 ms file={FILE.format(5)}
        chat ctx=2031..2157:126 prompt start
        """,
    )
    assert (empty.live_before, empty.evict_stored) == (0, False)
    assert (stolen.live_before, stolen.evict_stored, stolen.disk_hit_tokens) == (4842, True, 2031)


def test_a_retokenised_prompt_still_finds_its_miss(tmp_path):
    (row,) = rows(
        tmp_path,
        f"""
        live kv cache miss live=500 prompt=9000 common=27 reason=token-mismatch
        kv cache hit text tokens=8000 text=9 quant=2 key=token-text load=1.0 ms file={FILE.format(5)}
        chat ctx=8000..9013:1013 prompt start
        """,
    )
    assert (row.prompt_tokens, row.canonical_prompt_tokens, row.live_before) == (9013, 9000, 500)


def test_a_state_found_by_its_visible_text_may_be_longer_than_the_prompt(tmp_path):
    """It holds all the reasoning that the client does not send back (R3.32)."""
    (row,) = rows(
        tmp_path,
        f"""
        live kv cache miss live=18427 prompt=2549 common=4 reason=token-mismatch
        kv cache stored tokens=18427 trimmed=0 reason=evict key=thinking-visible size=264.78 MiB save=9.0 ms
        kv cache hit text tokens=3922 text=18433 quant=2 key=thinking-visible load=1.8 ms file={FILE.format(7)}
        chat ctx=3922..4061:139 prompt start
        chat ctx=3922..4061:139 gen=254 finish=stop 0.210s
        """,
        start=SINGLE,
    )

    assert (row.canonical_prompt_tokens, row.prompt_tokens, row.disk_hit_tokens) == (2549, 4061, 3922)


def test_plain_hits_leave_the_misses_of_others_alone(tmp_path):
    hit, missed = rows(
        tmp_path,
        """
        live kv cache miss live=700 prompt=900 common=27 reason=token-mismatch
        chat ctx=850..901:51 prompt start
        chat ctx=0..900:900 prompt start
        """,
    )
    assert (hit.source, hit.live_before, hit.common) == ("memory", 850, None)
    assert (missed.source, missed.live_before) == ("cold", 700)


@pytest.mark.parametrize(
    ("line", "span", "source"),
    [
        (
            "responses live continuation RESPPROTO match=visible-prefix ids=0 cached=700 prompt=900",
            "700..900:200",
            "responses-visible",
        ),
        (
            "responses live continuation RESPPROTO match=tool-output-ids ids=2 cached=700 prompt=900",
            "700..900:200",
            "responses-tool-output",
        ),
        (
            "anthropic live continuation match=tool-output-ids ids=2 cached=700 prompt=900",
            "700..900:200",
            "anthropic-tool-output",
        ),
        (
            "thinking live continuation match=visible-prefix cached=700 prompt=900",
            "700..900:200",
            "thinking-visible",
        ),
        (
            "responses replay RESPPROTO missing reasoning state; continuing from visible history source=memory-text cached=700 prompt=900",
            "700..900:200",
            "memory-text",
        ),
        (
            "rewound GLM live prefix from 1000 to 899; final prompt token will be reevaluated",
            "899..900:1",
            "memory-rewind",
        ),
        (
            "multimodal live kv hit images=2 cached=700 prompt=900 identity=fingerprint-match",
            "700..900:200",
            "memory",
        ),
    ],
)
def test_lines_that_name_the_source(tmp_path, line, span, source):
    row = rows(tmp_path, f"{line}\nchat ctx={span} prompt start")[-1]
    assert row.source == source


def test_the_images_of_a_live_hit(tmp_path):
    (row,) = rows(
        tmp_path,
        "multimodal live kv hit images=2 cached=700 prompt=900 identity=fingerprint-match\nchat ctx=700..900:200 prompt start",
    )
    assert row.images == 2


def test_a_refused_rewind_belongs_to_the_miss_that_follows(tmp_path):
    (row,) = rows(
        tmp_path,
        """
        GLM live prefix rewind from 1000 to 899 requires rebuild
        live kv cache miss live=1000 prompt=900 common=900 reason=token-mismatch
        chat ctx=0..900:900 prompt start
        """,
    )
    assert (row.source, row.live_before, row.common, row.line) == ("cold", 1000, 900, 4)


def test_the_third_number_of_a_span_wins(tmp_path):
    (row,) = rows(tmp_path, "chat ctx=500..900:300 prompt start")
    assert (row.cached_tokens, row.prefilled_tokens) == (600, 300)


def test_a_rebuild_of_a_tool_checkpoint_stays_inside_its_request(tmp_path):
    (row,) = rows(
        tmp_path,
        f"""
        chat ctx=0..900:900 TOOLS prompt start
        chat ctx=0..900:900 TOOLS prompt done 1.000s
        tool calls ctx=0..900:900 n=1 ids=[a] names=[b]
        kv cache hit text tokens=512 text=9 quant=2 key=token-text load=1.0 ms file={FILE.format(5)}
        tool checkpoint canonicalization needs 418 tokens rebuild ctx=512..930:418 request_ctx=0..900:900 reason=canonical-tail-rewrite tail=30 discard=40 common=900 live=950 target=930 cached=512 source=disk file={FILE.format(5)}
        chat ctx=512..930:418 TOOLS tool checkpoint rebuild chunk 0/418 (0.0%) chunk=0.00 t/s avg=0.00 t/s 0.001s
        tool checkpoint rebuild done ctx=512..930:418 request_ctx=0..900:900 source=disk cached=512 replay=418 target=930 0.500s
        chat ctx=0..900:900 gen=50 TOOLS DSML_START DSML_END finish=tool_calls 3.000s
        """,
    )
    assert (row.source, row.disk_hit_tokens, row.live_after) == ("cold", 0, 930)
    assert len(row.lines) == 7


def test_tokens_of_a_tool_error_retry_stay_in_the_slot(tmp_path):
    (row,) = rows(
        tmp_path,
        """
        chat ctx=0..900:900 TOOLS prompt start
        chat ctx=0..900:900 TOOLS prompt done 1.000s
        chat ctx=900..940:40 gen=40 TOOLS decoding chunk=1.00 t/s avg=1.00 t/s 1.000s
        chat ctx=0..900:900 TOOLS invalid tool call; continuing with model-visible tool error
        chat ctx=0..900:900 TOOLS tool-error continuation appended 25 tokens
        chat ctx=0..900:900 gen=30 TOOLS finish=stop 3.000s
        """,
    )
    assert (row.generated_tokens, row.live_after) == (30, 900 + 40 + 25 + 30)


def test_requests_that_never_finish_do_not_take_what_comes_later(tmp_path):
    failed, again = rows(
        tmp_path,
        """
        chat ctx=0..900:900 prompt start
        chat ctx=0..900:900 stream closed during prefill
        @5 chat ctx=0..900:900 prompt start
        @6 chat ctx=0..900:900 prompt done 1.000s
        @7 chat ctx=0..900:900 gen=9 finish=stop 2.000s
        """,
    )
    assert (failed.finish, failed.client_gone, failed.prefill_s) == (None, True, None)
    assert (again.finish, again.prefill_s) == ("stop", 1.0)


def test_a_silent_failure_ends_where_the_single_slot_starts_the_next(tmp_path):
    failed, after = rows(
        tmp_path,
        "chat ctx=0..900:900 prompt start\n@9 chat ctx=0..900:900 prompt start\n@10 chat ctx=0..900:900 prompt done 1.000s",
        start=SINGLE,
    )
    assert (failed.prefill_s, after.prefill_s) == (None, 1.0)


def test_a_loaded_file_whose_prefill_failed_leaves_an_empty_slot(tmp_path):
    first, second = rows(
        tmp_path,
        f"""
        kv cache hit text tokens=512 text=9 quant=2 key=token-text load=1.0 ms file={FILE.format(5)}
        chat ctx=512..900:388 prompt start
        kv cache discarded reason=prefill-failed file={FILE.format(5)}
        @4 chat ctx=0..700:700 prompt start
        """,
        start=SINGLE,
    )
    assert (first.live_after, second.previous_in_slot, second.slot) == (0, 1, 0)


def test_stores_during_a_prefill_go_to_the_request_that_reached_them(tmp_path):
    slow, fast = rows(
        tmp_path,
        """
        chat ctx=0..30000:30000 prompt start
        chat ctx=4096..40000:35904 prompt start
        chat ctx=0..30000:30000 prefill chunk 8192/30000 (27.3%) chunk=1.00 t/s avg=1.00 t/s 5.000s
        chat ctx=4096..40000:35904 prefill chunk 6144/35904 (17.1%) chunk=1.00 t/s avg=1.00 t/s 5.000s
        kv cache stored tokens=10240 trimmed=0 reason=continued key=token-text size=157.35 MiB save=22.3 ms
        kv cache stored tokens=29000 trimmed=1000 reason=cold key=token-text size=400.00 MiB save=22.3 ms
        """,
    )
    assert [(s.tokens, s.reason) for s in slow.stores] == [(29000, "cold")]
    assert [(s.tokens, s.reason) for s in fast.stores] == [(10240, "continued")]


def test_a_miss_whose_start_is_not_in_the_log_is_a_row_with_nulls(tmp_path):
    (row,) = rows(
        tmp_path,
        f"""
        live kv cache miss live=80268 prompt=90076 common=11154 reason=token-mismatch
        kv cache stored tokens=80268 trimmed=0 reason=evict key=token-text size=1.00 MiB save=1.0 ms
        kv cache hit text tokens=70000 text=9 quant=2 key=token-text load=1.0 ms file={FILE.format(5)}
        """,
    )
    assert (row.prompt_tokens, row.cached_tokens, row.prefilled_tokens, row.finish) == (
        None,
        None,
        None,
        None,
    )
    assert (row.canonical_prompt_tokens, row.live_before, row.disk_hit_tokens) == (90076, 80268, 70000)
    assert row.changed_text_tokens == 90076 - 11154 and row.lost_to_cache_tokens is None


def test_a_log_that_begins_in_the_middle_of_a_reply(tmp_path):
    """Decode lines give P alone; the finish line brings the rest."""
    (row,) = rows(
        tmp_path,
        """
        chat ctx=950..1000:50 gen=100 decoding chunk=1.00 t/s avg=1.00 t/s 1.000s
        chat ctx=1000..1050:50 gen=150 decoding chunk=1.00 t/s avg=1.00 t/s 2.000s
        chat ctx=700..900:200 gen=150 finish=stop 9.000s
        """,
        start="vision embedding cache hit",
    )
    assert (row.prompt_tokens, row.cached_tokens, row.generated_tokens, row.start_s) == (
        900,
        700,
        150,
        pytest.approx(-8.5, abs=0.1),
    )
    assert row.progress.decodes == 2


def test_a_restart_begins_another_run_with_empty_slots(tmp_path):
    request = "chat ctx=0..900:900 prompt start\nchat ctx=0..900:900 prompt done 1.000s\nchat ctx=0..900:900 gen=9 finish=stop 2.000s"
    log = tmp_path / "server.log"
    lines = "\n".join([BATCHED.format(n=2), request, SINGLE, request]).split("\n")
    log.write_text("".join(f"0915 10:00:00 ds4-server: {line}\n" for line in lines))
    reading = read([str(log)])
    assert [(run.slots, run.started) for run in reading.runs] == [(2, True), (1, True)]
    assert [(r.run, r.slot, r.previous_in_slot) for r in reading.requests] == [(0, 0, None), (1, 0, None)]


def test_the_builds_of_early_may_print_no_miss(tmp_path):
    """An evict store, a hit and a start are the miss; nothing says what part was common."""
    first, second = rows(
        tmp_path,
        f"""
        chat ctx=0..900:900 prompt start
        chat ctx=0..900:900 prompt done 1.000s
        chat ctx=0..900:900 gen=9 finish=stop 2.000s
        kv cache stored tokens=909 trimmed=0 reason=evict size=32.00 MiB save=5.0 ms
        kv cache hit tokens=512 quant=2 load=5.0 ms file={FILE.format(5)}
        chat ctx=512..800:288 prompt start
        """,
        start="KV disk cache /kv (budget=4096 MiB, cross-quant=accept, min=512, cold_max=30000, continued=10000, trim=32, align=2048)\n"
        + SINGLE,
    )
    assert (second.evicted_live_tokens, second.live_before, second.common) == (909, None, None)
    assert (second.source, second.evict_stored, second.previous_in_slot) == ("disk-text", True, 1)
    assert first.live_before is None


def test_excerpts_of_a_report_are_not_joined_unless_spans_chain(tmp_path):
    report = tmp_path / "issue.md"
    report.write_text(
        """It was slow.

```
ds4-server: live kv cache miss live=80268 prompt=90076 common=11154 vision=match reason=token-mismatch
```

and somewhere else in the log

```
ds4-server: chat ctx=0..5000:5000 prompt start
```

which ended like this:

```
ds4-server: chat ctx=0..5000:5000 prompt done 100.000s
```
"""
    )
    missed, other = read([str(report)]).requests
    assert (missed.canonical_prompt_tokens, missed.prompt_tokens) == (90076, None)
    assert (other.prompt_tokens, other.prefill_s, other.live_before) == (5000, 100.0, None)


def test_in_an_excerpt_the_hit_line_may_be_missing(tmp_path):
    report = tmp_path / "issue.md"
    report.write_text(
        """See:

    0915 10:00:00 ds4-server: live kv cache miss live=80268 prompt=90076 common=11154 vision=match reason=token-mismatch
    0915 10:00:03 ds4-server: chat ctx=70000..90076:20076 prompt start
"""
    )
    (row,) = read([str(report)]).requests
    assert (row.source, row.live_before, row.disk_hit_tokens, row.cached_tokens) == (
        "disk-text",
        80268,
        None,
        70000,
    )


def test_a_log_of_starts_alone_does_not_hold_them_all_open():
    """No server runs so many at once: the oldest are over, and none is lost."""
    joiner = Joiner()
    for number in range(300):
        text = f"0915 10:00:00 ds4-server: chat ctx=0..{number + 5}:{number + 5} prompt start"
        joiner.feed(replace(parse_line(text, line=number + 1), seq=number))
    assert len(joiner.opens) == 256
    joiner.end_run()
    assert [opened.row.prompt_tokens for opened in joiner.closed] == [number + 5 for number in range(300)]


def test_a_log_without_its_start_lines_has_the_same_requests(tmp_path):
    """People filter: chunk lines, `prompt start` and `prompt done` are gone, what they began is not."""
    whole = CAPTURES / "d-3conv-2slots" / "server.log"
    cut = tmp_path / "server.log"
    gone = (" prompt start", " prompt done", " prefill chunk ")
    kept = [line for line in whole.read_text().splitlines() if not any(word in line for word in gone)]
    cut.write_text("\n".join(kept) + "\n")

    def told(path):
        return sorted(
            (r.prompt_tokens, r.cached_tokens, r.generated_tokens, r.common, r.disk_hit_tokens or None)
            for r in read([str(path)]).requests
            if r.finish
        )

    assert told(cut) == told(whole)
    assert len(read([str(cut)]).requests) == len(read([str(whole)]).requests)


def test_a_decoding_line_alone_belongs_to_the_miss_of_exactly_its_prompt(tmp_path):
    other, missed = rows(
        tmp_path,
        f"""
        live kv cache miss live=1486 prompt=1981 common=1090 reason=token-mismatch
        kv cache stored tokens=1486 trimmed=0 reason=evict key=token-text size=42.35 MiB save=6.1 ms
        kv cache hit text tokens=1588 text=8781 quant=2 key=token-text load=12.6 ms file={FILE.format(1)}
        chat ctx=0..1593:1593 gen=77 finish=stop 0.558s
        chat ctx=1981..2031:50 gen=50 decoding chunk=449.38 t/s avg=449.38 t/s 0.111s
        """,
    )
    assert (other.prompt_tokens, other.common, other.disk_hit_tokens) == (1593, None, None)
    assert (missed.prompt_tokens, missed.common, missed.disk_hit_tokens) == (1981, 1090, 1588)


def test_a_load_before_the_start_lines_is_of_the_process_that_they_begin(tmp_path):
    hit = (
        f"kv cache hit text tokens=20480 text=84903 quant=2 key=token-text load=69.5 ms file={FILE.format(1)}"
    )
    (row,) = rows(tmp_path, "chat ctx=20480..74210:53730 TOOLS prompt start", start=f"{hit}\n{THREE_SLOTS}")
    assert (row.source, row.cached_tokens) == ("disk-text", 20480)


def test_a_count_below_zero_is_no_count(tmp_path):
    (row,) = rows(
        tmp_path,
        """
        live kv cache miss live=-5 prompt=1981 common=-3 reason=token-mismatch
        chat ctx=0..1981:1981 prompt start
        chat ctx=0..1981:1981 gen=-7 finish=stop 0.558s
        """,
    )
    assert (row.live_before, row.common, row.generated_tokens, row.prompt_tokens) == (None, None, None, 1981)
