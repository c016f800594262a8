"""The command line: one module a command in `ds4scope.commands`, each registers its arguments and runs."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from typing import NoReturn

from parser.errors import Ds4scopeError

#: command -> one-line help; the module of the same name registers the arguments only when it is asked for
COMMANDS = {
    "triage": "what happened, whose part it is, what it cost, what to do",
    "events": "every line as a typed event",
    "requests": "one row a request: reuse, misses, stores, slot, conversation",
    "redact": "a copy of a log that can be shared and that reads the same",
    "explain": "what a mechanism or a log line means",
    "doctor": "which options hurt this workload",
    "workload": "what the clients asked, as a file that stands alone",
    "replay": "run the workload under the server's rules, or others",
    "compare": "policies side by side, with the bound nobody can beat",
    "verify": "prove a fix: before against after, for CI",
    "shrink": "the smallest workload that still shows it",
    "sweep": "policies x slots x budgets over many logs",
    "tui": "the timeline: slots, hits and evictions over time",
    "serve": "the timeline in a browser",
    "completion": "shell completion for bash, zsh or tcsh",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: {message}\n  what to do: see {self.prog} --help\n")


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The whole parser, or (`only`) with the arguments of one command loaded, which keeps start-up short."""
    from ds4scope import __version__

    top = _Parser(
        prog="ds4scope", description="Read, replay and see what a ds4-server does with its KV caches."
    )
    top.add_argument("--version", action="version", version=f"ds4scope {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if only in (None, name):
            import_module(f"ds4scope.commands.{name}").register(sub)
    return top


def _run(argv: list[str]) -> int:
    named = next((word for word in argv if not word.startswith("-")), "")
    args = build_parser(named).parse_args(argv)
    return int(import_module(f"ds4scope.commands.{args.command}").run(args))


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status. No input gives a traceback: errors say place and remedy."""
    try:
        status = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return status
    except Ds4scopeError as error:
        print(f"ds4scope: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except (
        Exception
    ) as error:  # a defect of ds4scope: said in words, the traceback only where it is asked for
        if os.environ.get("DS4SCOPE_TRACEBACK"):
            raise
        print(f"ds4scope: {_defect(error)}", file=sys.stderr)
        return 3


def _defect(error: Exception) -> Ds4scopeError:
    from parser.errors import InputError

    said = f"this should not happen: {type(error).__name__}: {error}".encode(
        "ascii", "backslashreplace"
    ).decode()
    hint = "please report it, with `ds4scope redact LOG` of the input; DS4SCOPE_TRACEBACK=1 shows where it happened"
    return InputError("E-INTERNAL", said[:400], hint=hint)


if __name__ == "__main__":
    sys.exit(main())
