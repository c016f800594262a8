"""4.2 and 4.3: the client sends another text, or the reply comes back with other tokens."""

from __future__ import annotations


def test_early_edit(judge):
    report = judge(
        """
        > 0722 19:41:03 ds4-server: live kv cache miss live=50310 prompt=50990 common=9987 reason=token-mismatch
        > 0722 19:41:04 ds4-server: kv cache hit text tokens=8192 text=30000 quant=2 key=token-text load=40.4 ms file=/kv/a.kv
        > 0722 19:41:04 ds4-server: chat ctx=8192..50990:42798 TOOLS prompt start
        """
    )
    first = report.findings[0]
    assert first.mechanism == "client-early-edit"
    assert first.quantities["changed_tokens"] == 41003
    assert first.quantities["cache_loss_tokens"] == 1795
    assert first.quantities["new_tokens"] == 680
    assert [f.role for f in report.findings] == ["primary", "contributing"]
    assert report.findings[1].mechanism == "shallow-disk-checkpoint"


def test_early_edit_without_disk(found):
    ids = found(
        """
        live kv cache miss live=80120 prompt=80900 common=1502 reason=token-mismatch
        chat ctx=0..80900:80900 TOOLS prompt start
        chat ctx=0..80900:80900 TOOLS prompt done 411.3s
        """
    )
    assert ids == ["client-early-edit"]


def test_pinned_common_is_a_transient_tail(judge):
    report = judge(
        "\n".join(
            f"[ds4] 0907 10:{m}:20 ds4-server: live kv cache miss live={p + 380} prompt={p} common={22400 + m % 2} reason=token-mismatch"
            for m, p in ((41, 40000), (45, 46000), (49, 51000), (53, 58800))
        )
    )
    first = report.findings[0]
    assert first.mechanism == "client-transient-tail"
    assert first.quantities["turns"] == 4


def test_same_distance_below_the_last_prompt(judge):
    report = judge(
        """
        0907 10:41:00 ds4-server: chat ctx=0..20000:20000 gen=300 TOOLS finish=stop 60.0s
        0907 10:42:00 ds4-server: live kv cache miss live=20300 prompt=21150 common=19820 reason=token-mismatch
        0907 10:42:00 ds4-server: chat ctx=0..21150:21150 TOOLS prompt start
        0907 10:42:50 ds4-server: chat ctx=0..21150:21150 TOOLS prompt done 50.0s
        0907 10:43:00 ds4-server: chat ctx=0..21150:21150 gen=250 TOOLS finish=stop 62.0s
        0907 10:44:00 ds4-server: live kv cache miss live=21400 prompt=22600 common=20968 reason=token-mismatch
        0907 10:44:00 ds4-server: chat ctx=0..22600:22600 TOOLS prompt start
        """
    )
    first = report.findings[0]
    assert first.mechanism == "client-transient-tail"
    assert first.quantities["distance_tokens"] in (180, 182)


def test_compaction(judge):
    report = judge(
        """
        0621 16:22:51 ds4-server: live kv cache miss live=151200 prompt=48020 common=18004 reason=token-mismatch
        0621 16:22:52 ds4-server: kv cache stored tokens=151200 trimmed=0 reason=evict key=token-text size=2010.00 MiB save=900.0 ms
        0621 16:22:53 ds4-server: kv cache hit text tokens=17408 text=70000 quant=2 key=token-text load=60.0 ms file=/kv/a.kv
        0621 16:22:53 ds4-server: chat ctx=17408..48020:30612 TOOLS prompt start
        0621 16:25:00 ds4-server: chat ctx=17408..48020:30612 TOOLS prompt done 127.0s
        """
    )
    first = report.findings[0]
    assert first.mechanism == "client-history-rewrite"
    assert first.quantities["changed_tokens"] == 30016
    assert first.quantities["cache_loss_tokens"] == 596
    assert "no cache" in first.explanation


def test_a_boundary_that_creeps(found):
    ids = found(
        """
        live kv cache miss live=120400 prompt=119000 common=70100 reason=token-mismatch
        live kv cache miss live=121300 prompt=120100 common=70390 reason=token-mismatch
        live kv cache miss live=122050 prompt=121000 common=70810 reason=token-mismatch
        """
    )
    assert ids[0] == "client-history-rewrite"


def test_reasoning_left_out(judge):
    report = judge(
        """
        0602 18:04:00 ds4-server: chat ctx=30100..31000:900 gen=700 finish=stop 40.0s
        0602 18:05:00 ds4-server: live kv cache miss live=31700 prompt=31420 common=31001 reason=token-mismatch
        0602 18:05:00 ds4-server: kv cache hit text tokens=20480 text=80000 quant=2 key=token-text load=60.0 ms file=/kv/a.kv
        0602 18:05:00 ds4-server: chat ctx=20480..31420:10940 prompt start
        0602 18:05:50 ds4-server: chat ctx=20480..31420:10940 prompt done 50.0s
        """
    )
    first = report.findings[0]
    assert (first.mechanism, first.grade) == ("reasoning-retokenised", "turns")
    assert first.quantities["sampled_not_replayed_tokens"] == 699
    assert first.quantities["reprefill_tokens"] == 10940


