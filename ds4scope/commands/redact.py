"""`ds4scope redact LOG [-o OUT]`: a copy that can be shared and that gives the same requests and findings."""

from __future__ import annotations

import argparse
import secrets

from parser.sanitise import sanitise


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("input", nargs="+", metavar="LOG", help="log or report: files, a directory, or -")
    parser.add_argument("-o", "--output", metavar="OUT", help="file to write (default: standard output)")
    parser.add_argument("--max-bytes", type=int, metavar="N", help="bytes that packed input may unpack to")
    parser.add_argument(
        "--key",
        metavar="TEXT",
        help="replace under this secret instead of a random one, so that several runs agree",
    )


def run(args: argparse.Namespace) -> int:
    """Streams the inputs, one after the other, through `parser.redact`."""
    from ds4scope.output import opened
    from parser.redact import redact
    from parser.report import is_report
    from parser.sources import find_sources, iter_blocks

    sources = find_sources(args.input)
    key = args.key.encode()[:64] if args.key else secrets.token_bytes(32)
    with opened(args.output, args.input) as out:
        for source in sources:
            blocks = iter_blocks(source, max_bytes=args.max_bytes, count_lines=False)
            for part in redact((block.data for block in blocks), key, report=is_report(source)):
                out.write(_inert(part) if out.isatty() else part)
    return 0


def _inert(part: bytes) -> bytes:
    """For a terminal: a log's own escape sequences, which a file keeps, written out."""
    return sanitise(part.decode("utf-8", "replace"), lines=True).encode()
