"""Reporters: one file a format, each with `render(report) -> str`. Data goes to stdout as it is returned."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from triage.report import Report

#: format -> module in this package
FORMATS: Final = {name: name for name in ("table", "json", "markdown", "html", "sarif", "github", "tables")}


def renderer(name: str) -> Callable[[Report], str]:
    """`render` of the reporter for a format."""
    module = import_module(f"triage.reporters.{FORMATS[name]}")
    render: Callable[[Report], str] = module.render
    return render
