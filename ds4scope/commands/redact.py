"""`ds4scope redact LOG [-o OUT]`: a copy that can be shared and that gives the same requests and findings."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from parser.errors import UsageError


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
    from parser.redact import redact
    from parser.report import is_report
    from parser.sources import find_sources, iter_blocks

    sources = find_sources(args.input)
    _refuse_overwriting(args.output, [source.path for source in sources])
    key = args.key.encode()[:64] if args.key else secrets.token_bytes(32)
    with _output(args.output) as out:
        for source in sources:
            blocks = iter_blocks(source, max_bytes=args.max_bytes, count_lines=False)
            for part in redact((block.data for block in blocks), key, report=is_report(source)):
                out.write(part)
    return 0


def _refuse_overwriting(output: str | None, inputs: list[Path | None]) -> None:
    if output is None or not Path(output).exists():
        return
    if any(path is not None and path.samefile(output) for path in inputs):
        raise UsageError(
            "E-USAGE-OVERWRITE", "the output is the input", path=output, hint="name another file with -o"
        )


@contextmanager
def _output(path: str | None) -> Iterator[IO[bytes]]:
    """Standard output, or a file that appears under its name only when it is whole."""
    if path is None:
        yield sys.stdout.buffer
        return
    part = Path(f"{path}.part")
    try:
        with part.open("wb") as out:
            yield out
        part.replace(path)
    except OSError as error:
        raise UsageError("E-USAGE-OUTPUT", str(error), path=path, hint="name a file you may write") from None
    finally:
        part.unlink(missing_ok=True)
