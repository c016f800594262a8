"""What scripts rely on: every JSON output fits its schema in docs/schemas."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
LOG = ROOT / "fixtures/captures/a-steal-sequential-1k/server.log"
EXCERPT = ROOT / "fixtures/seeds/slot-steal.md"


def validator(name: str) -> Draft202012Validator:
    schema = json.loads((ROOT / f"docs/schemas/{name}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def output(*words: str) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "ds4scope", *words], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("source", [LOG, EXCERPT], ids=["log", "excerpt"])
@pytest.mark.parametrize(("command", "schema"), [("events", "event"), ("requests", "request")])
def test_each_ndjson_line_fits(command, schema, source):
    check = validator(schema)
    rows = [json.loads(line) for line in output(command, str(source), "--format", "ndjson").splitlines()]
    assert rows
    for row in rows:
        check.validate(row)


@pytest.mark.parametrize("source", [LOG, EXCERPT], ids=["log", "excerpt"])
@pytest.mark.parametrize("command", ["triage", "replay", "doctor"])
def test_json_object_fits(command, source):
    validator(command).validate(json.loads(output(command, str(source), "--format", "json")))
