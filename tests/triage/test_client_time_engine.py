"""4.7 and 4.8: client and time, engine and machine."""

from __future__ import annotations


def test_client_gone_before_the_first_byte(judge):
    report = judge(
        """
        0901 10:00:00 ds4-server: chat ctx=0..90000:90000 TOOLS prompt start
        0901 10:10:02 ds4-server: chat ctx=0..90000:90000 TOOLS prompt done 602.1s
        0901 10:10:02 ds4-server: chat ctx=0..90000:90000 TOOLS sse headers failed
        """
    )
    first = report.findings[0]
    assert first.mechanism == "client-gave-up"
    assert first.quantities["wasted_prefill_seconds"] == 602.1
    assert first.quantities["prefill_tokens"] == 90000


def test_client_gone_while_decoding(judge):
    report = judge(
        """
        0901 10:00:00 ds4-server: chat ctx=9000..9100:100 client disconnected
        0901 10:00:00 ds4-server: chat ctx=9000..9100:100 gen=412 finish=error error="client disconnected" 41.7s
        """
    )
    assert report.findings[0].mechanism == "client-gave-up"
    assert report.findings[0].quantities["wasted_seconds"] == 41.7


def test_retry_storm(judge):
    text = ""
    for minute in (0, 6, 12):
        text += f"0901 10:{minute:02}:00 ds4-server: chat ctx=2048..61000:58952 TOOLS prompt start\n"
        text += (
            f"0901 10:{minute + 5:02}:00 ds4-server: chat ctx=2048..61000:58952 TOOLS prompt done 300.0s\n"
        )
        text += f"0901 10:{minute + 5:02}:00 ds4-server: chat ctx=2048..61000:58952 TOOLS stream closed during prefill\n"
    report = judge(text)
    ids = [f.mechanism for f in report.findings]
    assert {"client-gave-up", "retry-storm"} <= set(ids[:2])
    storm = next(f for f in report.findings if f.mechanism == "retry-storm")
    assert storm.quantities["attempts"] == 3
    assert storm.quantities["reprefill_tokens"] == 3 * 58952
    assert storm.quantities["prefill_seconds"] == 900.0


def test_regenerating_by_hand_is_no_storm(found):
    text = ""
    for minute in (0, 6, 12):
        text += f"0901 10:{minute:02}:00 ds4-server: chat ctx=2048..6100:4052 prompt start\n"
        text += f"0901 10:{minute:02}:20 ds4-server: chat ctx=2048..6100:4052 prompt done 20.0s\n"
        text += f"0901 10:{minute:02}:40 ds4-server: chat ctx=2048..6100:4052 gen=90 finish=stop 40.0s\n"
    assert "retry-storm" not in found(text)


def test_parallel_equal_prompts_are_no_storm(found):
    ids = found(
        """
        0901 10:00:00 ds4-server: chat ctx=0..10860:10860 prompt start
        0901 10:00:00 ds4-server: chat ctx=0..10860:10860 prompt start
        0901 10:00:30 ds4-server: chat ctx=0..10860:10860 prompt done 30.0s
        0901 10:00:33 ds4-server: chat ctx=0..10860:10860 prompt done 33.0s
        """
    )
    assert "retry-storm" not in ids


def test_stalled_chunk(judge):
    report = judge(
        """
        0524 14:07:30 ds4-server: chat ctx=0..13000:13000 TOOLS prefill chunk 0/13000 (0.0%) chunk=0.00 t/s avg=0.00 t/s 0.001s
        0524 14:07:50 ds4-server: chat ctx=0..13000:13000 TOOLS prefill chunk 4096/13000 (31.5%) chunk=204.80 t/s avg=204.80 t/s 20.001s
        0524 14:17:50 ds4-server: chat ctx=0..13000:13000 TOOLS prefill chunk 8192/13000 (63.0%) chunk=6.83 t/s avg=13.21 t/s 620.001s
        0524 14:18:12 ds4-server: chat ctx=0..13000:13000 TOOLS prefill chunk 12288/13000 (94.5%) chunk=186.18 t/s avg=19.14 t/s 642.001s
        0524 14:18:16 ds4-server: chat ctx=0..13000:13000 TOOLS prompt done 646.001s
        """
    )
    first = report.findings[0]
    assert first.mechanism == "prefill-stall"
    assert first.quantities["stall_seconds"] == 600.0
    assert first.quantities["stall_tokens"] == 4096
    assert any(r.mechanism == "host-suspended" for r in report.ruled_out)