def test_reply_unknown_leaves_it_possible(judge):
    report = judge("live kv cache miss live=44100 prompt=43900 common=43310 reason=token-mismatch\n")
    first = report.findings[0]
    assert (first.mechanism, first.grade) == ("reasoning-retokenised", "possible")
    assert first.confidence <= 0.6
    assert any("several turns" in text for text in report.not_knowable)


def test_tool_rounds(judge):
    report = judge(
        """
        tool calls ctx=4096..9000:4904 n=1 raw_tool_text=1 ids=[call_1] names=[bash]
        chat ctx=4096..9000:4904 gen=120 TOOLS DSML_START DSML_END finish=tool_calls 20.0s
        live kv cache miss live=9120 prompt=9900 common=9000 reason=token-mismatch
        kv cache hit text tokens=4096 text=16000 quant=2 key=token-text load=9.0 ms file=/kv/a.kv
        chat ctx=4096..9900:5804 TOOLS prompt start
        chat ctx=4096..9900:5804 TOOLS prompt done 24.0s
        """
    )
    first = report.findings[0]
    assert first.mechanism == "tool-bytes-retokenised"
    assert first.quantities["avoidable_tokens"] == 5804 - 780
    assert first.quantities["restart_tokens"] == 4096


def test_a_bound_tool_turn_is_healthy(found):
    ids = found(
        """
        chat ctx=4096..9000:4904 gen=120 TOOLS DSML_START DSML_END finish=tool_calls 20.0s
        anthropic live continuation match=tool-output-ids ids=1 cached=9120 prompt=9900
        chat ctx=9120..9900:780 TOOLS prompt start
        chat ctx=9120..9900:780 TOOLS prompt done 3.1s
        """
    )
    assert ids == ["healthy"]


def test_forced_think_close(judge):
    report = judge(
        """
        0710 15:20:07 ds4-server: chat ctx=50010..50300:290 TOOLS recovered a complete tool call from unclosed reasoning after 44 generated tokens
        0710 15:20:09 ds4-server: chat ctx=50010..50300:290 gen=100 TOOLS DSML_START DSML_END finish=tool_calls 9.0s
        0710 15:20:10 ds4-server: live kv cache miss live=50400 prompt=51100 common=50302 reason=token-mismatch
        0710 15:20:11 ds4-server: chat ctx=0..51100:51100 TOOLS prompt start
        """
    )
    first = report.findings[0]
    assert first.mechanism == "forced-think-close"
    assert first.quantities["sampled_not_replayed_tokens"] == 98


def test_repair_that_continues_live_is_no_alarm(found):
    ids = found(
        """
        0710 15:20:07 ds4-server: chat ctx=50010..50300:290 TOOLS recovered a complete tool call from unclosed reasoning after 44 generated tokens
        0710 15:20:09 ds4-server: chat ctx=50010..50300:290 gen=100 TOOLS DSML_START DSML_END finish=tool_calls 9.0s
        0710 15:20:10 ds4-server: chat ctx=50400..51100:700 TOOLS prompt start
        0710 15:20:13 ds4-server: chat ctx=50400..51100:700 TOOLS prompt done 3.0s
        """
    )
    assert ids == ["healthy"]


def test_canonical_rebuild(judge):
    report = judge(
        """
        0516 09:00:00 ds4-server: tool calls ctx=0..20000:20000 n=1 raw_dsml=0 ids=[call_9] names=[edit]
        0516 09:00:00 ds4-server: tool checkpoint canonicalization needs 9876 tokens rebuild ctx=0..20000:20000 request_ctx=0..20000:20000 reason=canonical-tail-rewrite tail=40 discard=131 common=19990 live=20121 target=20116 cached=10240 source=disk file=/kv/a.kv
        0516 09:00:42 ds4-server: tool checkpoint rebuild done ctx=10240..20116:9876 request_ctx=0..20000:20000 source=disk cached=10240 replay=9876 target=20116 42.117s
        0516 09:00:42 ds4-server: chat ctx=0..20000:20000 gen=121 TOOLS DSML_START DSML_END finish=tool_calls 142.1s
        """
    )
    first = report.findings[0]
    assert first.mechanism == "canonicalisation-rebuild"
    assert first.quantities["rebuild_tokens"] == 9876
    assert first.quantities["discarded_tokens"] == 131
    assert first.quantities["rewritten_tokens"] == 126
    assert first.quantities["rebuild_seconds"] == 42.117


def test_extended_in_place_is_cheap(found):
    ids = found(
        """
        tool checkpoint canonicalized ctx=0..2000:2000 common=2100 live=2100 canonical=2104
        chat ctx=0..2000:2000 gen=100 TOOLS DSML_START DSML_END finish=tool_calls 12.0s
        """
    )
    assert "canonicalisation-rebuild" not in ids
