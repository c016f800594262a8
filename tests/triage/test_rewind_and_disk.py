"""4.4 and 4.5: the live state cannot go back; the disk does not catch the fall."""

from __future__ import annotations


def test_exact_retry(judge):
    report = judge(
        """
        live kv cache miss live=70120 prompt=70004 common=70004 reason=token-mismatch
        kv cache hit text tokens=61440 text=200000 quant=2 key=token-text load=200.0 ms file=/kv/a.kv
        chat ctx=61440..70004:8564 prompt start
        chat ctx=61440..70004:8564 prompt done 40.5s
        """
    )
    first = report.findings[0]
    assert first.mechanism == "exact-retry-no-rewind"
    assert first.quantities["reprefill_tokens"] == 8564
    assert first.quantities["avoidable_tokens"] == 8563
    assert "retry-storm" not in {f.mechanism for f in report.findings}


def test_refused_rewind_alone(found):
    assert found("GLM live prefix rewind from 12040 to 11800 requires rebuild\n") == ["exact-retry-no-rewind"]


def test_rewound_is_healthy(found):
    ids = found(
        """
        rewound GLM live prefix from 12040 to 11800; final prompt token will be reevaluated
        chat ctx=11800..11801:1 prompt start
        chat ctx=11800..11801:1 prompt done 0.1s
        """
    )
    assert ids == ["healthy"]


def test_tail_mismatch(judge):
    report = judge(
        """
        chat ctx=60000..61000:1000 gen=5000 finish=stop 300.0s
        live kv cache miss live=66000 prompt=66400 common=64010 reason=token-mismatch
        chat ctx=0..66400:66400 prompt start
        chat ctx=0..66400:66400 prefill chunk 8192/66400 (12.3%) chunk=300.00 t/s avg=300.00 t/s 27.307s
        """
    )
    first = report.findings[0]
    assert first.mechanism == "tail-mismatch-no-rewind"
    assert first.quantities["cache_loss_tokens"] == 64010
    assert first.quantities["changed_tokens"] == 2390
    assert abs(first.quantities["projected_seconds"] - 221.333) < 0.01


def test_tail_that_the_disk_heals_is_no_alarm(found):
    ids = found(
        """
        chat ctx=60000..61000:1000 gen=5000 finish=stop 300.0s
        live kv cache miss live=66000 prompt=66400 common=64010 reason=token-mismatch
        kv cache hit text tokens=63488 text=200000 quant=2 key=token-text load=200.0 ms file=/kv/a.kv
        chat ctx=63488..66400:2912 prompt start
        """
    )
    assert ids == ["healthy"]


def test_images_are_kept_whole_or_not_at_all(judge):
    report = judge(
        """
        21:47:24 multimodal live kv hit images=3 cached=134535 prompt=134603 identity=fingerprint-match
        21:47:25 chat ctx=134535..134603:68 TOOLS prompt done 1.041s
        21:55:10 live kv cache miss live=140263 prompt=140551 common=140144 vision=match reason=token-mismatch
        21:55:10 chat ctx=0..140551:140551 TOOLS prompt start
        """
    )
    first = report.findings[0]
    assert first.mechanism == "multimodal-all-or-nothing"
    assert first.quantities["cache_loss_tokens"] == 140144
    assert first.quantities["images"] == 3
    assert first.quantities["disk_hits"] == 0


def test_vision_match_alone_proves_no_images(judge):
    report = judge(
        "live kv cache miss live=140263 prompt=140551 common=130144 vision=match reason=token-mismatch\n"
    )
    assert "multimodal-all-or-nothing" not in {f.mechanism for f in report.findings}
    assert any(r.mechanism == "multimodal-all-or-nothing" for r in report.ruled_out)


def test_invalid_state(judge):
    report = judge(
        """
        0806 12:30:40 ds4-server: chat ctx=31000..31400:400 sse headers failed
        0806 12:30:44 ds4-server: live kv cache miss live=31400 prompt=31400 common=0 reason=token-mismatch
        0806 12:30:44 ds4-server: chat ctx=0..31400:31400 TOOLS prompt start
        """
    )
    assert report.findings[0].mechanism == "invalid-checkpoint"
    assert report.findings[0].quantities["lost_live_tokens"] == 31400


