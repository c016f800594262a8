"""From a log to what its clients asked: held against the clients' own record (`truth.jsonl`, `workloads/*.json`)."""

import json
from itertools import combinations, pairwise

import pytest
from captured import CAPTURES, NAMES, reading, study
from matrix import rows

from parser.errors import InputError
from parser.reading import read
from replay.extract import extract
from replay.rope import common, join, length
from replay.workload_file import dumps, loads

SINGLE = [name for name in NAMES if name.startswith("matrix/")]


def workload(name):
    return study(name).workload


@pytest.mark.parametrize("name", SINGLE)
def test_prompts_and_replies_have_the_clients_lengths(name):
    truth = rows(CAPTURES / name / "truth.jsonl")

    asked = [(a.prompt_tokens, a.generated) for a in workload(name).requests]
    assert asked == [(row["prompt_canonical"], row["generated"]) for row in truth]


@pytest.mark.parametrize("name", SINGLE)
def test_a_prompt_shares_with_the_state_it_met_what_the_server_counted(name):
    """`truth.jsonl` holds `common` for every request that found a live state, hit or miss."""
    requests, last = workload(name).requests, {}
    for asked, row in zip(requests, rows(CAPTURES / name / "truth.jsonl"), strict=True):
        met = last.get(row["slot"])
        if met is not None and row["common"] is not None and row["live_before"] == length(met):
            assert common(asked.prompt, met) == row["common"], row["id"]
        last[row["slot"]] = join(asked.prompt, asked.reply)


def test_two_configurations_of_the_same_clients_give_the_same_relations():
    """What the logs of two servers both show does not depend on the server."""
    one, other = workload("matrix/W1/aug-2-disk"), workload("matrix/W1/aug-1-nodisk")
    for i, j in combinations(range(16), 2):
        a, b = ((w.requests[i], w.requests[j]) for w in (one, other))
        shared = [common(x.prompt, y.prompt) for x, y in (a, b)]
        assert shared[0] == shared[1], (i + 1, j + 1)


@pytest.mark.parametrize("name", ["matrix/W1/aug-1-disk", "matrix/W1/R-2-disk", "matrix/W4/aug-2-disk"])
def test_think_times_are_the_clients(name):
    """No line says when a request came: what the server did before its first line (reading, tokenising) counts in
    part as thought. Together with the latencies it is the time of the whole day, as far as stamps have its ends."""
    sent = [row for row in rows(CAPTURES / name / "client.jsonl") if "seq" in row]
    pauses = [later["t_start"] - row["t_end"] for row, later in pairwise(sent)]
    found = [asked.think_s for asked in workload(name).requests]

    assert sum(found[1:]) == pytest.approx(sum(pauses), rel=0.2)
    day = sum(found[1:]) + study(name).observed.totals.latency_s_sum
    assert day == pytest.approx(sent[-1]["t_end"] - sent[0]["t_start"], rel=0.005, abs=0.12)


@pytest.mark.parametrize("name", ["matrix/W1/aug-2-cold100k", "matrix/W4/aug-1-disk"])
def test_the_first_user_message_is_found_from_cold_checkpoints(name):
    stores = {s.tokens for r in reading(name).requests for s in r.stores if s.reason == "cold"}

    anchors = {asked.anchor for asked in workload(name).requests}
    assert len(anchors) == 1
    assert anchors <= stores


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_holds_nothing_that_the_server_decided(name):
    text = dumps(workload(name)).decode()

    for word in ("slot", "source", "cached", "store", "evict", "hit", "miss", "prefill_s", "latency"):
        assert f'"{word}' not in text
    assert loads(text.encode()) == workload(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_carries_no_text(name):
    """Neither prompts nor replies, nor file names, which are hashes of text."""
    log = (CAPTURES / name / "server.log").read_text(errors="replace")
    keys = {word for word in log.split() if word.endswith(".kv")} | {
        event.get("key") for event in reading(name).events.rows("kv_stored", "kv_hit") if event.get("key")
    }
    text = dumps(workload(name)).decode()

    assert not any(key[:16] in text for key in keys)


def test_a_log_without_any_prompt_length_is_refused(tmp_path):
    log = tmp_path / "server.log"
    log.write_text("1130 10:00:00 ds4-server: listening on 127.0.0.1:8080\n")

    with pytest.raises(InputError, match="prompt length"):
        extract(read([str(log)]))


@pytest.mark.parametrize("name", ["matrix/W1/aug-2-disk", "matrix/W4/aug-1-disk"])
def test_a_log_that_starts_in_the_middle(tmp_path, name):
    """The states that its first requests met become requests before them, which count nowhere; files that no line
    wrote lay there."""
    whole = (CAPTURES / name / "server.log").read_text().splitlines(keepends=True)
    starts = [place for place, line in enumerate(whole) if "prompt start" in line]
    log = tmp_path / "tail.log"
    log.write_text("".join(whole[starts[7] - 6 :]))

    made = study_of_log(log)
    outcome = made.run()
    assert len(outcome.requests) == len(made.reading.requests)
    assert made.fidelity(outcome).fraction == 1
    assert len(made.workload.requests) > len(outcome.requests)
    assert any("starts in the middle" in note for note in made.workload.notes)
    assert any("files from before the log" in note for note in made.workload.notes)


def study_of_log(path):
    from replay.study import study_of

    return study_of(read([str(path)]))


def test_what_is_open_is_said(tmp_path):
    """A first turn, and a second whose reuse no line shows: the default, and how much rests on it."""
    log = tmp_path / "server.log"
    log.write_text(
        "1130 10:00:00 ds4-server: chat ctx=0..1000:1000 prompt start\n"
        "1130 10:00:02 ds4-server: chat ctx=0..1000:1000 prompt done 2.000s\n"
        "1130 10:00:04 ds4-server: chat ctx=0..1000:1000 gen=50 finish=stop 4.000s\n"
        "1130 10:00:09 ds4-server: chat ctx=0..1400:1400 prompt start\n"
        "1130 10:00:11 ds4-server: chat ctx=0..1400:1400 prompt done 2.800s\n"
        "1130 10:00:13 ds4-server: chat ctx=0..1400:1400 gen=50 finish=stop 4.800s\n"
    )

    made = study_of_log(log).workload
    assert [asked.open_to for asked in made.requests][1]
    assert any("rest on that" in note or "by default" in note for note in made.notes)


def test_every_note_of_the_captures_is_a_sentence_for_people():
    notes = {note for name in NAMES for note in workload(name).notes}

    assert all(note[0].isalnum() and not note.endswith(".") and len(note) < 240 for note in notes)


def test_rows_of_truth_are_there():
    assert all(json.dumps(row) for row in rows(CAPTURES / SINGLE[0] / "truth.jsonl"))
