"""`ds4scope shrink INPUT --keep 'mechanism=slot-steal-shared-prefix'`: the smallest workload that shows it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replay.shrink import Shrunk
    from replay.study import Study
    from replay.workload import Asked, Workload


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    from ds4scope import server_options, studies

    studies.register(parser)
    parser.add_argument(
        "--keep", action="append", required=True, metavar="WHAT",
        help="what it must still show: mechanism=ID, or a total ('live_misses>=2'); repeatable",
    )  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", help="workload file to write")
    parser.add_argument("--tries", type=int, default=600, metavar="N", help="workloads to try (default 600)")
    server_options.register(parser)
    parser.add_argument("--format", choices=("table", "markdown", "json"), help="default: table")
    parser.add_argument("--no-color", action="store_true", help="no colours (as NO_COLOR)")


def run(args: argparse.Namespace) -> int:
    """Shrinks, writes the workload file, prints the reproduction."""
    from ds4scope.server_options import declared, server_options
    from ds4scope.studies import study
    from ds4scope.tables import write
    from parser.errors import UsageError
    from replay.shrink import shrink
    from replay.workload_file import dumps

    options = server_options(args)
    made = study(args, args.input, declared(args))
    keeps = _all_of([_predicate(text, made, options) for text in args.keep])
    if not keeps(made.workload):
        raise UsageError(
            "E-SHRINK", f"the whole workload does not show {' and '.join(args.keep)}",
            hint="see what it shows with `ds4scope triage` and `ds4scope replay`",
        )  # fmt: skip
    found = shrink(made.workload, keeps, most=max(1, args.tries))
    if args.output is not None:
        write(dumps(found.workload).decode(), args.output, args.input)
    print(f"{found.tried} workloads tried", file=sys.stderr)
    write(_RENDER[args.format or "table"](args, made, found))
    return 0


def _all_of(predicates: list[Callable[[Workload], bool]]) -> Callable[[Workload], bool]:
    return lambda workload: all(holds(workload) for holds in predicates)


def _predicate(text: str, made: Study, options: dict[str, Any]) -> Callable[[Workload], bool]:
    key, equals, value = text.partition("=")
    if key.strip() == "mechanism" and equals and value[:1] != "=":
        from ds4scope.reproduction import shows
        from triage.expectation import known_mechanism

        return shows(known_mechanism(value.strip()), made, options)
    from ds4scope.outcomes import totals_json
    from replay.server import replay
    from triage.expectation import Expectation

    expected = Expectation.parse(text)
    configs = made.configs(**options)

    def holds(workload: Workload) -> bool:
        return expected.broken_by(totals_json(replay(workload, configs, made.costs))) is None

    return holds


def _json(args: argparse.Namespace, made: Study, found: Shrunk) -> str:
    import json

    from ds4scope.tables import as_json
    from replay.workload_file import dumps

    document = {
        "schema": 1,
        "keep": args.keep,
        "tried": found.tried,
        "workload": json.loads(dumps(found.workload)),
    }
    return as_json(document)


def _table(args: argparse.Namespace, made: Study, found: Shrunk) -> str:
    from ds4scope.tables import table

    rows = [_row(asked) for asked in found.workload.requests]
    return table(
        ["request", "conversation", "waits for", "prompt", "ends in", "reply", "api"], rows,
        title=f"{len(rows)} requests show {' and '.join(args.keep)}",
    ) + _segments(found.workload)  # fmt: skip


def _row(asked: Asked) -> list[Any]:
    waits = "-" if asked.after is None else f"{asked.after} + {asked.think_s:g} s"
    pieces = " ".join(piece.segment for piece in asked.prompt[-4:])
    return [
        str(asked.request),
        asked.conversation,
        waits,
        asked.prompt_tokens,
        pieces,
        asked.generated,
        asked.api,
    ]


def _segments(workload: Workload) -> str:
    from parser.sanitise import sanitise

    sizes = [f"{name} {segment.tokens}" for name, segment in workload.segments.items()]
    return "segments (tokens): " + sanitise(", ".join(sizes)) + "\n"


def _markdown(args: argparse.Namespace, made: Study, found: Shrunk) -> str:
    """A reproduction for an issue: what to send, in which order, and what happens."""
    from ds4scope.reproduction import steps
    from ds4scope.server_options import server_options
    from replay.server import replay

    configs = made.configs(**server_options(args))
    outcome = replay(found.workload, configs, made.costs)
    lines = [f"# Reproduction: {' and '.join(args.keep)}", "", *steps(found.workload, configs[0], outcome)]
    return "\n".join(lines) + "\n"


_RENDER = {"table": _table, "markdown": _markdown, "json": _json}
