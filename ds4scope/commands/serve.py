"""`ds4scope serve LOG…`: the timeline in a browser (extra `serve`)."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ds4scope.commands import tui
from parser.errors import InputError, UsageError

if TYPE_CHECKING:
    from aiohttp import web
    from textual_serve.server import Server

_LOCAL = ("localhost", "127.0.0.1", "::1")


def register(parser: argparse.ArgumentParser) -> None:
    """The arguments of `tui`, and where to listen."""
    tui.register(parser)
    parser.add_argument("--host", default="localhost", help="address to listen on (default: localhost)")
    parser.add_argument(
        "--port", type=int, default=8017, metavar="N", help="port to listen on (default: 8017)"
    )


def run(args: argparse.Namespace) -> int:
    """Serves until interrupted. Every page that is opened runs a timeline of its own."""
    if "-" in args.input:
        raise UsageError("E-SERVE-STDIN", "a browser page cannot read standard input", hint="name a file")
    from parser.sources import find_sources

    find_sources(list(args.input))
    with tempfile.TemporaryDirectory(prefix="ds4scope-") as folder:
        server = make_server(command_of(args), args.host, args.port, Path(folder))
        print(f"timeline at http://{args.host}:{args.port} (ctrl+c ends it)", file=sys.stderr)
        if args.host not in _LOCAL:
            print("anyone who reaches this address can read the log", file=sys.stderr)
        _serve(server, args)
    return 0


def command_of(args: argparse.Namespace) -> str:
    """The `ds4scope tui` command line that each page runs, quoted for a shell."""
    words = [sys.executable, "-m", "ds4scope", "tui"]
    for name in ("since", "until", "year", "keys", "theme"):
        if getattr(args, name) is not None:
            words += [f"--{name}={getattr(args, name)}"]
    for name in ("trace", "client"):
        words += [f"--{name}={value}" for value in getattr(args, name)]
    words += [
        f"--{flag.replace('_', '-')}" for flag in ("follow", "ascii", "no_color") if getattr(args, flag)
    ]
    return shlex.join([*words, "--", *args.input])


def make_server(command: str, host: str, port: int, folder: Path) -> Server:
    """A server that answers its own pages only. Raises UsageError where textual-serve is missing."""
    try:
        from textual_serve.server import Server
    except ImportError as error:
        hint = "pip install 'ds4scope[serve]'"
        raise UsageError("E-SERVE-EXTRA", "this needs the extra `serve`", hint=hint) from error

    class OwnPagesOnly(Server):  # type: ignore[misc, unused-ignore]
        """Refuses a page of another site that tries to read the log through the visitor's browser."""

        async def _make_app(self) -> web.Application:
            app = await super()._make_app()
            app.middlewares.append(_own_pages(host, port))
            return app

    return OwnPagesOnly(command, host=host, port=port, title="ds4scope", templates_path=_templates(folder))


def _own_pages(host: str, port: int) -> Any:
    from aiohttp import web

    names = {f"{name}:{port}" for name in (*_LOCAL[:2], "[::1]", host)}

    @web.middleware
    async def check(request: web.Request, handler: Any) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        foreign = origin is not None and origin.partition("://")[2] not in names | {request.host}
        rebound = host in _LOCAL and request.host not in names
        if foreign or rebound:
            raise web.HTTPForbidden(text="not from this site")
        response: web.StreamResponse = await handler(request)
        return response

    return check


def _templates(folder: Path) -> str:
    """textual-serve's page without its link to a font on another host: nothing leaves this machine."""
    import textual_serve

    shipped = Path(textual_serve.__file__).parent / "templates" / "app_index.html"
    page = re.sub(r"<link[^>]*https?://[^>]*>", "", shipped.read_text(encoding="utf-8"))
    (folder / "app_index.html").write_text(page, encoding="utf-8")
    return str(folder)


def _serve(server: Server, args: argparse.Namespace) -> None:
    try:
        server.serve()
    except OSError as error:
        hint = "choose another with --port"
        message = f"cannot listen on {args.host}:{args.port}: {error.strerror}"
        raise InputError("E-SERVE-LISTEN", message, hint=hint) from error
