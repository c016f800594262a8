"""4.6 Disk budget: what was deleted, skipped, failed, damaged."""

from __future__ import annotations


def test_store_then_evict(judge):
    report = judge(
        """
        kv cache stored tokens=30100 trimmed=0 reason=evict key=token-text size=410.10 MiB save=90.0 ms
        chat ctx=0..9000:9000 prompt start
        kv cache evicted reason=disk-cache-full tokens=30100 hits=0 size=410.10 MiB file=/kv/a.kv
        kv cache stored tokens=9200 trimmed=0 reason=evict key=token-text size=140.00 MiB save=30.0 ms
        """
    )
    first = report.findings[0]
    assert first.mechanism == "store-then-evict"
    assert first.quantities["stored_mib"] == 410.1
    assert first.quantities["save_ms"] == 90.0


def test_an_old_file_is_housekeeping(found):
    ids = found(
        """
        0901 08:00:00 ds4-server: kv cache stored tokens=30100 trimmed=0 reason=evict key=token-text size=410.10 MiB save=90.0 ms
        0901 08:01:00 ds4-server: chat ctx=0..9000:9000 prompt start
        0901 08:10:00 ds4-server: chat ctx=0..9100:9100 prompt start
        0901 08:20:00 ds4-server: chat ctx=0..9300:9300 prompt start
        0901 09:00:00 ds4-server: kv cache evicted reason=disk-cache-full tokens=30100 hits=0 size=410.10 MiB file=/kv/a.kv
        """
    )
    assert "store-then-evict" not in ids
    assert "budget-eviction" in ids


def test_ladder(judge):
    lines = [
        f"09:0{n}:00 kv cache stored tokens={n * 20480} trimmed=0 reason=continued key=token-text size={23 + n * 269}.00 MiB save=40.0 ms"
        for n in range(1, 6)
    ] + [
        f"09:08:00 kv cache evicted reason=disk-cache-full tokens={n * 20480} hits=0 size={23 + n * 269}.00 MiB file=/kv/{n}.kv"
        for n in range(1, 4)
    ]
    report = judge("\n".join(lines))
    first = report.findings[0]
    assert first.mechanism == "nested-continued-ladder"
    assert first.quantities["step_tokens"] == 20480
    assert first.quantities["evictions"] == 3


def test_equal_lengths_are_no_ladder(found):
    line = "kv cache stored tokens=20480 trimmed=0 reason=continued key=token-text size=291.78 MiB save=47.9 ms\n"
    gone = "kv cache evicted reason=disk-cache-full tokens=20480 hits=0 size=291.78 MiB file=/kv/a.kv\n"
    ids = found((line + gone) * 3)
    assert ids[0] == "store-then-evict"
    assert "nested-continued-ladder" not in ids


def test_hot_prefix(judge):
    report = judge(
        """
        kv cache evicted reason=disk-cache-full tokens=1203 hits=14 size=38.40 MiB file=/kv/a.kv
        kv cache evicted reason=disk-cache-full tokens=2048 hits=3 size=49.70 MiB file=/kv/b.kv
        kv cache stored tokens=90112 trimmed=0 reason=evict key=token-text size=1207.00 MiB save=500.0 ms
        """
    )
    first = report.findings[0]
    assert first.mechanism == "small-hot-prefix-evicted"
    assert first.quantities["lost_hits"] == 17
    assert first.quantities["evicted_mib"] == 88.1


def test_incoming_prefix(judge):
    report = judge(
        """
        0804 15:20:13 ds4-server: live kv cache miss live=90610 prompt=75219 common=61502 reason=token-mismatch
        0804 15:20:13 ds4-server: kv cache evicted reason=disk-cache-full tokens=61440 hits=0 size=829.63 MiB file=/kv/a.kv
        0804 15:20:13 ds4-server: kv cache stored tokens=90610 trimmed=0 reason=evict key=token-text size=1214.00 MiB save=231.6 ms
        0804 15:20:13 ds4-server: kv cache hit text tokens=20480 text=80000 quant=2 key=token-text load=50.0 ms file=/kv/b.kv
        0804 15:20:13 ds4-server: chat ctx=20480..75219:54739 TOOLS prompt start
        0804 15:24:54 ds4-server: chat ctx=20480..75219:54739 TOOLS prompt done 273.7s
        """
    )
    found = {f.mechanism: f for f in report.findings}
    lost = found["incoming-prefix-evicted"]
    assert lost.quantities["evicted_needed_tokens"] == 61440
    assert lost.quantities["share_tokens"] == 40960
    assert "shallow-disk-checkpoint" not in found
    assert "store-then-evict" not in found


def test_another_branch_is_not_the_incoming_prefix(found):
    ids = found(
        """
        live kv cache miss live=90610 prompt=75219 common=41502 reason=token-mismatch
        kv cache evicted reason=disk-cache-full tokens=61440 hits=0 size=829.63 MiB file=/kv/a.kv
        kv cache stored tokens=90610 trimmed=0 reason=evict key=token-text size=1214.00 MiB save=231.6 ms
        chat ctx=0..75219:75219 TOOLS prompt start
        """
    )
    assert "incoming-prefix-evicted" not in ids
    assert "budget-eviction" in ids


def test_one_eviction_is_housekeeping(judge):
    report = judge(
        "kv cache evicted reason=disk-cache-full tokens=61440 hits=0 size=829.61 MiB file=/kv/a.kv\n"
    )
    assert [f.mechanism for f in report.findings] == ["budget-eviction"]
    assert report.findings[0].quantities["severity"] == "none"


