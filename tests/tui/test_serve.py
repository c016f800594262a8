"""`ds4scope serve`: the command each page runs, who may ask, and what is said where it cannot be."""

import asyncio
import shlex
import sys

import pytest

from ds4scope.cli import build_parser, main
from ds4scope.commands.serve import command_of, make_server


def arguments(*words):
    return build_parser("serve").parse_args(["serve", *words])


def test_each_page_runs_the_same_timeline():
    args = arguments("a b.log", "$(x).log", "--trace", "t;rm", "--since", "17:52", "--ascii", "-f")
    words = shlex.split(command_of(args))
    assert words[:4] == [sys.executable, "-m", "ds4scope", "tui"]
    again = build_parser("tui").parse_args(words[3:])
    for name in ("input", "trace", "since", "ascii", "follow"):
        assert getattr(again, name) == getattr(args, name)


def test_standard_input_and_missing_files_are_refused(capsys, tmp_path):
    assert main(["serve", "-"]) == 2
    assert "cannot read standard input" in capsys.readouterr().err
    assert main(["serve", str(tmp_path / "none.log")]) == 3


def test_without_the_extra_it_says_how_to_get_it(monkeypatch, capsys, three_chats):
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    assert main(["serve", str(three_chats)]) == 2
    assert "pip install 'ds4scope[serve]'" in capsys.readouterr().err


@pytest.fixture
def server(tmp_path):
    return make_server("true", "localhost", 8017, tmp_path)


async def ask(server, **headers):
    """GET / of the server as a client with these headers sees it: (status, text)."""
    from aiohttp.test_utils import TestClient, TestServer

    async with TestClient(TestServer(await server._make_app())) as client:
        answer = await client.get("/", headers={"Host": "localhost:8017", **headers})
        return answer.status, await answer.text()


async def test_its_own_page_asks_nobody_else(server):
    status, page = await ask(server)
    assert status == 200
    assert "textual.js" in page
    assert "googleapis" not in page


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://elsewhere.example"}, {"Host": "rebound.example:8017"}, {"Origin": "null"}]
)
async def test_pages_of_other_sites_get_nothing(server, headers):
    assert (await ask(server, **headers))[0] == 403


async def test_its_own_origin_may_ask(server):
    assert (await ask(server, Origin="http://localhost:8017"))[0] == 200
    await asyncio.sleep(0)
