"""A workload replayed under the policy it was extracted from, and the log of that replay read again: the same
workload, and the same outcome."""

from dataclasses import replace
from random import Random

import pytest
from captured import NAMES, study
from chats import MACHINE, Day, days, options
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from parser.errors import InputError
from parser.reading import read
from replay.configure import configs_of
from replay.decisions import Begun
from replay.emit import emit
from replay.rope import length
from replay.server import replay
from replay.study import study_of


def printed(workload, configs, costs, folder):
    """The log of a replay, read; and the numbers of its requests in the order of their lines."""
    log = []
    outcome = replay(workload, configs, costs, log)
    path = folder / "server.log"
    path.write_bytes(emit(workload, configs, log, "1130 10:00:00"))
    # decisions stand in the order in which the model came to them, lines in that of their times
    begun = sorted((row for row in log if isinstance(row, Begun)), key=lambda row: row.at_s)
    return outcome, read([str(path)]), [row.request for row in begun]


def asked(workload, order):
    """What was asked, with segments named by first use and requests by the order of their lines."""
    rows, names = {a.request: a for a in workload.requests}, {}
    number = {request: place for place, request in enumerate(order, 1)}

    def rope(pieces):
        return tuple((names.setdefault(p.segment, len(names)), p.end - p.start) for p in pieces)

    return [
        (rope(a.prompt), rope(a.reply), a.generated, number.get(a.after), a.anchor, a.api, a.finish, a.tools)
        for a in map(rows.get, order)
    ]


def decided(outcome, order):
    rows = {row.request: row for row in outcome.requests}
    return [
        (r.slot, r.source, r.cached_tokens, r.prompt_tokens, r.common, r.live_before, r.disk_hit_tokens, r.stores)
        for r in map(rows.get, order)
    ]  # fmt: skip


def round_trip(first, configs, folder):
    """Replay, print, read again, replay again."""
    extracted = first.extraction
    outcome, reading, order = printed(extracted.workload, configs, extracted.costs, folder)
    second = study_of(reading)
    again = replay(second.workload, configs, second.costs)
    in_order = [row.request for row in second.reading.requests]
    return (asked(extracted.workload, order), decided(outcome, order)), (
        asked(second.workload, in_order),
        decided(again, in_order),
    )


@pytest.mark.parametrize("disk", [True, False])
@pytest.mark.parametrize("slots", ["single", 2])
@pytest.mark.parametrize("seed", range(4))
def test_who_thinks_and_calls_tools(tmp_path, seed, slots, disk):
    """What a log leaves open of replies is taken to be in the middle, so that it is so in the next log, too."""
    workload = Day(Random(seed), [3], 14, thinking=0.5, tools=0.5).workload()
    configs = configs_of(None, {"server": "ds4-2026-08", "slots": slots, "kv_disk": disk}, workload)
    _, reading, _ = printed(workload, configs, MACHINE, tmp_path)
    first = study_of(reading)

    before, after = round_trip(first, configs, tmp_path)
    assert before == after
    assert kept(first.workload) == kept(study_of(read([str(tmp_path / "server.log")])).workload)


def kept(workload):
    """Tokens that later prompts hold of replies, and where tool calls are."""
    return [(length(row.shown or ()), row.tool_block) for row in workload.requests]


@settings(max_examples=25)
@given(workload=days(), chosen=options())
def test_one_person(tmp_path_factory, workload, chosen):
    folder = tmp_path_factory.mktemp("log")
    configs = configs_of(None, chosen, workload)
    _, reading, _ = printed(workload, configs, MACHINE, folder)
    first = study_of(reading)
    assume(first.fidelity(first.run()).fraction == 1)  # else what its log leaves open is not as by default

    before, after = round_trip(first, configs, folder)
    assert before == after


@settings(max_examples=15)
@given(workload=days(lanes=3, turns=6), chosen=options())
def test_several_people(tmp_path_factory, workload, chosen):
    """Where the first replay serves all as its log does, so does the second."""
    folder = tmp_path_factory.mktemp("log")
    configs = configs_of(None, chosen, workload)
    _, reading, _ = printed(workload, configs, MACHINE, folder)
    first = study_of(reading)
    assume(first.fidelity(first.run()).fraction == 1)

    (_, served), (_, again) = round_trip(first, configs, folder)
    assert served == again


ONE_RUN = [name for name in NAMES if name.startswith(("matrix/", "a-", "c-", "e-"))]


@pytest.mark.parametrize("name", ONE_RUN)
def test_captures(tmp_path, name):
    made = study(name)
    before, after = round_trip(made, made.configs(), tmp_path)

    assert before == after


@given(st.data())
@settings(max_examples=10)
def test_the_printed_log_reads_back_as_the_outcome(tmp_path_factory, data):
    """What a replay decided stands in its log: slots, sources, hits, stores."""
    workload, chosen = data.draw(days(lanes=2, turns=5)), data.draw(options())
    configs = configs_of(None, chosen, workload)
    outcome, reading, order = printed(workload, configs, MACHINE, tmp_path_factory.mktemp("log"))
    rows = {row.request: row for row in outcome.requests}

    assert len(reading.requests) == len(order)
    assert not reading.events.counts.get("unknown") and not reading.events.counts.get("foreign")
    for number, request in zip(order, reading.requests, strict=True):
        served = rows[number]
        assert request.cached_tokens == served.cached_tokens
        assert request.disk_hit_tokens == served.disk_hit_tokens
        assert [s.tokens for s in request.stores] == [s.tokens for s in served.stores]
        if served.evicted_live_tokens:
            assert request.live_before == served.live_before


def test_a_time_that_no_stamp_says_is_an_error(tmp_path):
    workload = Day(Random(0), [1], 2).workload()
    late = replace(workload, requests=tuple(replace(a, think_s=1e12) for a in workload.requests))
    configs, log = configs_of(None, {"server": "ds4-2026-08"}, late), []
    replay(late, configs, MACHINE, log)

    with pytest.raises(InputError, match="there is no stamp"):
        emit(late, configs, log, "1130 10:00:00")
