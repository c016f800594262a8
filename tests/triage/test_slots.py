"""4.1 Slots and other conversations: excerpts in, ids out; look-alikes that must not fire."""

from __future__ import annotations

START_2 = """
0901 10:00:00 ds4-server: batched mode enabled resident_sessions=2 prefill_quantum=2048 mixed_prefill_quantum=128 decode_coalesce_us=2000
0901 10:00:00 ds4-server: listening on http://127.0.0.1:8000
"""
START_1 = """
0901 10:00:00 ds4-server: context buffers 2421.77 MiB (ctx=131072, backend=metal, prefill_chunk=4096, raw_kv_rows=4352, compressed_kv_rows=32770)
0901 10:00:00 ds4-server: listening on http://127.0.0.1:8000
"""


def test_two_conversations_and_a_free_slot_is_a_steal(judge):
    report = judge(
        """
        Two agents, `--batched-session 2`, the second slot stays empty:

        ```
        10:02:01 live kv cache miss live=40210 prompt=52007 common=7120 vision=match reason=token-mismatch
        10:02:01 kv cache stored tokens=40210 trimmed=0 reason=evict key=token-text size=551.20 MiB save=180.1 ms
        10:04:44 live kv cache miss live=52130 prompt=41000 common=7120 vision=match reason=token-mismatch
        10:04:44 kv cache stored tokens=52130 trimmed=0 reason=evict key=token-text size=711.00 MiB save=230.4 ms
        10:04:45 kv cache hit text tokens=40210 text=160840 quant=2 key=token-text load=90.0 ms file=/kv/a.kv
        10:04:45 chat ctx=40210..41000:790 TOOLS prompt start
        10:04:49 chat ctx=40210..41000:790 TOOLS prompt done 4.100s
        ```
        """
    )
    first = report.findings[0]
    assert first.mechanism == "slot-steal-shared-prefix"
    assert first.quantities["common_tokens"] == 7120
    assert first.quantities["stored_mib"] == 1262.2
    assert first.quantities["span_seconds"] == 168
    assert "client-early-edit" not in {f.mechanism for f in report.findings}


def test_same_without_disk_by_sizes_that_jump(found):
    ids = found(
        START_2
        + """
0901 10:05:00 ds4-server: live kv cache miss live=61200 prompt=18400 common=9055 reason=token-mismatch
0901 10:05:00 ds4-server: chat ctx=0..18400:18400 TOOLS prompt start
0901 10:06:31 ds4-server: chat ctx=0..18400:18400 TOOLS prompt done 91.002s
0901 10:06:40 ds4-server: chat ctx=0..18400:18400 gen=210 TOOLS finish=stop 99.9s
0901 10:07:10 ds4-server: live kv cache miss live=18610 prompt=61950 common=9055 reason=token-mismatch
0901 10:07:10 ds4-server: chat ctx=0..61950:61950 TOOLS prompt start
0901 10:12:20 ds4-server: chat ctx=0..61950:61950 TOOLS prompt done 310.104s
""",
        "server.log",
    )
    assert ids[0] in ("slot-steal-shared-prefix", "side-calls-on-one-slot")
    assert not {"client-transient-tail", "client-early-edit", "client-history-rewrite"} & set(ids)


def test_unknown_slots_leave_the_steal_possible(judge):
    report = judge(
        """
        08:00:01 live kv cache miss live=30011 prompt=38050 common=5000 reason=token-mismatch
        08:00:01 kv cache stored tokens=30011 ... reason=evict
        08:03:09 live kv cache miss live=38190 prompt=30544 common=5001 reason=token-mismatch
        08:03:09 kv cache stored tokens=38190 ... reason=evict
        08:03:09 kv cache hit text tokens=30011 ... load=... ms
        """
    )
    first = report.findings[0]
    assert (first.mechanism, first.grade) == ("slot-steal-shared-prefix", "possible")
    assert any("slots" in text for text in report.not_knowable)


