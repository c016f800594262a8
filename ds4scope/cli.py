"""The command line: one module a command in `ds4scope.commands`, each registers its arguments and runs."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from importlib import import_module
from typing import Final, NoReturn

from parser.errors import Ds4scopeError, UsageError
from parser.sanitise import sanitise

#: what the system says where something cannot be written
_UNWRITABLE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}

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
        self.exit(2, f"{self.prog}: {sanitise(message)}\n  what to do: see {self.prog} --help\n")


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
        _streams()
        status = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return status
    except Ds4scopeError as error:
        return _said(error)
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
        return _said(_defect(error))


def _streams() -> None:
    """What is printed is UTF-8 whatever the locale says, and a stream that is closed is not written to."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - as long as the process
    if sys.stdout is None:
        hint = "redirect it to a file or to /dev/null"
        raise UsageError("E-USAGE-OUTPUT", "standard output is closed", hint=hint)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def _said(error: Ds4scopeError) -> int:
    """Prints the error; its exit status. Names of files and words of the user's may hold anything."""
    print(f"ds4scope: {sanitise(str(error), lines=True)}", file=sys.stderr)
    return error.exit_code


def _defect(error: Exception) -> Ds4scopeError:
    from parser.errors import InputError

    if isinstance(error, OSError) and error.errno in _UNWRITABLE:
        hint = "make room, or write to another place"
        return UsageError("E-USAGE-OUTPUT", f"cannot write: {error.strerror}", hint=hint)
    if place := _in_plugin(error):
        hint = "mend the plug-in (docs/plugins.md says what it is asked); DS4SCOPE_TRACEBACK=1 shows how it was reached"
        return UsageError("E-PLUGIN", f"{place}: {type(error).__name__}: {error}"[:400], hint=hint)
    said = f"this should not happen: {type(error).__name__}: {error}".encode(
        "ascii", "backslashreplace"
    ).decode()
    hint = "please report it, with `ds4scope redact LOG` of the input; DS4SCOPE_TRACEBACK=1 shows where it happened"
    return InputError("E-INTERNAL", said[:400], hint=hint)


def _in_plugin(error: Exception) -> str:
    """Where in a file that was given as `file.py:Class` it happened; empty where it did elsewhere."""
    from traceback import walk_tb

    frames = [
        (frame.f_globals.get("__name__", ""), frame, line) for frame, line in walk_tb(error.__traceback__)
    ]
    inside = [(frame, line) for name, frame, line in frames if name.startswith("ds4scope_plugin_")]
    return f"{inside[-1][0].f_code.co_filename}:{inside[-1][1]}" if inside else ""


if __name__ == "__main__":
    sys.exit(main())