def test_shallow_checkpoint_counts_its_own_share(judge):
    report = judge(
        """
        live kv cache miss live=52474 prompt=52430 common=52430 reason=token-mismatch
        kv cache hit text tokens=40960 text=160000 quant=2 key=token-text load=110.0 ms file=/kv/a.kv
        chat ctx=40960..52430:11470 prompt start
        """
    )
    shallow = next(f for f in report.findings if f.mechanism == "shallow-disk-checkpoint")
    assert shallow.quantities["share_tokens"] == 11470
    assert shallow.role == "contributing"


def test_a_good_fallback_is_not_blamed(found):
    ids = found(
        """
        live kv cache miss live=52474 prompt=52430 common=52430 reason=token-mismatch
        kv cache hit text tokens=51600 text=160000 quant=2 key=token-text load=110.0 ms file=/kv/a.kv
        chat ctx=51600..52430:830 prompt start
        """
    )
    assert "shallow-disk-checkpoint" not in ids


def test_stale_anchor_over_sessions(judge):
    report = judge(
        """
        22:05:11 live kv cache miss live=15300 prompt=14020 common=13200 reason=token-mismatch
        22:05:11 kv cache hit text tokens=9713 ... file=5ad1e07c....kv
        22:05:37 chat ctx=9713..14020:4307 TOOLS prompt done 19.1s
        22:25:52 live kv cache miss live=17957 prompt=14055 common=13202 reason=token-mismatch
        22:25:52 kv cache hit text tokens=9713 ...
        22:26:18 chat ctx=9713..14055:4342 TOOLS prompt done 19.4s
        22:45:52 live kv cache miss live=21001 prompt=14031 common=13201 reason=token-mismatch
        22:45:52 kv cache hit text tokens=9713 ...
        22:46:18 chat ctx=9713..14031:4318 TOOLS prompt done 19.2s
        """
    )
    first = report.findings[0]
    assert first.mechanism == "stale-cold-anchor"
    assert first.quantities["sessions"] == 3
    assert first.quantities["reprefill_tokens"] == 4307 + 4342 + 4318


def test_turns_of_one_conversation_are_no_fresh_sessions(found):
    ids = found(
        """
        chat ctx=9713..14020:4307 gen=100 TOOLS finish=tool_calls 19.1s
        live kv cache miss live=14120 prompt=14600 common=14020 reason=token-mismatch
        kv cache hit text tokens=9713 ... file=5ad1e07c....kv
        chat ctx=9713..14600:4887 TOOLS prompt done 19.1s
        chat ctx=9713..14600:4887 gen=90 TOOLS finish=tool_calls 29.1s
        live kv cache miss live=14690 prompt=14900 common=14600 reason=token-mismatch
        kv cache hit text tokens=9713 ...
        chat ctx=9713..14900:5187 TOOLS prompt done 19.4s
        """
    )
    assert "stale-cold-anchor" not in ids
    assert ids[0] == "tool-bytes-retokenised"


def test_cold_max_below_prompts(judge):
    report = judge(
        """
        KV disk cache /kv (budget=32768 MiB, cross-quant=accept, min=512, cold_max=30000, continued=0, trim=32, align=2048, hit_half_life=21600s)
        chat ctx=0..64120:64120 TOOLS prompt start
        chat ctx=0..64120:64120 TOOLS prompt done 322.9s
        chat ctx=0..64120:64120 gen=20 TOOLS finish=stop 330.0s
        live kv cache miss live=64140 prompt=70111 common=2 reason=token-mismatch
        chat ctx=0..70111:70111 TOOLS prompt start
        chat ctx=0..70111:70111 TOOLS prompt done 350.1s
        """
    )
    first = report.findings[0]
    assert first.mechanism == "cold-max-below-prompts"
    assert first.quantities["prompts_above_limit"] == 2
    assert first.quantities["cold_prefill_seconds"] == 673.0


def test_a_cold_store_refutes_the_limit(found):
    ids = found(
        """
        KV disk cache /kv (budget=32768 MiB, cross-quant=accept, min=512, cold_max=90000, continued=0, trim=32, align=2048, hit_half_life=21600s)
        chat ctx=0..64120:64120 TOOLS prompt start
        kv cache stored tokens=9011 trimmed=55109 reason=cold key=token-text size=141.00 MiB save=20.0 ms
        chat ctx=0..64120:64120 TOOLS prompt done 322.9s
        """
    )
    assert "cold-max-below-prompts" not in ids


