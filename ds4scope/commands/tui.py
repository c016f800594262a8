"""`ds4scope tui LOG…`: the timeline."""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from parser.errors import InputError, UsageError


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments; `serve` takes the same and hands them on."""
    parser.add_argument("input", nargs="+", metavar="LOG", help="log or report: files, a directory, or -")
    parser.add_argument(
        "--trace", action="append", default=[], metavar="FILE", help="the server's --trace file"
    )
    parser.add_argument(
        "--client", action="append", default=[], metavar="FILE", help="usage of the clients (jsonl)"
    )
    parser.add_argument(
        "--since", metavar="STAMP", help="leave out what is before ('1130 17:52:23' or '17:52')"
    )
    parser.add_argument("--until", metavar="STAMP", help="leave out what is after")
    parser.add_argument("--year", type=int, metavar="N", help="year of the stamps")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is appended to the log")
    parser.add_argument("--keys", metavar="FILE", help="your own keys (docs/timeline.md)")
    parser.add_argument("--theme", metavar="NAME", help="colours, e.g. textual-light, nord, gruvbox")
    parser.add_argument("--ascii", action="store_true", help="ASCII characters only")
    parser.add_argument("--no-color", action="store_true", help="no colours (as NO_COLOR)")


def run(args: argparse.Namespace) -> int:
    """Opens the timeline and stays there until it is left. Raises what `parser` raises for bad input."""
    _need_terminal()
    if args.no_color:
        os.environ["NO_COLOR"] = "1"
    from tui.keys import load_habits

    habits = load_habits(args.keys)
    with _files(args.input) as inputs:
        code = _open(args, inputs, habits)
    _leave(code)
    return code


def _leave(code: int) -> None:
    """End the process at once where work still runs beside it: Python would take the interpreter down under
    native code that it cannot stop."""
    if any(thread.daemon for thread in threading.enumerate()):
        sys.stdout.flush()
        os._exit(code)


def _open(args: argparse.Namespace, inputs: Sequence[str], habits: object) -> int:
    from dataclasses import replace

    from parser.sources import find_sources
    from tui.app import TimelineApp
    from tui.driver import title_kept
    from tui.feed import Wanted
    from tui.glyphs import ASCII, UNICODE
    from tui.keys import Habits

    assert isinstance(habits, Habits)
    find_sources(list(inputs))  # what cannot be read is said before the screen is taken
    wanted = Wanted(tuple(inputs), tuple(args.trace), tuple(args.client), args.since, args.until, args.year)
    app = TimelineApp(
        wanted,
        follow=args.follow,
        habits=replace(habits, theme=args.theme or habits.theme),
        glyphs=ASCII if args.ascii or not _unicode() else UNICODE,
    )
    if app.habits.theme is not None and app.habits.theme not in app.available_themes:
        hint = "one of " + " ".join(app.available_themes)
        raise UsageError("E-TUI-THEME", f"no theme is called {app.habits.theme!r}", hint=hint)
    with title_kept():
        app.run()
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0


def _need_terminal() -> None:
    """Raises UsageError where there is no screen to draw on (textual-serve brings its own driver)."""
    if os.environ.get("TEXTUAL_DRIVER"):
        return
    drawn = sys.__stderr__  # Textual draws there
    hint = "run it in a terminal, or use `ds4scope serve`; `ds4scope requests` prints a table"
    if os.environ.get("TERM") in ("dumb", "unknown"):
        name = os.environ["TERM"]
        raise UsageError(
            "E-TUI-TERMINAL", f"the timeline cannot draw on this terminal (TERM={name})", hint=hint
        )
    if drawn is None or not drawn.isatty():
        raise UsageError("E-TUI-TERMINAL", "the timeline needs a terminal", hint=hint)


def _unicode() -> bool:
    drawn = sys.__stderr__  # Textual draws there, whatever is done about standard output
    return (getattr(drawn, "encoding", None) or "").lower().replace("-", "") in ("utf8", "utf16", "utf32")


@contextmanager
def _files(inputs: Sequence[str]) -> Iterator[list[str]]:
    """The inputs as files: standard input and pipes are kept in a folder that goes when the timeline is left.

    Afterwards standard input is the terminal, since the keys come from there.
    """
    if not any(_is_pipe(name) for name in inputs):
        yield list(inputs)
        return
    with tempfile.TemporaryDirectory(prefix="ds4scope-") as folder:
        yield [_kept(name, Path(folder), number) for number, name in enumerate(inputs)]


def _is_pipe(name: str) -> bool:
    if name == "-":
        return True
    try:
        return stat.S_ISFIFO(os.stat(name).st_mode)  # noqa: PTH116 (no file is opened)
    except OSError:
        return False


def _kept(name: str, folder: Path, number: int) -> str:
    if not _is_pipe(name):
        return name
    place = folder / ("standard-input" if name == "-" else f"pipe-{number}")
    with place.open("wb") as out:
        if name != "-":
            with Path(name).open("rb") as pipe:
                shutil.copyfileobj(pipe, out)
            return str(place)
        shutil.copyfileobj(sys.stdin.buffer, out)
    _keys_from_terminal()
    return str(place)


def _keys_from_terminal() -> None:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError as error:
        hint = "save the log to a file and name that"
        raise InputError("E-TUI-KEYS", "no terminal to read keys from", hint=hint) from error
    os.dup2(terminal, 0)
    os.close(terminal)
