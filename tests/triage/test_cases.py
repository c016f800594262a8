"""Excerpts as people paste them (`fixtures/cases`): the verdict, the events, the figures, and no false alarm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parser.reading import read
from triage.reporters.json import document
from triage.triage import triage

CASES = sorted(p.parent for p in (Path(__file__).parents[2] / "fixtures" / "cases").glob("*/expected.json"))
assert len(CASES) >= 45


@pytest.fixture(scope="module")
def told():
    """Case -> what `ds4scope triage --format json` says of its input, each read once."""
    known = {}

    def tell(case: Path) -> dict:
        if case not in known:
            known[case] = document(triage(read([str(next(case.glob("input.*")))])))
        return known[case]

    return tell


def expected(case: Path) -> dict:
    return json.loads((case / "expected.json").read_text())


def numbers(value) -> list[float]:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return []
    if isinstance(value, (int, float)):
        return [float(value)]
    parts = value.values() if isinstance(value, dict) else value
    return [n for part in parts for n in numbers(part)]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_verdict(case, told):
    want, ids = expected(case), [f["mechanism"] for f in told(case)["findings"]]
    assert ids[0] in {want["mechanism"][0], *want.get("accept", [])}
    assert not set(ids) & set(want["must_not"])


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_events(case, told):
    want, got = expected(case), dict(told(case)["events"])
    optional = want.get("events_optional", {})
    for kind in set(want["events"]) | set(got) - {"foreign", "unknown"}:
        if kind not in ("foreign", "unknown"):
            low = want["events"].get(kind, 0)
            assert low <= got.get(kind, 0) <= low + optional.get(kind, 0), kind


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_quantities_are_named_figures(case, told):
    """Each figure stands as a number under a name of a finding or of the totals, not only in a sentence."""
    answer = told(case)
    have = numbers([answer["totals"], [f["quantities"] for f in answer["findings"]]])
    for name, wanted in expected(case)["quantities"].items():
        assert all(any(abs(x - w) <= 0.01 * abs(w) for x in have) for w in numbers(wanted)), name


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_finding_says_how_sure_and_what_to_do(case, told):
    for finding in told(case)["findings"]:
        assert 0 < finding["confidence"] <= 1
        assert finding["grade"] in ("log", "config", "turns", "trace", "possible", "hearsay")
        assert finding["explanation"] and finding["remedy"]["user"] and finding["remedy"]["server"]