def test_consumed(judge):
    report = judge(
        """
        0615 10:00:00 ds4-server: kv cache hit text tokens=51200 text=200000 quant=2 key=token-text load=190.0 ms consumed file=/kv/a.kv
        0615 10:00:00 ds4-server: chat ctx=51200..52000:800 TOOLS prompt start
        0615 10:00:05 ds4-server: chat ctx=51200..52000:800 TOOLS prompt done 5.0s
        """
    )
    assert report.findings[0].mechanism == "consumed-on-hit"
    assert report.findings[0].quantities["consumed_tokens"] == 51200


def test_alignment_loss(judge):
    report = judge(
        """
        kv cache stored tokens=8192 trimmed=1401 reason=cold key=token-text size=130.00 MiB save=30.0 ms
        kv cache hit text tokens=8192 text=30000 quant=2 key=token-text load=20.0 ms file=/kv/a.kv
        chat ctx=8192..9593:1401 prompt start
        chat ctx=8192..9593:1401 prompt done 6.5s
        kv cache hit text tokens=8192 text=30000 quant=2 key=token-text load=20.0 ms file=/kv/a.kv
        chat ctx=8192..9600:1408 prompt start
        chat ctx=8192..9600:1408 prompt done 6.6s
        """
    )
    first = report.findings[0]
    assert first.mechanism == "alignment-loss"
    assert first.quantities["warm_starts"] == 2
    assert first.quantities["alignment_loss_tokens_sum"] == 2809


def test_a_cut_before_the_user_message_is_wanted(found):
    ids = found(
        """
        kv cache stored tokens=8107 trimmed=1401 reason=cold key=token-text size=130.00 MiB save=30.0 ms
        kv cache hit text tokens=8107 text=30000 quant=2 key=token-text load=20.0 ms file=/kv/a.kv
        chat ctx=8107..9508:1401 prompt start
        chat ctx=8107..9508:1401 prompt done 6.5s
        """
    )
    assert ids == ["healthy"]


def test_hit_not_used(judge):
    report = judge(
        """
        live kv cache miss live=22000 prompt=22310 common=21950 reason=token-mismatch
        kv cache hit text tokens=20480 text=80000 quant=2 key=token-text load=77.7 ms file=/kv/a.kv
        chat ctx=0..22310:22310 TOOLS prompt start
        chat ctx=0..22310:22310 TOOLS prompt done 111.0s
        """
    )
    first = report.findings[0]
    assert first.mechanism == "hit-not-used"
    assert first.quantities["thrown_away_tokens"] == 20480
    assert first.quantities["load_ms"] == 77.7


def test_key_never_matches_after_a_restart(judge):
    report = judge(
        """
        0803 16:40:12 ds4-server: chat ctx=41000..42000:1000 gen=77 TOOLS finish=stop 9.881s
        0803 16:40:20 ds4-server: shutdown requested, draining requests
        0803 16:40:20 ds4-server: persisting resident KV cache before shutdown slot=0 tokens=42077
        0803 16:40:21 ds4-server: kv cache stored tokens=42077 trimmed=0 reason=shutdown key=token-text size=574.33 MiB save=161.0 ms
        0803 16:41:00 ds4-server: KV disk cache /kv (budget=32768 MiB, cross-quant=accept, min=512, cold_max=30000, continued=10000, trim=32, align=2048, hit_half_life=21600s)
        0803 16:41:00 ds4-server: listening on http://127.0.0.1:8000
        0803 16:41:10 ds4-server: chat ctx=0..42500:42500 TOOLS prompt start
        0803 16:44:10 ds4-server: chat ctx=0..42500:42500 TOOLS prompt done 180.0s
        """,
        "server.log",
    )
    first = report.findings[0]
    assert first.mechanism == "key-never-matches"
    assert first.quantities["stored_never_found_tokens"] == 42077
    assert "server-stopped" not in {f.mechanism for f in report.findings}


def test_another_conversation_after_the_restart_is_no_lost_key(found):
    ids = found(
        """
        0803 16:40:20 ds4-server: shutdown requested, draining requests
        0803 16:40:20 ds4-server: persisting resident KV cache before shutdown slot=0 tokens=42077
        0803 16:40:21 ds4-server: kv cache stored tokens=42077 trimmed=0 reason=shutdown key=token-text size=574.33 MiB save=161.0 ms
        0803 16:41:00 ds4-server: listening on http://127.0.0.1:8000
        0803 16:41:10 ds4-server: chat ctx=0..11500:11500 TOOLS prompt start
        0803 16:41:40 ds4-server: chat ctx=0..11500:11500 TOOLS prompt done 30.0s
        """,
        "server.log",
    )
    assert "key-never-matches" not in ids
