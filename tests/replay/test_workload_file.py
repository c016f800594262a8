"""Workload files: what is written is read, and what is wrong is said with its place and its remedy."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from worlds import workloads

from parser.errors import InputError
from replay.rope import Piece
from replay.workload import Asked, Image, KnownFile, Segment, Stop, Workload
from replay.workload_file import dumps, load, loads, save


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(workloads())
def test_round_trip(workload):
    again = loads(dumps(workload))
    assert again == workload
    assert dumps(again) == dumps(workload)


def small():
    segments = {"head": Segment("head", 100), "u1": Segment("u1", 50, bytes=200), "r1": Segment("r1", 20)}
    head, user, reply = Piece("head", 0, 100), Piece("u1", 0, 50), Piece("r1", 0, 20)
    requests = (
        Asked(1, (head, user), reply=(reply,), generated=20, images=(Image(110, 4, "f00"),)),
        Asked(2, (head, user, reply), after=1, think_s=2.5),
        Asked(3, (head, Piece("u1", 0, 20)), arrival_s=9.0),
    )
    files = (KnownFile("old", 100, 5000, key=(head,)),)
    return Workload(
        segments, requests, stops=(Stop(),), files=files, family="glm", notes=("starts in the middle",)
    )


def test_a_prompt_is_written_as_what_is_new_in_it():
    document = json.loads(dumps(small()))
    assert document["ropes"] == {"1": ["head", "u1"], "2": ["&1", "r1"], "3": [["&1", 100], ["u1", 0, 20]]}
    assert document["requests"][1] == {"request": 2, "after": 1, "think_s": 2.5, "prompt": ["&2"]}


def test_one_request_a_line_so_that_files_can_be_cut_and_compared(tmp_path):
    save(small(), tmp_path / "w.json")
    assert load(tmp_path / "w.json") == small()
    lines = (tmp_path / "w.json").read_text().splitlines()
    assert sum(line.startswith(' {"request"') for line in lines) == 3


def changed(**parts):
    document = json.loads(dumps(small()))
    document.update(parts)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "w.json:1: "),
        ("[]", "workload: must be an object"),
        ('{"schema": 7}', "schema: is 7, not 1"),
        (changed(segments={"head": {"tokens": 1.5}}), "segment head, tokens: must be a whole number"),
        (changed(segments={"head": {"tokens": True}}), "must not be true or false"),
        (changed(segments={"head": {}}), "segment head: lacks tokens"),
        (changed(segments={"a b": {"tokens": 1}}), "a name must be"),
        (changed(segments={"head": {"tokens": 1}}), "rope 1: segment 'u1' is not in `segments`"),
        (changed(ropes={"1": ["&7"]}), "rope '&7' is not above it"),
        (changed(ropes={"1": [["head", 0, 101]]}), '["head", start, end] with 0 <= start < end <= 100'),
        (changed(requests=[{"request": 1, "prompt": ["&1"], "apy": "chat"}]), "request 1: unknown key 'apy'"),
        (changed(requests=[{"request": 1, "prompt": ["&1"], "api": "soap"}]), "api 'soap' is not known"),
        (changed(requests=[{"request": 4, "prompt": ["&1"], "after": 9}]), "request 4: waits for request 9"),
        (changed(requests=[{"request": 1, "prompt": ["&1"]}] * 2), "its number is not a new number"),
        (
            changed(requests=[{"request": 1, "prompt": ["&1"], "anchor": 151}]),
            "`anchor` is beyond its prompt",
        ),
        (
            changed(requests=[{"request": 1, "prompt": ["&1"], "generated": 3}]),
            "generates more tokens than its reply",
        ),
        (changed(requests=[{"request": 1, "prompt": []}]), "has an empty prompt"),
        (changed(stops=[{"before": 12}]), "stop: names request 12, which is not there"),
        (
            changed(files=[{"id": "x", "tokens": 7, "size_bytes": 9, "key": ["head"]}]),
            "its ropes do not hold 7 tokens",
        ),
    ],
)
def test_what_is_wrong_is_said_with_place_and_remedy(text, says):
    with pytest.raises(InputError) as caught:
        loads(text, path="w.json")
    assert says in str(caught.value)
    assert str(caught.value).startswith("w.json")


def test_twins_must_be_equal_in_bytes():
    twins = {"a": {"tokens": 4, "bytes": 9, "text": "t"}, "b": {"tokens": 5, "bytes": 8, "text": "t"}}
    with pytest.raises(InputError, match="twin of a"):
        loads(json.dumps({"schema": 1, "segments": twins}))


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"gone\.json"):
        load(tmp_path / "gone.json")


def test_the_documented_example_is_a_workload():
    page = (Path(__file__).parents[2] / "docs/workload.md").read_text()
    workload = loads(re.search(r"```json\n(.*?)```", page, re.DOTALL).group(1))
    assert [asked.prompt_tokens for asked in workload.requests] == [67513, 75318]
