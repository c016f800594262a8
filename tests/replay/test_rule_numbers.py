"""Each numbered rule of docs/spec/cache-behaviour.md, sections 1 to 7, is named in the docstring of the code that is
it."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: R4.36 is one fork's; R2.24 says where a rule is from
NOT_CODE = {"R4.36", "R2.24"}


def rules():
    text = (ROOT / "docs/spec/cache-behaviour.md").read_text()
    body = text.split("\n## 1. ")[1].split("\n## 8. ")[0]
    return [
        rule for rule in re.findall(r"^- (?:\*\*)?(R\d\.\d+)", body, re.MULTILINE) if rule not in NOT_CODE
    ]


def numbers(docstring):
    """R2.3, and R2.3-R2.5 as three."""
    for first, last in re.findall(r"(R\d\.\d+)(?:-(R\d\.\d+))?", docstring):
        section, low = first[1:].split(".")
        high = last.split(".")[1] if last else low
        yield from (f"R{section}.{number}" for number in range(int(low), int(high) + 1))


@pytest.fixture(scope="module")
def documented():
    found = set()
    for path in (ROOT / "replay").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found.update(numbers(ast.get_docstring(node) or ""))
    return found


def test_the_rules_are_found():
    assert len(rules()) > 80


def test_each_rule_stands_in_a_docstring(documented):
    assert [rule for rule in rules() if rule not in documented] == []