def test_one_growing_conversation_is_no_steal(found):
    ids = found(
        START_2
        + """
0901 11:00:00 ds4-server: live kv cache miss live=41000 prompt=40700 common=12010 reason=token-mismatch
0901 11:05:00 ds4-server: live kv cache miss live=47100 prompt=46850 common=12010 reason=token-mismatch
0901 11:10:00 ds4-server: live kv cache miss live=53200 prompt=52900 common=12010 reason=token-mismatch
"""
    )
    assert ids[0] == "client-transient-tail"
    assert not {"slot-steal-shared-prefix", "too-few-slots"} & set(ids)


def test_template_head_takes_a_slot(judge):
    report = judge(
        """
        ds4-server: batched mode enabled resident_sessions=4 prefill_quantum=2048 mixed_prefill_quantum=128 decode_coalesce_us=2000
        ds4-server: live kv cache miss live=91044 prompt=2310 common=31 reason=token-mismatch
        ds4-server: kv cache stored tokens=91044 trimmed=0 reason=evict key=token-text size=1219.88 MiB save=840.0 ms
        ds4-server: chat ctx=0..2310:2310 prompt start
        """
    )
    first = report.findings[0]
    assert first.mechanism == "slot-steal-trivial-prefix"
    assert first.quantities["lost_live_tokens"] == 91044
    assert first.quantities["common_tokens"] == 31


def test_the_newer_choice_says_so(found):
    ids = found(
        """
        0918 09:10:11 slot 1: request reuses nothing; evicting checkpoint (70112 tokens, idle 44 s, protected)
        0918 09:10:11 ds4-server: live kv cache miss live=70112 prompt=15020 common=12 vision=match reason=token-mismatch
        0918 09:10:12 ds4-server: chat ctx=0..15020:15020 TOOLS prompt start
        """
    )
    assert ids[0] == "slot-steal-trivial-prefix"


def test_a_stale_victim_is_ordinary_replacement(found):
    ids = found(
        """
        0918 09:10:11 slot 1: request reuses nothing; evicting checkpoint (70112 tokens, idle 9144 s, stale)
        0918 09:10:11 ds4-server: live kv cache miss live=70112 prompt=15020 common=12 vision=match reason=token-mismatch
        0918 09:10:12 ds4-server: chat ctx=0..15020:15020 TOOLS prompt start
        """
    )
    assert ids == ["unrelated-prompt"]


def test_three_conversations_on_two_slots(judge):
    rows = [  # live, prompt, common, hit
        (31000, 22000, 6000, None), (40100, 31800, 6000, 31000), (22300, 41000, 6001, 40100),
        (32000, 23100, 6000, 22300), (41400, 33000, 6000, 32000),
    ]  # fmt: skip
    text = START_2
    for n, (live, prompt, common, hit) in enumerate(rows):
        stamp = f"0901 10:1{n}:00 ds4-server:"
        text += (
            f"{stamp} live kv cache miss live={live} prompt={prompt} common={common} reason=token-mismatch\n"
        )
        text += f"{stamp} kv cache stored tokens={live} trimmed=0 reason=evict key=token-text size={live / 75:.2f} MiB save=100.0 ms\n"
        if hit:
            text += f"{stamp} kv cache hit text tokens={hit} text=9 quant=2 key=token-text load=50.0 ms file=/kv/{hit}.kv\n"
        text += f"{stamp} chat ctx={hit or 0}..{prompt}:{prompt - (hit or 0)} TOOLS prompt start\n"
    report = judge(text)
    assert report.findings[0].mechanism == "too-few-slots"
    assert report.findings[0].quantities["conversations"] == 3
    assert report.findings[0].quantities["slots"] == 2


