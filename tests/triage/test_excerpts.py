"""Pieces of a log as they are pasted: what a left-out line, another fence or a loop without an end may mean."""

from __future__ import annotations

HIT = "ds4-server: kv cache hit text tokens=61440 text=262000 quant=2 key=token-text load=300.0 ms file=/kv/a.kv"


def loop(prompts, more=""):
    """Attempts that each read one file and start; `more` is a line behind each start."""
    text = ""
    for minute, prompt in enumerate(prompts):
        span = f"61440..{prompt}:{prompt - 61440}"
        text += f"0814 12:0{minute}:00 {HIT}\n0814 12:0{minute}:01 ds4-server: chat ctx={span} prompt start\n"
        text += more.format(minute=minute, span=span, n=prompt - 61440)
    return text


def test_one_file_read_again_and_again_without_an_end(judge):
    report = judge(loop((70120, 70120, 70131)))
    assert [f.mechanism for f in report.findings] == ["poisoned-checkpoint", "retry-storm"]
    assert report.findings[0].quantities["attempts"] == 3
    assert report.findings[0].confidence <= 0.6  # no line says that it failed


def test_prefills_that_get_on_are_retries_not_a_bad_file(found):
    chunk = "0814 12:0{minute}:11 ds4-server: chat ctx={span} prefill chunk 4096/{n} (5.0%) chunk=409.60 t/s avg=409.60 t/s 10.000s\n"
    ids = found(loop((143360, 143360, 143360), chunk))
    assert "poisoned-checkpoint" not in ids
    assert ids[0] == "retry-storm"


def test_sessions_that_share_a_file_are_no_loop(found):
    assert "poisoned-checkpoint" not in found(loop((70120, 90400, 64100)))


WAITING = "0918 16:00:00 ds4-server: kv cache hit text tokens=40960 text=175000 quant=2 key=token-text load=240.0 ms file=/kv/a.kv\n"


def test_a_hit_and_then_silence_while_another_request_goes_on(judge):
    report = judge(
        WAITING
        + "0918 16:00:01 ds4-server: chat ctx=9200..9250:50 gen=250 decoding chunk=20.00 t/s avg=20.00 t/s 12.500s\n"
        + "0918 16:02:40 ds4-server: chat ctx=8700..9000:300 gen=310 finish=stop 175.000s\n"
    )
    assert report.findings[0].mechanism == "prefill-stall"
    assert report.findings[0].quantities["waited_seconds"] == 160


def test_no_stall_where_starts_are_left_out(found):
    begun_later = "0918 16:02:40 ds4-server: chat ctx=40960..42000:1040 gen=310 finish=stop 150.000s\n"
    assert "prefill-stall" not in found(WAITING + begun_later)


OTHER = (
    "0918 16:04:01 ds4-server: chat ctx=0..2058:2058 prompt start\n"
    "0918 16:04:02 ds4-server: chat ctx=0..2058:2058 prompt done 1.000s\n"
)


def test_a_hit_and_then_only_another_request(found):
    assert found(WAITING + OTHER)[0] == "prefill-stall"


def test_no_stall_where_dots_or_a_later_live_length_show_that_lines_are_left_out(found):
    assert "prefill-stall" not in found(f"```\n{WAITING}...\n{OTHER}```\n")
    miss = "0918 16:04:00 ds4-server: live kv cache miss live=43110 prompt=2058 common=12 reason=token-mismatch\n"
    assert "prefill-stall" not in found(WAITING + miss + OTHER)


def test_no_stall_where_only_another_excerpt_goes_on(found):
    later = "0918 19:00:00 ds4-server: chat ctx=0..900:900 prompt start\n0918 19:02:00 ds4-server: chat ctx=0..900:900 prompt done 120.000s\n"
    assert "prefill-stall" not in found(f"```\n{WAITING}```\nand at seven\n```\n{later}```\n")


