"""`ds4scope workload INPUT -o workload.json`: what the clients asked, as a file that stands alone."""

from __future__ import annotations

import argparse
import sys


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    from ds4scope import studies

    studies.register(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="workload file to write (default: standard output)"
    )


def run(args: argparse.Namespace) -> int:
    """Extracts the workload; what could not be reconstructed goes to standard error."""
    from ds4scope.studies import study
    from ds4scope.tables import write
    from parser.sanitise import sanitise
    from replay.workload_file import dumps

    made = study(args, args.input)
    write(dumps(made.workload).decode(), args.output, args.input)
    for note in made.workload.notes:
        print(f"note: {sanitise(note)}", file=sys.stderr)
    return 0