def test_two_chats_on_a_single_session(judge):
    report = judge(
        START_1
        + """
0901 10:05:00 ds4-server: live kv cache miss live=50010 prompt=44000 common=8000 reason=token-mismatch
0901 10:05:00 ds4-server: kv cache stored tokens=50010 trimmed=0 reason=evict key=token-text size=680.00 MiB save=100.0 ms
0901 10:05:01 ds4-server: kv cache hit text tokens=43000 text=1 quant=2 key=token-text load=60.0 ms file=/kv/1.kv
0901 10:05:01 ds4-server: chat ctx=43000..44000:1000 TOOLS prompt start
0901 10:05:06 ds4-server: chat ctx=43000..44000:1000 TOOLS prompt done 5.0s
0901 10:05:09 ds4-server: chat ctx=43000..44000:1000 gen=90 TOOLS finish=stop 8.0s
0901 10:06:00 ds4-server: live kv cache miss live=44090 prompt=51000 common=8000 reason=token-mismatch
0901 10:06:00 ds4-server: kv cache stored tokens=44090 trimmed=0 reason=evict key=token-text size=601.00 MiB save=100.0 ms
0901 10:06:01 ds4-server: kv cache hit text tokens=50010 text=1 quant=2 key=token-text load=60.0 ms file=/kv/2.kv
0901 10:06:01 ds4-server: chat ctx=50010..51000:990 TOOLS prompt start
"""
    )
    first = report.findings[0]
    assert first.mechanism == "too-few-slots"
    assert any(r.mechanism == "slot-steal-shared-prefix" for r in report.ruled_out)


def test_title_calls_push_the_conversation_out(judge):
    report = judge(
        START_1
        + """
0901 10:05:00 ds4-server: chat ctx=30100..30500:400 gen=100 TOOLS finish=stop 8.0s
0901 10:05:00 ds4-server: live kv cache miss live=30600 prompt=410 common=3 reason=token-mismatch
0901 10:05:00 ds4-server: chat ctx=0..410:410 prompt start
0901 10:05:02 ds4-server: chat ctx=0..410:410 prompt done 2.0s
0901 10:05:03 ds4-server: chat ctx=0..410:410 gen=9 finish=stop 2.9s
0901 10:05:40 ds4-server: live kv cache miss live=419 prompt=30800 common=3 reason=token-mismatch
0901 10:05:40 ds4-server: chat ctx=0..30800:30800 TOOLS prompt start
0901 10:08:00 ds4-server: chat ctx=0..30800:30800 TOOLS prompt done 140.0s
"""
    )
    first = report.findings[0]
    assert first.mechanism == "side-calls-on-one-slot"
    assert first.quantities["side_calls_that_waited"] == 1
    assert first.quantities["avoidable_tokens"] == 30600


def test_a_switch_that_the_disk_heals_is_healthy(found):
    ids = found(
        START_1
        + """
0901 10:05:00 ds4-server: chat ctx=30100..30500:400 gen=100 TOOLS finish=stop 8.0s
0901 10:05:00 ds4-server: live kv cache miss live=30600 prompt=5100 common=3 reason=token-mismatch
0901 10:05:00 ds4-server: kv cache stored tokens=30600 trimmed=0 reason=evict key=token-text size=410.00 MiB save=80.0 ms
0901 10:05:00 ds4-server: chat ctx=0..5100:5100 prompt start
0901 10:05:12 ds4-server: chat ctx=0..5100:5100 prompt done 12.0s
0901 10:05:13 ds4-server: chat ctx=0..5100:5100 gen=9 finish=stop 12.9s
0901 10:05:40 ds4-server: live kv cache miss live=5109 prompt=30800 common=3 reason=token-mismatch
0901 10:05:40 ds4-server: kv cache hit text tokens=30600 text=1 quant=2 key=token-text load=50.0 ms file=/kv/1.kv
0901 10:05:40 ds4-server: chat ctx=30600..30800:200 TOOLS prompt start
0901 10:05:41 ds4-server: chat ctx=30600..30800:200 TOOLS prompt done 1.2s
"""
    )
    assert "side-calls-on-one-slot" not in ids
    assert ids[0] in ("healthy", "unrelated-prompt")


