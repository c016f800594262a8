"""workload, replay, compare, verify, shrink and sweep as a user runs them: output, files, exit status."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator

from ds4scope.cli import main

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
STEAL = str(FIXTURES / "captures/a-steal-sequential-1k/server.log")
W1 = str(FIXTURES / "captures/matrix/W1/aug-2-disk/server.log")
REUSE = str(FIXTURES / "captures/matrix/W1/R-2-disk/server.log")
SEED = str(FIXTURES / "seeds/slot-steal.md")
IMAGES = str(FIXTURES / "seeds/image-tail-miss.md")


@pytest.fixture
def ds4scope(capsys):
    """Runs a command: exit status, standard output, standard error."""

    def run(*words):
        try:
            status = main([str(word) for word in words])
        except SystemExit as end:
            status = end.code
        seen = capsys.readouterr()
        return status, seen.out, seen.err

    return run


def document(ds4scope, *words, status=0):
    found, out, err = ds4scope(*words, "--format", "json")
    assert found == status, err
    parsed = json.loads(out)
    schema = json.loads((ROOT / f"docs/schemas/{words[0]}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(parsed)
    return parsed


@pytest.fixture
def workload(tmp_path, ds4scope):
    path = tmp_path / "workload.json"
    assert ds4scope("workload", W1, "-o", path)[0] == 0
    return path


# -- workload and replay ---------------------------------------------------------------------------------


def test_a_workload_file_stands_alone(ds4scope, workload):
    """Replayed without the log, under what the log's server was."""
    from_log = document(ds4scope, "replay", W1)
    alone = document(
        ds4scope, "replay", workload, "--server", "ds4-2026-08", "--slots", "2", "--kv-disk-space-mb", 8192
    )

    assert "observed" not in alone and "fidelity" not in alone
    for total in ("live_misses", "evict_stores", "disk_hits", "evictions", "prefilled_tokens"):
        assert alone["outcome"]["totals"][total] == from_log["outcome"]["totals"][total]


def test_a_workload_file_fits_its_schema(workload):
    schema = json.loads((ROOT / "docs/schemas/workload.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(json.loads(workload.read_text()))


def test_a_workload_can_be_cut_by_hand(ds4scope, workload):
    rows = json.loads(workload.read_text())
    rows["requests"] = rows["requests"][:4]
    workload.write_text(json.dumps(rows))

    found = document(ds4scope, "replay", workload, "--server", "ds4-2026-08", "--slots", "2")
    assert found["outcome"]["totals"]["requests"] == 4


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "JSON"),
        ('{"schema": 7}', "schema"),
        ('{"schema": 1, "requests": [{"request": 1, "prompt": [["nothing", 0, 5]]}]}', "nothing"),
        ("[]", ""),
        ('{"schema": 1, "requests": 5}', "requests"),
    ],
)
def test_a_bad_workload_file_is_a_clear_error(ds4scope, tmp_path, text, word):
    path = tmp_path / "bad.json"
    path.write_text(text)
    status, out, err = ds4scope("replay", path)

    assert status in (2, 3)
    assert word in err and "Traceback" not in err and not out


def test_replay_says_how_far_it_is_the_log(ds4scope):
    found = document(ds4scope, "replay", STEAL)

    assert found["fidelity"]["fraction"] == 1.0
    assert found["config"]["server"] == "ds4-2026-08"
    assert found["observed"]["totals"]["live_misses"] == found["outcome"]["totals"]["live_misses"] == 15


def test_options_are_the_servers_own(ds4scope):
    found = document(
        ds4scope, "replay", STEAL, "--server", "ds4-2026-09-reuse", "--kv-cache-min-tokens", "256"
    )

    assert found["outcome"]["totals"]["live_misses"] == 0
    assert found["config"]["kv_cache_min_tokens"] == 256


def test_fidelity_below_the_least_is_status_4(ds4scope):
    assert ds4scope("replay", STEAL, "--min-fidelity", "1")[0] == 0
    status, _, err = ds4scope("replay", STEAL, "--server", "ds4-2026-09-reuse", "--min-fidelity", "1")
    assert status == 4 and "fidelity" in err


def test_an_expectation_that_does_not_hold_is_status_1(ds4scope):
    assert ds4scope("replay", STEAL, "--expect", "live_misses<=15")[0] == 0
    status, _, err = ds4scope("replay", STEAL, "--expect", "live_misses<=2")
    assert status == 1 and "live_misses" in err


