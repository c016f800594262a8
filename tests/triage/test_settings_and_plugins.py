"""Thresholds from TOML, expectations for CI, mechanisms from plug-ins, exit statuses of the command."""

from __future__ import annotations

import json
import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from ds4scope.cli import main
from parser.errors import UsageError
from parser.reading import read
from triage import mechanisms
from triage.build import view_of
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


def test_the_documented_plug_in_equals_the_built_in(tmp_path):
    """`docs/mechanisms.md`: the example finds the same lines and figures as `consumed-on-hit`."""
    page = Path(__file__).parents[2] / "docs" / "mechanisms.md"
    namespace: dict = {}
    exec(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[0], namespace)
    text = "".join(
        f"kv cache hit text tokens={n} text=9 quant=2 key=token-text load=1.0 ms{word} file=/kv/{n}.kv\n"
        for n, word in ((9000, " consumed"), (8000, ""), (7000, " consumed"))
    )
    path = tmp_path / "paste.md"
    path.write_text(text)
    view = view_of(read([str(path)]), Thresholds())
    mine, built_in = (
        list(namespace["MECHANISM"].detect(view)),
        list(mechanisms.built_in("consumed-on-hit").detect(view)),
    )
    assert [s.lines for s in mine] == [s.lines for s in built_in] == [(1, 3)]
    for name, value in mine[0].figures.items():
        assert built_in[0].figures[name] == value


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
    text = (Path(__file__).parents[2] / "docs" / "spec" / "mechanisms.md").read_text()
    named = [line.split("`")[1] for line in text.splitlines() if line.startswith("#### `")]
    assert list(mechanisms.BUILT_IN) == named
    for name in named:
        mechanism = mechanisms.built_in(name)
        assert mechanism.id == name
        assert mechanism.evidence and mechanism.not_if and mechanism.user and mechanism.server
