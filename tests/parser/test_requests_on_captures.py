"""Requests of the real server's logs against the truth beside them: the figures that must hold."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from parser.reading import read

CAPTURES = Path(__file__).parents[2] / "fixtures" / "captures"
FOLDERS = sorted(path.parent for path in CAPTURES.rglob("server.log"))
IDS = [str(folder.relative_to(CAPTURES)) for folder in FOLDERS]
TRACED = [folder for folder in FOLDERS if list(folder.glob("trace*.txt"))]
#: two slots and rewritten histories: which of two edited copies a request extends is not in the log
HARD_TO_NAME = {"matrix/W4/R-2-disk", "h-sigterm-busy"}


def truth(folder: Path) -> list[dict]:
    """Rows that the server reported, under one set of names."""
    rows = [json.loads(line) for line in (folder / "truth.jsonl").read_text().splitlines()]
    for row in rows:
        row.setdefault("prompt_reported", row.get("prompt_effective"))
        row.setdefault("cached_reported", row.get("cached"))
    return [row for row in rows if row["prompt_reported"] is not None and row["slot"] is not None]


def traces(folder: Path) -> list[str]:
    return sorted(map(str, folder.glob("trace*.txt")), key=lambda name: (len(name), name))


@cache
def requests(folder: Path, traced: bool = False):
    return read([str(folder / "server.log")], traces=traces(folder) if traced else ()).requests


def pairs(folder: Path, traced: bool = False):
    """(truth, request) with equal P, C and generated tokens, in order."""
    left = list(requests(folder, traced))
    for row in truth(folder):
        key = (row["prompt_reported"], row["cached_reported"], row["generated"])
        same = [r for r in left if (r.prompt_tokens, r.cached_tokens, r.generated_tokens) == key]
        assert same, f"no request with P, C, generated = {key}"
        left.remove(same[0])
        yield row, same[0]


@pytest.mark.parametrize("folder", FOLDERS, ids=IDS)
def test_every_prompt_start_is_one_request(folder):
    starts = (folder / "server.log").read_bytes().count(b"prompt start")
    rows = requests(folder)
    assert len(rows) == starts
    assert [row.request for row in rows] == list(range(1, starts + 1))
    assert all(row.prompt_line == row.lines[0] or row.line < row.prompt_line for row in rows)


@pytest.mark.parametrize("folder", FOLDERS, ids=IDS)
def test_prompt_cached_and_generated_tokens_are_the_servers(folder):
    assert len(list(pairs(folder))) == len(truth(folder))


@pytest.mark.parametrize("folder", FOLDERS, ids=IDS)
def test_slots_are_those_that_served(folder):
    both = list(pairs(folder))
    for process in {row["pid"] for row, _ in both}:
        mine = [(row["slot"], r) for row, r in both if row["pid"] == process]
        sure = Counter((slot, r.slot) for slot, r in mine if r.slot_confidence != "ambiguous")
        assert sum(sure.values()) >= 0.9 * len(mine)
        assert best_renaming(sure) == sum(sure.values())


def best_renaming(counts: Counter) -> int:
    labels, slots = sorted({b for _, b in counts}), sorted({a for a, _ in counts})
    slots += [None] * (len(labels) - len(slots))
    return max(
        sum(counts[slot, label] for slot, label in zip(order, labels, strict=True))
        for order in itertools.permutations(slots, len(labels))
    )


@pytest.mark.parametrize("folder", FOLDERS, ids=IDS)
def test_live_length_before_is_the_sessions(folder):
    for row, request in pairs(folder):
        if request.request > 1:  # the truth of the first row of the May build counts a store's split
            assert (request.live_before or 0) == row["live_before"]


@pytest.mark.parametrize("folder", FOLDERS, ids=IDS)
def test_source_as_far_as_the_log_tells(folder):
    for row, request in pairs(folder):
        if row.get("loaded") and row["loaded"] == row["cached_reported"]:
            assert request.source == "disk-text"
        elif row["cached_reported"] == 0:
            assert request.source == "cold"
        else:
            assert request.source not in ("cold", "disk-text", None)


@pytest.mark.parametrize("folder", TRACED, ids=[folder.name for folder in TRACED])
def test_source_is_the_traces_for_every_request(folder):
    text = b"".join(Path(name).read_bytes() for name in traces(folder))
    named = Counter(
        line.split(b": ")[1].decode().replace("none", "cold")
        for line in text.splitlines()
        if line.startswith(b"cache_source: ")
    )
    assert Counter(request.source for request in requests(folder, traced=True)) == named
    assert all(request.trace_id is not None for request in requests(folder, traced=True))


@pytest.mark.parametrize("folder", FOLDERS, ids=IDS)
def test_conversations_are_the_clients(folder):
    both = list(pairs(folder))
    agree = [
        (a["conv"] == b["conv"]) == (x.conversation == y.conversation)
        for (a, x), (b, y) in itertools.combinations(both, 2)
    ]
    if str(folder.relative_to(CAPTURES)) in HARD_TO_NAME:
        assert sum(agree) >= 0.6 * len(agree)
    else:
        assert all(agree)


@pytest.mark.parametrize("folder", FOLDERS, ids=IDS)
def test_the_prefill_splits_into_lost_and_changed(folder):
    for request in requests(folder):
        if request.prefilled_tokens is not None:
            assert request.lost_to_cache_tokens + request.changed_text_tokens == request.prefilled_tokens


def test_a_steal_without_a_disk_loses_what_a_disk_gives_back():
    nodisk, disk = (requests(CAPTURES / f"a-steal-sequential-11k{end}") for end in ("-nodisk", ""))
    assert sum(r.lost_to_cache_tokens for r in disk) < 100
    assert sum(r.changed_text_tokens for r in nodisk) == sum(r.changed_text_tokens for r in disk)


def test_usage_records_of_the_client_find_their_requests():
    folder = CAPTURES / "i-tools-2026-05"
    reading = read([str(folder / "server.log")], clients=[str(folder / "client.jsonl")])
    assert len(reading.clients) == len(truth(folder))
    assert {record["api"] for record in reading.clients.values()} == {"chat", "messages", "responses"}


@pytest.mark.parametrize("folder", FOLDERS, ids=IDS)
def test_starts_lie_where_the_client_waited(folder):
    """t0 (after queue and load) lies between the client's send and the end of its answer."""
    rows = [row for row in pairs(folder) if row[0].get("t_client_start") or row[0].get("t_start")]
    zero = None
    for row, request in rows:
        sent = row.get("t_client_start") or row["t_start"]
        ended = row.get("t_client_end") or row["t_end"]
        low, high = request.start_s - request.start_error_s, request.start_s + request.start_error_s
        span = (sent - high, ended - low)  # where the first stamp's second can begin
        zero = span if zero is None else (max(zero[0], span[0]), min(zero[1], span[1]))
    assert zero is None or zero[0] <= zero[1]
