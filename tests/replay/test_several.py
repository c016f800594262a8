"""Logs of several clients at once: who asked what after which answer, held against what they really asked."""

from dataclasses import replace
from random import Random

import pytest
from chats import MACHINE, Day

from parser.reading import read
from replay.configure import configs_of
from replay.decisions import Arrived, Begun, Dispatched
from replay.disk import Disk
from replay.emit import emit
from replay.rope import common, join
from replay.server import replay
from replay.study import study_of
from replay.tree import Forest
from replay.workload import Stop


def logged(workload, folder, costs=MACHINE, **options):
    """The study of the log that a server prints of the workload, its decisions, and the true numbers of its requests."""
    configs, log = configs_of(None, {"server": "ds4-2026-08", **options}, workload), []
    replay(workload, configs, costs, log)
    path = folder / "server.log"
    path.write_bytes(emit(workload, configs, log, "1130 10:00:00"))
    begun = sorted((row for row in log if isinstance(row, Begun)), key=lambda row: row.at_s)
    return study_of(read([str(path)])), log, [row.request for row in begun]


def shares(workload, order):
    """Of each request the most that its prompt shares with an earlier prompt and reply, and the first such."""
    asked = [workload.by_number[number] for number in order]
    strings = [join(row.prompt, row.reply) for row in asked]
    return [
        max(((common(row.prompt, strings[i]), -i) for i in range(place)), default=(0, 0))
        for place, row in enumerate(asked)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_prompts_of_several_with_side_calls(tmp_path, seed):
    """Three people with a slot each, a roomy disk, one-off tasks behind a head of their own: all prompts are placed."""
    workload = Day(Random(seed), [2, 1, 2], 14, helpers=0.25).workload()
    made, _, order = logged(workload, tmp_path, slots=3, kv_disk_space_mb=8192)

    found, true = shares(made.workload, range(1, len(order) + 1)), shares(workload, order)
    # two of the first three may begin before anything of the other is stored: then only the first words are open
    assert sum(max(a[0], b[0]) > 4 and a != b for a, b in zip(found, true, strict=True)) <= 1


def test_who_waited_for_which_answer(tmp_path):
    """Who of three idle people sent a one-off task is told by usual pauses, so not always."""
    wrong = total = 0
    for seed in range(6):
        workload = Day(Random(seed), [2, 1, 2], 14, helpers=0.25).workload()
        made, _, order = logged(workload, tmp_path, slots=3, kv_disk_space_mb=8192)
        number = {true: place for place, true in enumerate(order, 1)}
        for asked in made.workload.requests:
            true = workload.by_number[order[asked.request - 1]]
            wrong, total = wrong + (asked.after != number.get(true.after)), total + 1

    assert wrong <= 0.06 * total


@pytest.mark.parametrize("seed", range(4))
def test_two_clients_of_one_slot_queue(tmp_path, seed):
    """Some come while the other is served, some do not: pauses that stamps can be at once, among longer ones."""
    workload = Day(Random(seed), [2, 2], 15).workload()
    made, log, order = logged(workload, tmp_path, slots="single", kv_disk_space_mb=8192)
    came = {row.request: row.at_s for row in log if isinstance(row, Arrived)}
    given = {row.request: row.at_s for row in log if isinstance(row, Dispatched)}
    waited = [given[number] - came[number] > 0.01 for number in order]

    agree = [one == other for one, other in zip(waited, made.extraction.arrivals.queued, strict=True)]
    assert 0 < sum(waited) < len(waited)
    assert sum(agree) >= len(agree) - 3  # who came within a second of the other's end may have waited


def test_heads_of_one_length_are_told_by_the_names_of_their_files(tmp_path):
    """A small disk deletes and writes them again; a name is that of a text."""
    seed = next(n for n in range(100) if len({len_of(head) for head in Day(Random(n), [1], 1).heads}) == 1)
    workload = Day(Random(seed), [2, 2, 2], 14).workload()
    made, _, order = logged(workload, tmp_path, slots=3, kv_disk_space_mb=600)

    found, true = shares(made.workload, range(1, len(order) + 1)), shares(workload, order)
    assert sum(a != b for a, b in zip(found, true, strict=True)) <= 0.1 * len(order)


def len_of(rope):
    return sum(piece.end - piece.start for piece in rope)


def test_a_file_that_is_written_again_has_its_name():
    workload = Day(Random(1), [1], 2).workload()
    key = Forest(workload).node(workload.requests[0].prompt)
    disk = Disk()
    first = disk.add(key, key, 600, 1000, "evict", 8192, 0)
    disk.remove(first)

    assert disk.add(key, key, 600, 1000, "evict", 8192, 5).name == first.name


@pytest.mark.parametrize("disk", [False, True])
def test_an_orderly_stop_is_said(tmp_path, disk):
    """A server without a disk stores nothing as it stops, and says that it stops all the same."""
    workload = replace(Day(Random(2), [2], 8).workload(), stops=(Stop(before=5), Stop()))
    made, _, _ = logged(workload, tmp_path, slots=2, kv_disk=disk)

    assert made.workload.stops == workload.stops


def test_without_a_disk_nobody_waits_to_look_at_it(tmp_path):
    """R4.21 holds the lock for a store or a load: without either a request begins as it gets its slot."""
    workload = Day(Random(3), [1, 1, 1], 10).workload()
    made, _, order = logged(workload, tmp_path, slots=3, kv_disk=False)
    arrivals = made.extraction.arrivals

    for index, number in enumerate(order):
        late = arrivals.start[index] - arrivals.arrival[index]
        assert late == pytest.approx(MACHINE.admit_s(workload.by_number[number].prompt_tokens), abs=2e-3)