def test_all_chunks_slow_alike_is_no_stall(found):
    ids = found(
        """
        0524 14:00:00 ds4-server: chat ctx=0..3000:3000 prefill chunk 0/3000 (0.0%) chunk=0.00 t/s avg=0.00 t/s 0.001s
        0524 14:01:40 ds4-server: chat ctx=0..3000:3000 prefill chunk 1000/3000 (33.3%) chunk=10.00 t/s avg=10.00 t/s 100.001s
        0524 14:03:20 ds4-server: chat ctx=0..3000:3000 prefill chunk 2000/3000 (66.7%) chunk=10.00 t/s avg=10.00 t/s 200.001s
        0524 14:05:00 ds4-server: chat ctx=0..3000:3000 prompt done 300.001s
        """
    )
    assert "prefill-stall" not in ids
    assert ids[0] == "slow-but-right"


def test_the_machine_slept(judge):
    report = judge(
        """
        0709 02:11:40 ds4-server: chat ctx=0..30000:30000 prefill chunk 8192/30000 (27.3%) chunk=300.00 t/s avg=300.00 t/s 27.306s
        0709 03:05:10 ds4-server: chat ctx=0..30000:30000 prefill chunk 12288/30000 (41.0%) chunk=300.00 t/s avg=300.00 t/s 40.960s
        """
    )
    first = report.findings[0]
    assert first.mechanism == "host-suspended"
    assert first.quantities["wall_gap_seconds"] == 3210
    assert abs(first.quantities["hidden_seconds"] - 3196.346) < 0.01
    assert "prefill-stall" not in {f.mechanism for f in report.findings}


def test_stop_in_the_middle(judge):
    report = judge(
        """
        1130 17:59:42 ds4-server: shutdown requested, draining requests
        1130 17:59:42 ds4-server: chat ctx=1288..1368:80 final stream failed
        1130 17:59:42 ds4-server: chat ctx=1288..1368:80 gen=327 finish=error error="decode interrupted" 1.506s
        1130 17:59:42 ds4-server: persisting resident KV cache before shutdown slot=0 tokens=1696
        1130 17:59:42 ds4-server: kv cache stored tokens=1696 trimmed=0 reason=shutdown key=token-text size=45.15 MiB save=6.5 ms
        """
    )
    assert [f.mechanism for f in report.findings] == ["server-stopped"]
    assert report.findings[0].quantities["persisted_tokens"] == 1696


def test_an_ordinary_restart_is_a_note(judge):
    report = judge(
        """
        1130 17:59:40 ds4-server: chat ctx=1288..1368:80 prompt start
        1130 17:59:41 ds4-server: chat ctx=1288..1368:80 prompt done 0.4s
        1130 17:59:42 ds4-server: chat ctx=1288..1368:80 gen=27 finish=stop 1.506s
        1130 18:10:42 ds4-server: shutdown requested, draining requests
        1130 18:10:42 ds4-server: persisting resident KV cache before shutdown slot=0 tokens=1395
        """
    )
    assert report.findings[0].mechanism == "healthy"
    assert any(r.mechanism == "server-stopped" for r in report.ruled_out)


def test_engine_failure(judge):
    report = judge(
        """
        chat ctx=0..9100:9100 TOOLS prompt start
        ds4: GLM prefill attention kernel failed: invalid argument
        """
    )
    assert report.findings[0].mechanism == "engine-prefill-failure"


