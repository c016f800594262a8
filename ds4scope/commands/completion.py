"""`ds4scope completion SHELL`."""

from __future__ import annotations

import argparse


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def run(args: argparse.Namespace) -> int:
    """Print the completion script of the whole command line."""
    import shtab

    from ds4scope.cli import build_parser

    print(shtab.complete(build_parser(), shell=args.shell))
    return 0