def test_lines_of_another_fence_hours_later_are_another_request(judge):
    report = judge(
        """
        ```
        0920 08:00:00 ds4-server: chat ctx=0..9000:9000 TOOLS prompt start
        0920 08:00:31 ds4-server: chat ctx=0..9000:9000 TOOLS prompt done 30.200s
        ```
        in the evening
        ```
        0920 20:00:00 ds4-server: chat ctx=0..9000:9000 gen=80 TOOLS finish=error error="client stream write failed" 5.100s
        0920 20:00:03 ds4-server: kv cache stored tokens=10240 trimmed=0 reason=continued key=token-text size=157.00 MiB save=55.0 ms
        ```
        """
    )
    assert report.totals["requests"] == 2
    assert report.findings[0].mechanism == "client-gave-up"
    assert report.findings[0].quantities["wasted_seconds"] == 5.1
    assert "wasted_prefill_seconds" not in report.findings[0].quantities


def test_a_long_prefill_cut_into_two_fences_is_one_request(judge):
    report = judge(
        """
        ```
        0920 08:00:00 ds4-server: chat ctx=0..90000:90000 prompt start
        ```
        and much later
        ```
        0920 10:00:00 ds4-server: chat ctx=0..90000:90000 prompt done 7200.000s
        ```
        """
    )
    assert report.totals["requests"] == 1
    assert report.findings[0].quantities["prefill_seconds"] == 7200


def test_a_notice_that_something_else_does_the_work_is_no_failure(found):
    ids = found(
        """
        0806 10:00:00 ds4-server: anthropic live continuation match=tool-output-ids ids=2 cached=50210 prompt=50902
        0806 10:00:00 ds4-server: chat ctx=50210..50902:692 TOOLS prompt start
        ds4: CUDA graph capture FAILED (unsupported op), falling back to eager
        0806 10:00:09 ds4-server: chat ctx=50210..50902:692 TOOLS prompt done 9.000s
        """
    )
    assert ids == ["healthy"]


def test_the_miss_before_a_replay_without_its_reasoning_is_of_that_request(judge):
    report = judge(
        """
        0912 10:00:00 ds4-server: chat ctx=40000..40310:310 gen=300 RESPPROTO finish=stop 20.000s
        0912 10:01:00 ds4-server: live kv cache miss RESPPROTO live=40610 prompt=40420 common=40311 vision=match reason=token-mismatch
        0912 10:01:01 ds4-server: responses replay RESPPROTO missing reasoning state; continuing from visible history source=none cached=0 prompt=40420
        0912 10:01:01 ds4-server: chat ctx=0..40420:40420 RESPPROTO prompt start
        0912 10:04:00 ds4-server: chat ctx=0..40420:40420 RESPPROTO prompt done 178.000s
        """
    )
    assert [f.mechanism for f in report.findings] == ["reasoning-retokenised"]
    assert report.findings[0].quantities["prefill_seconds"] == 178.0
    assert report.findings[0].quantities["sampled_not_replayed_tokens"] == 299


DISCARDED = """
    0925 10:00:00 ds4-server: live kv cache miss live=52000 prompt=60100 common=51000{vision} reason=token-mismatch
    0925 10:00:01 ds4-server: kv cache hit text tokens=51000 text=220000 quant=2 key=token-text load=280.0 ms file=/kv/c0ffee.kv
    0925 10:00:01 ds4-server: chat ctx=51000..60100:9100 TOOLS prompt start
    0925 10:00:06 ds4-server: kv cache discarded reason=prefill-failed file=/kv/c0ffee.kv
    """


def test_a_file_discarded_without_a_failure_by_a_build_that_cancels(judge):
    report = judge(DISCARDED.format(vision=" vision=match"))
    assert report.findings[0].mechanism == "client-gave-up"
    assert report.findings[0].confidence == 0.5
    assert "poisoned-checkpoint" not in [f.mechanism for f in report.findings]


def test_a_file_discarded_without_a_failure_by_an_older_build(judge):
    first = judge(DISCARDED.format(vision="")).findings[0]
    assert (first.mechanism, first.confidence) == ("poisoned-checkpoint", 0.6)


