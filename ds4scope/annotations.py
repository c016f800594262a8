"""Verdicts for CI: JUnit XML and GitHub annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from parser.sanitise import sanitise


class Check(NamedTuple):
    """One thing that was checked: its name, and why it failed (None: it holds)."""

    name: str
    failed: str | None
    place: tuple[str, int] | None = None


def junit(suite: str, checks: Sequence[Check]) -> str:
    """JUnit XML, one test case a check."""
    failures = sum(check.failed is not None for check in checks)
    root = ElementTree.Element(
        "testsuite", name=sanitise(suite), tests=str(len(checks)), failures=str(failures), errors="0"
    )
    for check in checks:
        case = ElementTree.SubElement(root, "testcase", classname=sanitise(suite), name=sanitise(check.name))
        if check.failed is not None:
            ElementTree.SubElement(case, "failure", message=sanitise(check.failed))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def github(checks: Sequence[Check]) -> str:
    """GitHub workflow commands: an error for each failed check, a notice for each other one."""
    return "".join(_command(check) for check in checks)


def _command(check: Check) -> str:
    level = "notice" if check.failed is None else "error"
    place = f"file={_property(check.place[0])},line={check.place[1]}," if check.place else ""
    text = check.name if check.failed is None else f"{check.name}: {check.failed}"
    return f"::{level} {place}title=ds4scope verify::{_data(text)}\n"


def _data(text: str) -> str:
    return sanitise(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