def test_a_fallback_notice_is_no_failure(found):
    ids = found(
        """
        chat ctx=0..9100:9100 TOOLS prompt start
        ds4: fused kernel FAILED self test, falling back to the reference path
        chat ctx=0..9100:9100 TOOLS prompt done 30.0s
        """
    )
    assert "engine-prefill-failure" not in ids


def test_distributed(judge):
    report = judge(
        """
        0913 16:22:51 ds4-server: kv cache stored tokens=20480 trimmed=0 reason=continued key=token-text size=291.00 MiB save=50.0 ms
        distributed worker: connection closed by peer
        ds4-tp: transport marked failed
        """
    )
    assert report.findings[0].mechanism == "distributed-failure"


def test_start_lines_of_a_pair_are_no_failure(found):
    ids = found(
        """
        ds4-tp: leader connected, transport=rdma gate-timeout=600ms
        ds4-tp: rdma warm-up ok (1 attempt), queue depth recv 1024 send 1024
        0913 16:22:08 ds4-server: listening on http://0.0.0.0:8000
        """
    )
    assert ids == ["nothing-to-judge"]


def test_out_of_memory(judge):
    report = judge(
        "ds4: CUDA tensor alloc failed: out of memory\n" * 4
        + "0616 10:27:03 ds4-server: failed to create cuda session 2/4\n"
    )
    assert report.findings[0].mechanism == "out-of-memory"
    assert report.findings[0].quantities["repeat_count"] == 4


def test_oom_score_is_no_memory_failure(found):
    assert found("ds4: Linux rocm backend set oom_score_adj=1000\n") == ["nothing-to-judge"]


def test_lost_tool_turns(judge):
    for text in (
        'chat ctx=0..1849:1849 gen=42 TOOLS DSML_START finish=error error="unterminated tool call" 0.363s\n',
        "chat ctx=0..1849:1849 gen=4200 TOOLS THINKING finish=length 90.3s\n",
        "chat ctx=0..1849:1849 gen=2 TOOLS finish=stop 9.3s\n",
        "ds4-server: thinking not closed, ignoring incomplete GLM tool calls in reasoning\nchat ctx=0..1849:1849 gen=88 TOOLS finish=stop 9.3s\n",
    ):
        assert judge(text).findings[0].mechanism == "lost-tool-turn", text


def test_a_recovered_call_is_not_lost(found):
    ids = found(
        """
        chat ctx=0..1849:1849 TOOLS repaired unterminated tool call (1 calls recovered)
        chat ctx=0..1849:1849 gen=42 TOOLS DSML_START finish=stop 3.3s
        """
    )
    assert "lost-tool-turn" not in ids


def test_continuation_state(judge):
    report = judge(
        """
        The client prints `409 Conflict: Anthropic continuation state is not available for tool_use_id toolu_ffff0000; retry by replaying the full messages history`

        ```
        0516 08:52:19 ds4-server: tool calls ctx=8610..8768:158 n=2 raw_dsml=1 ids=[toolu_aaaa,toolu_bbbb] names=[list,list]
        ```
        """
    )
    first = report.findings[0]
    assert first.mechanism == "continuation-state-lost"
    assert first.quantities["call_count"] == 2


def test_slow_but_right(judge):
    report = judge(
        """
        chat ctx=30000..41000:11000 TOOLS prompt start
        chat ctx=30000..41000:11000 TOOLS prompt done 220.0s
        chat ctx=30000..41000:11000 gen=500 TOOLS finish=tool_calls 260.0s
        chat ctx=41500..49500:8000 TOOLS prompt start
        chat ctx=41500..49500:8000 TOOLS prompt done 161.0s
        """
    )
    first = report.findings[0]
    assert first.mechanism == "slow-but-right"
    assert 8000 in first.quantities["new_tokens"]


def test_healthy_says_how_much_was_reused(judge):
    report = judge(
        """
        responses live continuation RESPPROTO match=visible-prefix ids=1 cached=146255 prompt=147611
        chat ctx=146255..147611:1356 RESPPROTO TOOLS prompt start
        chat ctx=146255..147611:1356 RESPPROTO TOOLS prompt done 12.071s
        """
    )
    assert [f.mechanism for f in report.findings] == ["healthy"]
    assert abs(report.findings[0].quantities["reuse_percent"] - 99.081) < 0.001
    assert report.totals["lost_to_cache_tokens"] == 0