def test_a_new_chat_of_the_same_size(judge):
    report = judge(
        """
        live kv cache miss live=16251 prompt=16003 common=2 reason=token-mismatch
        chat ctx=0..16003:16003 prompt start
        chat ctx=0..16003:16003 prompt done 66.4s
        """
    )
    assert [f.mechanism for f in report.findings] == ["unrelated-prompt"]
    assert report.findings[0].quantities["prefill_seconds"] == 66.4


def test_a_switch_while_the_other_slot_works_is_a_shortage(found):
    """4.1: the second slot is busy at that moment, so nothing was stolen."""
    text = (
        START_2
        + """
0901 10:10:00 ds4-server: chat ctx=0..50000:50000 TOOLS prompt start
0901 10:10:05 ds4-server: live kv cache miss live=21010 prompt=18000 common=5030 reason=token-mismatch
0901 10:10:06 ds4-server: kv cache stored tokens=21010 trimmed=0 reason=evict key=token-text size=299.00 MiB save=120.0 ms
0901 10:10:06 ds4-server: chat ctx=0..18000:18000 TOOLS prompt start
0901 10:13:30 ds4-server: chat ctx=0..18000:18000 TOOLS prompt done 203.000s
0901 10:13:40 ds4-server: chat ctx=0..18000:18000 gen=100 TOOLS finish=stop 213.000s
{busy}0901 10:14:00 ds4-server: live kv cache miss live=18100 prompt=21300 common=5030 reason=token-mismatch
0901 10:14:01 ds4-server: kv cache stored tokens=18100 trimmed=0 reason=evict key=token-text size=261.00 MiB save=110.0 ms
0901 10:14:01 ds4-server: kv cache hit text tokens=21010 text=90000 quant=2 key=token-text load=120.0 ms file=/kv/a.kv
0901 10:14:01 ds4-server: chat ctx=21010..21300:290 TOOLS prompt start
0901 10:14:09 ds4-server: chat ctx=21010..21300:290 TOOLS prompt done 7.600s
{late}"""
    )
    done = "0901 10:1{}:10 ds4-server: chat ctx=0..50000:50000 TOOLS prompt done {}.000s\n"
    assert found(text.format(busy="", late=done.format(5, 309)), "server.log")[0] == "too-few-slots"
    free = found(
        text.format(busy=done.format(0, 2), late="").replace(
            "10:10:00 ds4-server: chat", "10:09:00 ds4-server: chat"
        )
    )
    assert "too-few-slots" not in free[:1]


TWO_TALKS = (
    START_1
    + """
0824 08:00:00 ds4-server: chat ctx=0..29000:29000 TOOLS prompt start
0824 08:01:40 ds4-server: chat ctx=0..29000:29000 TOOLS prompt done 99.000s
0824 08:01:50 ds4-server: chat ctx=0..29000:29000 gen=200 TOOLS finish=stop 109.000s
0824 12:00:00 ds4-server: live kv cache miss live=29200 prompt=33000 common=8123 reason=token-mismatch
0824 12:00:00 ds4-server: chat ctx=0..33000:33000 TOOLS prompt start
0824 12:02:05 ds4-server: chat ctx=0..33000:33000 gen=210 TOOLS finish=stop 124.000s
0824 13:00:00 ds4-server: live kv cache miss live=33210 prompt={prompt} common=8123 reason=token-mismatch
0824 13:00:00 ds4-server: chat ctx=0..{prompt}:{prompt} TOOLS prompt start
"""
)


def test_a_prompt_that_drops_to_just_above_the_state_pushed_out_is_its_owner(found):
    assert found(TWO_TALKS.format(prompt=29400))[0] == "too-few-slots"
    assert "too-few-slots" not in found(TWO_TALKS.format(prompt=24000))