@pytest.mark.parametrize(
    "words",
    [("--expect", "live_misses"), ("--slots", "0"), ("--prefill-tps", "-1"), ("--min-fidelity", "2"), ("--server", "ds4")],
)  # fmt: skip
def test_wrong_options_are_status_2(ds4scope, words):
    status, out, err = ds4scope("replay", STEAL, *words)
    assert status == 2 and err and not out


def test_no_such_file_is_status_3(ds4scope, tmp_path):
    status, _, err = ds4scope("replay", tmp_path / "none.log")
    assert status == 3 and "none.log" in err


def test_a_file_without_requests(ds4scope, tmp_path):
    path = tmp_path / "other.log"
    path.write_text("nothing here\n")
    status, out, err = ds4scope("replay", path)
    assert status in (2, 3) and err.startswith("ds4scope: ") and not out


def test_the_printed_log_is_read_like_any_other(ds4scope, tmp_path):
    path = tmp_path / "replayed.log"
    first = document(ds4scope, "replay", W1, "--emit-log", path)
    again = document(ds4scope, "replay", path)

    for total, value in first["outcome"]["totals"].items():
        if not total.startswith(("wall", "latency")):
            assert again["outcome"]["totals"][total] == again["observed"]["totals"][total] == value


def test_seconds_of_an_excerpt_stand_in_prose(ds4scope):
    """Said by people: shown beside. Computed: only from a cost model that the user declares."""
    plain = document(ds4scope, "replay", SEED)
    declared = document(ds4scope, "replay", SEED, "--prefill-tps", "430")

    assert plain["outcome"]["totals"]["latency_s_sum"] is None
    assert declared["outcome"]["totals"]["latency_s_sum"] > 0
    assert plain["hearsay"] == declared["hearsay"] != []


def test_what_a_rewind_would_have_kept_and_where_it_can_be_had(ds4scope):
    (found,) = document(ds4scope, "replay", IMAGES)["rewinds"]

    assert (found["common"], found["prompt_tokens"]) == (340144, 340551)
    shapes = {shape["family"]: shape["allows"] for shape in found["shapes"]}
    assert shapes == {"deepseek-v4": True, "glm": True, "qwen-next": False}


def test_the_table_is_for_people(ds4scope):
    _, out, _ = ds4scope("replay", IMAGES)

    assert "340,144 of 340,551" in out and "18 minutes" in out and "--prefill-tps" in out


# -- compare ---------------------------------------------------------------------------------------------


def test_policies_stand_side_by_side_with_the_bound(ds4scope):
    found = document(ds4scope, "compare", W1, "--with", "ds4-2026-09-reuse", "--with", "slots=3+empty-first")

    assert [column["name"] for column in found["columns"]] == [
        "as it is",
        "ds4-2026-09-reuse",
        "slots=3+empty-first",
    ]
    misses = [column["outcome"]["totals"]["live_misses"] for column in found["columns"]]
    assert misses == [15, 0, 0]
    least = found["bound"]["outcome"]["totals"]
    for column in found["columns"]:
        assert least["prefilled_tokens"] <= column["outcome"]["totals"]["prefilled_tokens"]
        assert least["latency_s_sum"] <= column["outcome"]["totals"]["latency_s_sum"]


def test_the_gain_is_the_one_that_was_measured(ds4scope):
    """W1 is the first seed at full size: 28 % of the seconds go, as the server with the fix showed."""
    found = document(ds4scope, "compare", W1, "--with", "ds4-2026-09-reuse")
    before, after = (column["outcome"]["totals"] for column in found["columns"])
    truth = [json.loads((Path(log).parent / "summary.json").read_text()) for log in (W1, REUSE)]

    for total, name in (("wall_s", "wall_s"), ("latency_s_sum", "sum_latency_s")):
        assert after[total] == pytest.approx(truth[1][name], rel=0.05)
        assert before[total] - after[total] == pytest.approx(truth[0][name] - truth[1][name], rel=0.1)


def test_an_unknown_policy_names_the_known_ones(ds4scope):
    status, _, err = ds4scope("compare", W1, "--with", "best")
    assert status == 2 and "reuse-aware" in err


# -- verify ----------------------------------------------------------------------------------------------


def test_a_fix_is_verified_by_two_logs(ds4scope):
    found = document(ds4scope, "verify", W1, REUSE)

    assert found["holds"] and found["metrics"]["misses_gone"] == 15
    assert len(found["misses"]["gone"]) == 15 and not found["misses"]["new"]


def test_a_fix_that_is_none_fails(ds4scope):
    """The other way round: what had gone is new."""
    status, out, _ = ds4scope("verify", REUSE, W1, "--format", "github")

    assert status == 1
    assert out.count("::error file=") == 15 and f"file={W1}" in out


