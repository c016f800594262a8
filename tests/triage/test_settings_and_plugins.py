"""Thresholds from TOML, expectations for CI, mechanisms from plug-ins, exit statuses of the command."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import pytest

from ds4scope.cli import main
from parser.errors import UsageError
from triage import mechanisms
from triage.mechanism import Mechanism, Sign
from triage.thresholds import Thresholds, load

MISS = "live kv cache miss live=52474 prompt=52430 common=52430 reason=token-mismatch\n"
HIT = "kv cache hit text tokens=51600 text=160000 quant=2 key=token-text load=110.0 ms file=/kv/a.kv\n"
SPAN = "chat ctx=51600..52430:830 prompt start\n"


@pytest.fixture
def paste(tmp_path):
    path = tmp_path / "paste.md"
    path.write_text(MISS + HIT + SPAN)
    return str(path)


def ids(capsys) -> list[str]:
    return [f["mechanism"] for f in json.loads(capsys.readouterr().out)["findings"]]


def test_thresholds_come_from_the_nearest_table(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("[tool.ds4scope]\nshallow_tokens = 500\nshallow_share = 0.01\n")
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert load().shallow_tokens == 500
    assert load().head_tokens == Thresholds().head_tokens


@pytest.mark.parametrize(
    "table", ["no_such_threshold = 1", 'shallow_tokens = "many"', "shallow_tokens = true"]
)
def test_a_wrong_threshold_is_a_usage_error(tmp_path, table):
    path = tmp_path / "ds4scope.toml"
    path.write_text(f"[tool.ds4scope]\n{table}\n")
    with pytest.raises(UsageError):
        load(str(path))


def test_a_threshold_changes_the_verdict(paste, tmp_path, capsys):
    config = tmp_path / "strict.toml"
    config.write_text("[tool.ds4scope]\nshallow_tokens = 500\nshallow_share = 0.01\n")
    assert main(["triage", paste, "--format", "json"]) == 0
    assert "shallow-disk-checkpoint" not in ids(capsys)
    assert main(["triage", paste, "--format", "json", "--config", str(config)]) == 0
    assert "shallow-disk-checkpoint" in ids(capsys)


def test_expectations_and_fail_on_set_the_status(paste, capsys):
    assert (
        main(["triage", paste, "--expect", "live_misses == 1", "--expect", "lost_to_cache_tokens <= 830"])
        == 0
    )
    assert main(["triage", paste, "--expect", "live_misses == 0"]) == 1
    assert "live_misses is 1" in capsys.readouterr().err
    assert main(["triage", paste, "--fail-on", "exact-retry-no-rewind"]) == 1
    assert main(["triage", paste, "--fail-on", "out-of-memory"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    "arguments",
    [["--expect", "live_misses is few"], ["--expect", "no_such_total > 1"], ["--fail-on", "no-such-id"]],
)
def test_wrong_expectations_are_usage_errors(paste, capsys, arguments):
    assert main(["triage", paste, *arguments]) == 2
    assert "what to do" in capsys.readouterr().err


def test_nothing_that_the_server_prints_is_status_3(tmp_path, capsys):
    path = tmp_path / "other.log"
    path.write_text("\n".join(f"Nov 30 10:00:{n:02} host sshd[12]: session opened" for n in range(60)) * 50)
    assert main(["triage", str(path), "--format", "json"]) == 3
    assert capsys.readouterr().out == ""


def test_a_plug_in_adds_a_mechanism(paste, capsys, monkeypatch):
    extra = Mechanism(
        id="far-too-long", title="A very long prompt", family="client", grades=("log",), severity="low",
        evidence="P above 50,000", not_if="shorter", user="shorten it", server="nothing",
        detect=lambda view: [Sign("a prompt of its own kind", lines=(1,), figures={"longest": e.prompt}) for e in view.misses],
    )  # fmt: skip

    class Point(EntryPoint):
        def load(self):
            return extra

    point = Point("extra", "here:extra", mechanisms.GROUP)
    monkeypatch.setattr(
        mechanisms, "entry_points", lambda group: [point] if group == mechanisms.GROUP else []
    )
    mechanisms.catalogue.cache_clear()
    try:
        assert main(["triage", paste, "--format", "json"]) == 0
        assert "far-too-long" in ids(capsys)
    finally:
        mechanisms.catalogue.cache_clear()


def test_a_broken_plug_in_is_named(monkeypatch):
    class Point(EntryPoint):
        def load(self):
            raise RuntimeError("it does not import")

    point = Point("extra", "here:extra", mechanisms.GROUP)
    monkeypatch.setattr(mechanisms, "entry_points", lambda group: [point])
    mechanisms.catalogue.cache_clear()
    try:
        with pytest.raises(UsageError, match="extra"):
            mechanisms.catalogue()
    finally:
        mechanisms.catalogue.cache_clear()


def test_every_mechanism_of_the_specification_is_built_in():
    from pathlib import Path

    text = (Path(__file__).parents[2] / "docs" / "spec" / "mechanisms.md").read_text()
    named = [line.split("`")[1] for line in text.splitlines() if line.startswith("#### `")]
    assert list(mechanisms.BUILT_IN) == named
    for name in named:
        mechanism = mechanisms.built_in(name)
        assert mechanism.id == name
        assert mechanism.evidence and mechanism.not_if and mechanism.user and mechanism.server
