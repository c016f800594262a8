"""From command-line inputs to a study: a log (with its traces), or a workload file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replay.study import Study


def register(parser: argparse.ArgumentParser, *, many: bool = True) -> None:
    """Adds the inputs: a log or report (several files are one log), or one workload file."""
    if many:
        parser.add_argument(
            "input",
            nargs="+",
            metavar="INPUT",
            help="log or report: files, a directory, or -; or a workload file",
        )
    parser.add_argument(
        "--trace", action="append", default=[], metavar="FILE", help="the server's --trace file (repeatable)"
    )
    parser.add_argument(
        "--since", metavar="STAMP", help="leave out what is before ('1130 17:52:23', '17:52')"
    )
    parser.add_argument("--until", metavar="STAMP", help="leave out what is after")


def study(
    args: argparse.Namespace, inputs: Sequence[str], declared: Mapping[str, Any] | None = None
) -> Study:
    """The study of `inputs`; errors name what cannot be read and what to do."""
    from replay.study import study_of, study_of_workload

    if len(inputs) == 1 and is_workload(inputs[0]):
        from replay.workload_file import load

        return study_of_workload(load(Path(inputs[0])), declared)
    from parser.reading import read

    return study_of(read(inputs, traces=args.trace, since=args.since, until=args.until), declared)


def is_workload(path: str) -> bool:
    """A JSON object with a schema: what `ds4scope workload` writes. Logs never begin with a brace."""
    place = Path(path)
    if path == "-" or not place.is_file():
        return False
    try:
        with place.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return head.lstrip()[:1] == b"{" and (b'"schema"' in head or place.suffix == ".json")