def test_a_policy_is_verified_by_one_log(ds4scope):
    found = document(ds4scope, "verify", W1, "--server", "ds4-2026-09-reuse", "--expect", "live_misses<=0")
    assert found["holds"]
    document(ds4scope, "verify", W1, "--slots", "3", "--expect", "live_misses<=2", status=1)


def test_a_mechanism_that_must_be_gone(ds4scope):
    steal = ("--fail-on", "slot-steal-shared-prefix")
    assert ds4scope("verify", W1, REUSE, *steal)[0] == 0
    status, out, _ = ds4scope("verify", W1, "--slots", "3", *steal)
    assert status == 1 and "slot-steal-shared-prefix" in out
    assert ds4scope("verify", W1, REUSE, "--fail-on", "slot-steel")[0] == 2


def test_junit_for_ci(ds4scope):
    status, out, _ = ds4scope("verify", W1, "--slots", "3", "--expect", "live_misses<=2", "--format", "junit")
    suite = ElementTree.fromstring(out.encode())

    assert status == 1
    assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "1", "1")
    assert suite.find("testcase/failure") is not None


def test_nothing_to_verify_against(ds4scope):
    status, _, err = ds4scope("verify", W1)
    assert status == 2 and "--server" in err


def test_what_an_excerpt_does_not_show_is_not_zero(ds4scope):
    found = document(ds4scope, "replay", SEED)

    assert found["observed"]["totals"]["prefilled_tokens"] is None
    assert found["outcome"]["totals"]["prefilled_tokens"] > 0
    status, out, _ = ds4scope("verify", IMAGES, SEED, "--expect", "prefilled_tokens<=5")
    assert status == 1 and "prefilled_tokens is not known from this input" in out


# -- shrink ----------------------------------------------------------------------------------------------


def test_the_smallest_reproduction(ds4scope, tmp_path):
    path = tmp_path / "small.json"
    found = document(ds4scope, "shrink", W1, "--keep", "mechanism=slot-steal-shared-prefix", "-o", path)

    assert len(found["workload"]["requests"]) <= 3
    assert json.loads(path.read_text()) == found["workload"]
    assert not found["workload"].get("notes")  # those count what was open in the whole workload
    again = document(ds4scope, "replay", path, "--server", "ds4-2026-08", "--slots", "2")
    assert again["outcome"]["totals"]["live_misses"] >= 1


def test_a_reproduction_for_an_issue(ds4scope):
    status, out, _ = ds4scope("shrink", STEAL, "--keep", "live_misses>=1", "--format", "markdown")

    assert status == 0 and out.startswith("# Reproduction: live_misses>=1")
    assert "tokens" in out
    assert "`--batched-session 2 -c 65536 " in out


def test_what_is_not_there_cannot_be_kept(ds4scope):
    status, _, err = ds4scope("shrink", REUSE, "--keep", "live_misses>=1")
    assert status == 2 and "does not show" in err


# -- sweep -----------------------------------------------------------------------------------------------


def test_a_sweep_is_the_same_for_any_number_of_workers(ds4scope, tmp_path):
    words = ("sweep", W1, STEAL, "--policies", "common-prefix,reuse-aware", "--slot-counts", "2,3")
    one = document(ds4scope, *words, "-j", 1, "-o", tmp_path / "one.parquet")
    two = document(ds4scope, *words, "-j", 2, "-o", tmp_path / "two.parquet")

    assert one == two and len(one["rows"]) == 8 and len(one["variants"]) == 4
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    assert any(row["pareto"] for row in one["variants"])


def test_a_sweep_axis_needs_numbers(ds4scope):
    status, _, err = ds4scope("sweep", W1, "--slot-counts", "two")
    assert status == 2 and "two" in err


def test_dask_needs_an_address(ds4scope):
    status, _, err = ds4scope("sweep", W1, "--engine", "dask")
    assert status == 2 and "--dask-address" in err


def test_a_plugin_that_raises_is_named_with_its_line(ds4scope, tmp_path):
    plugin = tmp_path / "bad.py"
    plugin.write_text("class Bad:\n    def __getattr__(self, name):\n        return 1 // 0\n")
    status, _, err = ds4scope("replay", STEAL, "--scheduler", f"{plugin}:Bad")
    assert status == 2
    assert "bad.py:3: ZeroDivisionError" in err


def test_a_replay_says_why_the_log_is_of_that_build(ds4scope):
    _, out, _ = ds4scope("replay", STEAL)
    assert "ds4-2026-08 by the shapes of lines: batched mode" in out
    assert "by the shapes" not in ds4scope("replay", STEAL, "--server", "ds4-2026-08")[1]
