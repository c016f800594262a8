"""`ds4scope explain MECHANISM|LINE`: what it means, how it is recognised, what to do."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from parser.errors import UsageError

if TYPE_CHECKING:
    from triage.mechanism import Mechanism


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "what",
        nargs="*",
        metavar="MECHANISM|LINE",
        help="an id of a finding, or a log line in quotes (default: list all ids)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the explanation."""
    from parser.sanitise import sanitise
    from triage.mechanisms import catalogue

    asked = " ".join(args.what).strip()
    known = catalogue()
    if not asked:
        lines: Iterator[str] = (f"{m.id:28} {m.title}" for m in known.values())
    elif asked in known:
        lines = _mechanism(known[asked])
    elif " " in asked or "=" in asked:
        lines = _line(asked)
    else:
        raise UsageError("E-EXPLAIN", f"no mechanism of that name: {asked}", hint=_near(asked, list(known)))
    sys.stdout.write("".join(f"{sanitise(line)}\n" for line in lines))
    return 0


def _near(asked: str, known: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(asked, known, n=3, cutoff=0.4)
    return f"did you mean {', '.join(close)}?" if close else "`ds4scope explain` lists all ids"


def _mechanism(mechanism: Mechanism) -> Iterator[str]:
    yield f"{mechanism.id}: {mechanism.title}"
    yield ""
    yield f"  seen by      {mechanism.evidence}"
    yield f"  not if       {mechanism.not_if}"
    yield f"  how sure     needs {', '.join(mechanism.grades)}; severity {mechanism.severity}"
    yield f"  you          {mechanism.user}"
    issues = f" ({', '.join(f'#{n}' for n in mechanism.upstream)})" if mechanism.upstream else ""
    yield f"  server       {mechanism.server}{issues}"
    if mechanism.replay is not None:
        options = " ".join(f"--{k.replace('_', '-')} {v}" for k, v in mechanism.replay.options.items())
        yield f"  proof        {mechanism.replay.note}" + (
            f" (ds4scope replay LOG {options})" if options else ""
        )


def _line(text: str) -> Iterator[str]:
    from parser.events import explain_near_miss, parse_line
    from triage.meanings import FIELDS, KINDS

    event = parse_line(text)
    yield f"{event.kind} (rule {event.rule})" if event.rule else event.kind
    yield f"  {KINDS[event.kind]}"
    for name, value in event.fields.items():
        if value is not None and value != []:
            yield f"  {name:12} {value}" + (f"   {FIELDS[name]}" if name in FIELDS else "")
    for name, extra in event.extra.items():
        yield f"  {name:12} {extra}   not a field of ds4-server: kept as it is"
    near = explain_near_miss(text) if event.kind in ("unknown", "foreign") else None
    if near is not None:
        yield f"  nearly the rule {near.rule}: left at column {near.column}, where it has {' or '.join(near.expected)}"
    yield "  for a verdict, give it with the lines around it: ds4scope triage FILE"
