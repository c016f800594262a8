"""`ds4scope explain` and `ds4scope doctor` as a user runs them."""

import json
import re
from pathlib import Path

import pytest

from ds4scope.cli import main
from triage.mechanisms import BUILT_IN

CAPTURES = Path(__file__).parents[2] / "fixtures/captures"


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_mechanism_is_explained(name, capsys):
    assert main(["explain", name]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{name}: ") and "seen by" in text and "you " in text


def test_without_words_all_are_listed(capsys):
    assert main(["explain"]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= len(BUILT_IN)


def test_a_line_is_explained_field_by_field(capsys):
    line = "1130 17:52:25 ds4-server: live kv cache miss live=10960 prompt=10907 common=10708 reason=token-mismatch"
    assert main(["explain", line]) == 0
    text = capsys.readouterr().out
    assert text.startswith("live_miss") and re.search(r"common +10708 +tokens that", text)


def test_a_wrong_name_gets_a_suggestion(capsys):
    assert main(["explain", "slot-steal"]) == 2
    assert "slot-steal-shared-prefix" in capsys.readouterr().err


def advice(capsys, capture, *words):
    assert main(["doctor", str(CAPTURES / capture / "server.log"), "--format", "json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_doctor_finds_the_budget_that_is_too_small(capsys):
    found = advice(capsys, "matrix/W1/aug-2-600")["advice"]
    assert found[0]["option"] == "--kv-disk-space-mb"
    truth = json.loads((CAPTURES / "matrix/W1/aug-2-disk/summary.json").read_text())["prefilled_tokens_total"]
    small = json.loads((CAPTURES / "matrix/W1/aug-2-600/summary.json").read_text())["prefilled_tokens_total"]
    assert 0 < found[0]["tokens_saved"] <= 1.02 * (small - truth)


def test_doctor_counts_conversations_against_slots(capsys):
    found = advice(capsys, "d-3conv-2slots")["advice"]
    assert [(a["option"], a["tried"]) for a in found] == [("--batched-session", "3")]
    assert found[0]["misses_saved"] == 19


def test_what_a_replay_shows_to_be_of_no_use_is_no_advice(capsys):
    """Two conversations and one slot; but the old choice sends both to the slot that is not empty."""
    found = advice(capsys, "c-single-slot-11k")

    assert found["advice"] == []
    assert [(a["option"], a["tried"], a["misses_saved"]) for a in found["no_gain"]] == [
        ("--batched-session", "2", 0)
    ]
    assert main(["doctor", str(CAPTURES / "c-single-slot-11k/server.log")]) == 0
    assert "--batched-session: 1 -> 2 would not help" in capsys.readouterr().out


def test_a_limit_is_never_tried_below_the_prompts_that_it_cut_off(capsys):
    assert main(["doctor", str(CAPTURES.parent / "seeds/image-tail-miss.md"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert [(a["option"], a["tried"]) for a in found["no_gain"]] == [("--kv-cache-cold-max-tokens", "340551")]


def test_doctor_finds_nothing_in_a_healthy_log(capsys):
    assert advice(capsys, "b-steal-after-overlap-11k")["advice"] == []


def test_doctor_reads_headers_of_the_directory_that_is_named(capsys, tmp_path):
    assert advice(capsys, "b-steal-after-overlap-11k", "--kv-dir", str(tmp_path))["kv_dir"]["files"] == 0
    assert (
        main(
            [
                "doctor",
                str(CAPTURES / "b-steal-after-overlap-11k/server.log"),
                "--kv-dir",
                str(tmp_path / "no"),
            ]
        )
        == 3
    )
