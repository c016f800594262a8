"""Profile, slots and family from shapes of lines; nothing rests on dates."""

from __future__ import annotations

from pathlib import Path

import pytest

from parser.reading import read

FIXTURES = Path(__file__).parents[2] / "fixtures"
CAPTURES = FIXTURES / "captures"


def server(tmp_path, *messages, name="server.log"):
    path = tmp_path / name
    path.write_text("".join(f"0915 10:00:{n:02d} ds4-server: {text}\n" for n, text in enumerate(messages)))
    return read([str(path)]).server


@pytest.mark.parametrize(
    ("capture", "profile", "slots", "family"),
    [
        ("c-single-slot-11k-2026-05", "ds4-2026-05", 1, "deepseek-v4"),
        ("i-tools-2026-05", "ds4-2026-05", 1, "deepseek-v4"),
        ("c-single-slot-11k", "ds4-2026-08", 1, "deepseek-v4"),
        ("a-steal-sequential-11k", "ds4-2026-08", 2, "deepseek-v4"),
        ("e-tail-mismatch-glm", "ds4-2026-08", 1, "glm"),
        ("f-regenerate-glm-2slots", "ds4-2026-08", 2, "glm"),
        ("matrix/W1/R-3-disk", "ds4-2026-09-reuse", 3, "deepseek-v4"),
        ("matrix/W4/R-2-disk", "ds4-2026-09-reuse", 2, "deepseek-v4"),
        ("matrix/W1/aug-2-disk", "ds4-2026-08", 2, "deepseek-v4"),
    ],
)
def test_profile_slots_and_family_of_real_logs(capture, profile, slots, family):
    found = read([str(CAPTURES / capture / "server.log")]).server
    assert (found.profile, found.slots, found.family) == (profile, slots, family)
    assert found.evidence and 0 < found.profile_confidence <= 1


@pytest.mark.parametrize(
    ("line", "profiles"),
    [
        (
            "live kv cache miss live=5 prompt=9 common=3 vision=match reason=token-mismatch",
            {"ds4-2026-09-vision"},
        ),
        (
            "slot 1: request reuses nothing; evicting checkpoint (4000 tokens, idle 12 s, protected)",
            {"ds4-2026-09-reuse"},
        ),
        (
            "multimodal live kv hit images=1 cached=5 prompt=9 identity=fingerprint-match",
            {"ds4-2026-09-vision"},
        ),
        ("rewound GLM live prefix from 9 to 5; final prompt token will be reevaluated", {"ds4-2026-08"}),
        ("tool calls ctx=0..9:9 n=1 raw_dsml=1 ids=[a] names=[b]", {"ds4-2026-05"}),
        ("persisting current KV cache before shutdown tokens=900", {"ds4-2026-05"}),
        ("kv cache evicted tokens=900 hits=0 size=34.00 MiB", {"ds4-2026-05"}),
    ],
)
def test_one_line_can_name_the_build(tmp_path, line, profiles):
    assert server(tmp_path, line).profile in profiles


def test_a_consumed_hit_beside_several_slots_is_july(tmp_path):
    found = server(
        tmp_path,
        "batched mode enabled resident_sessions=4 prefill_quantum=2048 mixed_prefill_quantum=128 decode_coalesce_us=2000",
        "kv cache hit text tokens=40000 text=9 quant=2 key=token-text load=1.0 ms consumed file=/kv/a.kv",
    )
    assert (found.profile, found.slots) == ("ds4-2026-07", 4)


def test_vision_alone_proves_no_score(tmp_path):
    """The visible-key and the reuse-aware score print the same miss line."""
    line = "live kv cache miss live=5 prompt=9 common=3 vision=match reason=token-mismatch"
    assert server(tmp_path, line).profile_confidence < 0.5


def test_dates_change_nothing(tmp_path):
    text = (CAPTURES / "a-steal-sequential-1k" / "server.log").read_text()
    moved = tmp_path / "server.log"
    moved.write_text(text.replace("1130 ", "0512 "))
    there, here = read([str(CAPTURES / "a-steal-sequential-1k" / "server.log")]), read([str(moved)])
    assert (there.server.profile, there.server.profile_confidence) == (
        here.server.profile,
        here.server.profile_confidence,
    )


def test_the_scheduler_shows_in_where_requests_went():
    """Empty slots before live ones, or the longest common prefix first: no line says it."""
    new, old = (
        read([str(CAPTURES / f"matrix/W1/{name}/server.log")]).server for name in ("E-2-disk", "aug-2-disk")
    )
    assert (new.config["scheduler"], old.config["scheduler"]) == ("reuse-aware", "common-prefix")


def test_configuration_of_the_start_lines(tmp_path):
    run = read([str(CAPTURES / "g-disk-pressure-400mb" / "server.log")]).runs[0]
    assert run.started and run.stopped and run.slots == 2
    wanted = {
        "ctx": 65536,
        "prefill_chunk": 4096,
        "batched_session": 2,
        "kv_disk": True,
        "kv_disk_space_mb": 400,
        "kv_cache_cold_max_tokens": 30000,
        "kv_cache_boundary_align_tokens": 2048,
        "hit_half_life_s": 21600,
    }
    assert wanted.items() <= run.config.items()


def test_an_option_in_the_prose_is_weaker_evidence_and_named_as_such():
    found = read([str(FIXTURES / "seeds" / "slot-steal.md")]).server
    assert found.slots == 2
    assert {one.grade for one in found.evidence if one.what == "slots=2"} == {"option"}


def test_overlapping_requests_are_a_lower_bound_of_the_slots(tmp_path):
    found = server(
        tmp_path,
        "chat ctx=0..900:900 prompt start",
        "chat ctx=0..800:800 prompt start",
        "chat ctx=0..900:900 prompt done 1.000s",
        "chat ctx=0..800:800 prompt done 1.000s",
    )
    assert found.slots == 2
    assert any(one.what == "slots>=2" and one.grade == "inferred" for one in found.evidence)


def test_nothing_said_is_nothing_known(tmp_path):
    found = server(tmp_path, "chat ctx=0..900:900 prompt start")
    assert (found.profile, found.slots, found.family) == (None, None, None)