def test_skipped(judge):
    report = judge(
        "ds4-server: kv cache skipped tokens=88010 reason=evict because estimated file size 1180.00 MiB (1191.80 MiB with safety) exceeds budget 1024.00 MiB\n"
    )
    first = report.findings[0]
    assert first.mechanism == "store-skipped"
    assert first.quantities["skipped_tokens"] == 88010
    assert "budget" in first.explanation


def test_skipped_and_then_stored_is_no_alarm(found):
    ids = found(
        """
        kv cache skipped tokens=8010 reason=evict because live checkpoint is at 8011
        kv cache stored tokens=8010 trimmed=0 reason=evict key=token-text size=130.00 MiB save=20.0 ms
        """
    )
    assert "store-skipped" not in ids


def test_store_failed(judge):
    report = judge(
        """
        0901 10:00:00 ds4-server: kv cache store failed (continued): No space left on device save=12.1 ms
        0901 10:00:30 ds4-server: kv cache failed to create /kv/x.kv.tmp.41: No space left on device save=0.1 ms
        """
    )
    assert report.findings[0].mechanism == "store-failed"
    assert report.findings[0].quantities["failures"] == 2


def test_load_failed(found):
    assert (
        found("kv cache load failed /kv/a b.kv: cached text hash mismatch load=1.2 ms\n")[0] == "store-failed"
    )


def test_replaced_incompatible_file_is_no_failure(found):
    ids = found(
        """
        kv cache replaced incompatible file /kv/a.kv
        kv cache stored tokens=10240 trimmed=0 reason=continued key=token-text size=157.35 MiB save=21.9 ms
        """
    )
    assert "store-failed" not in ids


def test_unusable(judge):
    report = judge("0920 08:31:40 ds4-server: failed to create KV cache directory /kv: Permission denied\n")
    assert report.findings[0].mechanism == "disk-cache-unusable"


def test_poisoned(judge):
    report = judge(
        """
        0527 13:40:55 ds4-server: kv cache hit text tokens=30720 text=120000 quant=2 key=token-text load=99.0 ms file=/kv/bad.kv
        0527 13:40:55 ds4-server: chat ctx=30720..31900:1180 TOOLS prompt start
        0527 13:40:56 ds4-server: kv cache discarded reason=prefill-failed file=/kv/bad.kv
        0527 13:41:01 ds4-server: kv cache hit text tokens=30720 text=120000 quant=2 key=token-text load=98.0 ms file=/kv/bad.kv
        0527 13:41:01 ds4-server: chat ctx=30720..31900:1180 TOOLS prompt start
        0527 13:41:02 ds4-server: kv cache discarded reason=prefill-failed file=/kv/bad.kv
        """
    )
    first = report.findings[0]
    assert first.mechanism == "poisoned-checkpoint"
    assert first.quantities["restart_tokens"] == 30720
    assert first.quantities["attempts"] == 2


def test_finished_prefills_are_not_poisoned(found):
    ids = found(
        """
        chat ctx=30720..31900:1180 TOOLS prompt start
        chat ctx=30720..31900:1180 TOOLS prompt done 5.0s
        chat ctx=30720..31950:1230 TOOLS prompt start
        chat ctx=30720..31950:1230 TOOLS prompt done 5.2s
        """
    )
    assert "poisoned-checkpoint" not in ids


FOREIGN = """
ds4: Metal model views created in 6.1 ms, residency requested in 911.4 ms, warmup 2.4 ms (mapped {a} MiB from offset 5.12 MiB)
0816 10:02:11 ds4-server: KV disk cache /srv/kv (budget=16384 MiB, cross-quant=reject, min=512, cold_max=30000, continued=10000, trim=32, align=2048, hit_half_life=21600s)
0816 10:02:11 ds4-server: listening on http://127.0.0.1:8000
0816 10:44:37 ds4-server: kv cache stored tokens=20480 trimmed=0 reason=continued key=token-text size=291.78 MiB save=140.2 ms
0816 11:20:03 ds4-server: shutdown requested, draining requests
ds4: Metal model views created in 5.9 ms, residency requested in 902.0 ms, warmup 2.3 ms (mapped {b} MiB from offset 5.12 MiB)
0816 11:21:40 ds4-server: KV disk cache /srv/kv (budget=16384 MiB, cross-quant=reject, min=512, cold_max=30000, continued=10000, trim=32, align=2048, hit_half_life=21600s)
0816 11:21:40 ds4-server: listening on http://127.0.0.1:8000
0816 11:22:58 ds4-server: kv cache hit text tokens=20480 text=80000 quant=2 key=token-text load=50.0 ms file=/srv/kv/a.kv
0816 11:22:58 ds4-server: chat ctx=20480..21000:520 prompt start
"""


def test_checkpoint_of_another_model(judge):
    report = judge(FOREIGN.format(a="83104.55", b="83098.21"))
    assert report.findings[0].mechanism == "foreign-checkpoint"
    assert report.findings[0].quantities["hit_tokens"] == 20480


def test_the_same_model_after_a_restart_is_no_alarm(found):
    ids = found(FOREIGN.format(a="83104.55", b="83104.55"))
    assert "foreign-checkpoint" not in ids
    assert ids[0] == "healthy"


def test_write_amplification(judge):
    lines = [
        f"10:0{n}:00 kv cache stored tokens={20000 + n} trimmed=0 reason=evict key=token-text size=280.00 MiB save=50.0 ms"
        for n in range(6)
    ]
    report = judge("\n".join(lines))
    first = report.findings[0]
    assert first.mechanism == "write-amplification"
    assert first.quantities["write_ratio"] == 6.0
    assert first.quantities["stored_mib"] == 1680.0


def test_one_store_is_no_amplification(found):
    assert "write-amplification" not in found(
        "kv cache stored tokens=20000 trimmed=0 reason=evict key=token-text size=280.00 MiB save=50.0 ms\n"
    )
