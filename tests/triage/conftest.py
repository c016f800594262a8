"""Fixtures of the triage tests: an excerpt as text in, a report out."""

from __future__ import annotations

import textwrap

import pytest

from parser.reading import read
from triage.report import Report
from triage.triage import triage


@pytest.fixture
def judge(tmp_path):
    """`judge(text, name="input.md")` -> Report of that text."""

    def run(text: str, name: str = "input.md") -> Report:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
        return triage(read([str(path)]))

    return run


@pytest.fixture
def found(judge):
    """`found(text)` -> mechanism ids in their rank."""

    def run(text: str, name: str = "input.md") -> list[str]:
        return [f.mechanism for f in judge(text, name).findings]

    return run