def test_a_growing_conversation_has_no_stale_anchor(found):
    text = ""
    for minute, (live, prompt) in enumerate(((30110, 30560), (30822, 31290), (31544, 31901))):
        span = f"10240..{prompt}:{prompt - 10240}"
        text += f"0711 21:0{minute}:00 ds4-server: live kv cache miss live={live} prompt={prompt} common=15872 reason=token-mismatch\n"
        text += f"0711 21:0{minute}:01 ds4-server: kv cache hit text tokens=10240 text=43700 quant=2 key=token-text load=88.1 ms file=/kv/a.kv\n"
        text += f"0711 21:0{minute}:01 ds4-server: chat ctx={span} prompt start\n"
        text += f"0711 21:0{minute}:40 ds4-server: chat ctx={span} prompt done 39.000s\n"
    assert found(text) == ["client-transient-tail", "shallow-disk-checkpoint"]


RUNNER = """
{0}ds4-server: chat ctx=4096..20000:15904 prefill chunk 4096/15904 (25.8%) chunk=400.00 t/s avg=400.00 t/s 10.240s
{1}ds4-server: chat ctx=4096..20000:15904 prefill chunk 8192/15904 (51.5%) chunk=400.00 t/s avg=400.00 t/s 20.480s
"""
ISO = ("2026-09-15T22:00:10.1234567Z ", "2026-09-16T06:30:00.0000000Z ")


def test_the_time_of_a_runner_counts_where_the_server_printed_none(judge):
    for name in ("input.md", "input.log"):
        for heads in (ISO, ("Sep 15 22:00:10 host ds4[7]: ", "Sep 16 06:30:00 host ds4[7]: ")):
            report = judge(RUNNER.format(*heads), name)
            assert report.findings[0].mechanism == "host-suspended"
            assert report.findings[0].quantities["wall_gap_seconds"] == 30590
            assert report.input["first_stamp"] == "0915 22:00:10"
            assert not any("stamps" in line for line in report.not_knowable)


def test_the_time_of_a_runner_does_not_mix_with_the_servers_own(judge):
    own = (ISO[0] + "0916 00:00:10 ", ISO[1] + "0916 00:00:20 ")
    report = judge(RUNNER.format(*own) + ISO[1] + "ds4: Metal device M5, 128.00 GiB RAM\n", "input.log")
    assert "host-suspended" not in [f.mechanism for f in report.findings]
    assert report.input["first_stamp"] == "0916 00:00:10"


def test_two_pieces_of_a_night_are_neither_sleep_nor_retries(found):
    chunk = "{} ds4-server: chat ctx=0..70000:70000 prefill chunk {}/70000 (9.0%) chunk=200.00 t/s avg=200.00 t/s {}s\n"
    evening, morning = chunk.format("0812 23:00:00", 4096, 20.48), chunk.format("0813 07:00:00", 8192, 40.96)
    ids = found(f"evening\n```\n{evening}```\nmorning\n```\n{morning}```\n")
    assert not {"retry-storm", "host-suspended", "prefill-stall"} & set(ids)


def test_attempts_that_each_find_the_same_state_are_a_storm(found):
    miss = "0814 12:0{0}:00 ds4-server: live kv cache miss live=61470 prompt=70120 common=61441 reason=token-mismatch\n"
    attempts = loop((70120, 70120, 70120)).splitlines(keepends=True)
    text = "".join(miss.format(n) + "".join(attempts[2 * n : 2 * n + 2]) for n in range(3))
    ids = found(text)
    assert ids[0] == "poisoned-checkpoint"
    assert "retry-storm" in ids


def test_a_hit_of_which_little_was_used(judge):
    first = judge(
        """
        `kv cache hit text tokens=50000 text=213000 quant=2 key=token-text load=290.0 ms file=/kv/a.kv`
        `chat ctx=2048..51000:48952 TOOLS prompt start`
        """
    ).findings[0]
    assert first.mechanism == "hit-not-used"
    assert first.quantities["lost_to_cache_tokens"] == 47952