def test_nothing_to_judge_says_what_there_is(judge):
    report = judge(
        """
        0611 07:40:10 ds4-server: chat ctx=58262..58312:50 gen=100 THINKING decoding chunk=11.19 t/s avg=11.21 t/s 8.921s
        0611 07:40:14 ds4-server: chat ctx=58312..58362:50 gen=150 THINKING decoding chunk=11.22 t/s avg=11.21 t/s 13.377s
        """
    )
    assert [f.mechanism for f in report.findings] == ["nothing-to-judge"]
    assert "2 decoding slices" in report.findings[0].explanation


def test_the_last_chunk_says_where_the_engine_failed(judge):
    report = judge(
        """
        0905 10:00:00 ds4-server: chat ctx=2048..40000:37952 TOOLS prompt start
        0905 10:00:40 ds4-server: chat ctx=2048..40000:37952 TOOLS prefill chunk 16384/37952 (43.2%) chunk=400.00 t/s avg=409.60 t/s 40.000s
        ds4: CUDA indexer topk launch failed: an illegal memory access was encountered
        0905 10:00:41 ds4-server: chat ctx=2048..40000:37952 TOOLS prefill SSE error failed: cuda prefill failed
        """
    )
    assert report.findings[0].quantities["position_tokens"] == 2048 + 16384


def test_prefills_in_vain_by_a_persons_own_words(judge):
    report = judge(
        """
        Prefills I counted today:

        - 09:10 prefill done 840s, client gone
        - 09:25 prefill done 838s, client gone
        - 09:40 prefill done 841s, client gone
        """
    )
    assert [f.mechanism for f in report.findings[:2]] == ["client-gave-up", "retry-storm"]
    assert report.findings[0].confidence < 0.5
    assert report.findings[0].quantities["prefill_seconds"] == 2519


def test_lines_of_one_request_that_are_only_hearsay_are_no_storm(found):
    """A name that no server has: the lines count as nothing, and one request is not three attempts."""
    ids = found(
        """
        0912 10:00:10 my-srv: chat ctx=20480..30800:10320 prompt start
        0912 10:00:40 my-srv: chat ctx=20480..30800:10320 prefill chunk 8192/10320 (79.4%)
        0912 10:00:48 my-srv: chat ctx=20480..30800:10320 prompt done 38.002s
        """
    )
    assert "retry-storm" not in ids


def test_growing_prompts_from_zero_without_their_misses_are_not_surely_right(judge):
    """Only `prompt done` was pasted: why a conversation begins at zero again is not in it."""
    report = judge(
        """
        0912 09:00:00 ds4-server: chat ctx=0..90000:90000 TOOLS prompt done 301.000s
        0912 09:10:00 ds4-server: chat ctx=0..90400:90400 TOOLS prompt done 303.000s
        """
    )
    first = report.findings[0]
    assert first.mechanism == "slow-but-right"
    assert first.confidence <= 0.5
    assert "nothing was lost" not in first.explanation


def test_a_first_prompt_that_takes_long_is_right(judge):
    report = judge("0912 09:00:00 ds4-server: chat ctx=0..90000:90000 TOOLS prompt done 301.000s\n")
    assert report.findings[0].confidence > 0.9


def test_a_server_that_the_kernel_killed(found):
    """The kernel's line names `oom_score_adj` as well, which alone is no memory failure."""
    ids = found(
        """
        Sep 12 09:04:11 box kernel: Out of memory: Killed process 911 (ds4-server) total-vm:210000000kB, anon-rss:2kB, UID:0 oom_score_adj:0
        0912 09:00:00 ds4-server: chat ctx=0..90000:90000 TOOLS prompt start
        """
    )
    assert ids[0] == "out-of-memory"
