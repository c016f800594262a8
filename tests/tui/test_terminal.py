"""The real command in a real (pseudo) terminal, its bytes read by a terminal emulator.

A log holds model output: whatever stands in it, the terminal shows text and does nothing else.
"""

import fcntl
import os
import pty
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress

import pyte
import pytest

from ds4scope.cli import main

HOSTILE = (
    "1130 17:52:23 ds4-server: chat ctx=0..1403:1403 TOOLS prompt start\n"
    "1130 17:52:24 ds4-server: chat ctx=0..1403:1403 TOOLS prompt done 0.212s\n"
    "1130 17:52:25 ds4-server: chat ctx=0..1403:1403 gen=9 TOOLS finish=error "
    'error="boo\x1b]0;OWNED\x07\x1b[2J\x1b[31m[bold red]red[/] \u202egnp.exe \x9b31m\x08\x08 [@click=app.quit]x[/]" 0.610s\n'
    '\x1b[2J\x1b[H\x1b]2;OWNED\x07\x1b]52;c;T1dORUQ=\x07\x1bP$q"p\x1b\\ [link=file:///etc/passwd]prose[/link]\n'
    "1130 17:52:26 ds4-server: live kv cache miss live=1412 prompt=900 common=14 reason=token-mismatch\x1b[?1049l\n"
    "1130 17:52:26 ds4-server: chat ctx=0..900:900 prompt start\n"
    "1130 17:52:26 ds4-server: chat ctx=0..900:900 prompt done 0.140s\n"
    "1130 17:52:27 ds4-server: chat ctx=0..900:900 gen=5 finish=stop 0.210s\n"
)


class Terminal:
    """A program on a pseudo terminal of 100x30; `wait_for` reads until a text is on the screen."""

    def __init__(self, *arguments, env=None, command=None):
        self.screen = pyte.Screen(100, 30)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.master, slave = pty.openpty()
        size = struct.pack("HHHH", 30, 100, 0, 0)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
        settings = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"} | (env or {})
        command = command or [sys.executable, "-m", "ds4scope", "tui", *arguments]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=settings, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # a session with this as its terminal
        )  # fmt: skip
        os.close(slave)

    def text(self):
        return "\n".join(self.screen.display)

    def wait_for(self, text, seconds=90):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    data = os.read(self.master, 65536)
                except OSError:
                    break
                self.raw += data
                self.stream.feed(data.replace(b"\x1b[>", b"\x1b[?"))  # pyte does not know this introducer
            if text in self.text():
                return
        raise AssertionError(f"{text!r} never came:\n{self.text()}")

    def ended(self, seconds=60):
        """Its exit status; what it still writes is read on, or it could not end."""
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self.master], [], [], 0.05)[0]:
                with suppress(OSError):
                    self.raw += os.read(self.master, 65536)
        return self.process.poll()

    def press(self, keys):
        os.write(self.master, keys.encode())

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal():
    opened = []

    def start(*arguments, **more):
        opened.append(Terminal(*arguments, **more))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_hostile_log_text_is_shown_and_does_nothing(terminal, tmp_path):
    log = tmp_path / "hostile\x1b]0;OWNED\x07[red].log"
    log.write_bytes(HOSTILE.encode("utf-8", "surrogateescape"))
    shown = terminal(str(log))
    shown.wait_for("2 requests")
    shown.press("\r")  # inspector: the error text
    shown.wait_for("failed: boo")
    assert r"\e]0;OWNED\x07" in shown.text()
    assert "[bold red]red[/]" in shown.text()
    shown.press("o")  # raw lines
    shown.wait_for(r"\eP$q")
    own = shown.raw.replace(b"\x1b]0;ds4scope", b"")
    assert b"OWNED\x07" not in own
    assert b"\x1b]52" not in own
    assert "\u202e".encode() not in shown.raw
    assert b"\x1b[2J\x1b[H\x1b]2" not in shown.raw
    assert shown.screen.title.startswith(r"ds4scope hostile\e]0;OWNED")  # as text, in the title that is ours
    shown.press("q")
    assert shown.ended() == 0


def test_no_color_leaves_no_hue(terminal, three_chats):
    """Every colour that is set is a grey; what was read so far may end within a code."""
    import re

    shown = terminal(str(three_chats), env={"NO_COLOR": "1"})
    shown.wait_for("24 requests")
    shown.wait_for("⇅")
    colours = re.findall(rb"[34]8;2;(\d+);(\d+);(\d+)[;m]", shown.raw)
    assert colours
    assert all(red == green == blue for red, green, blue in colours)


@pytest.mark.parametrize("how", ["cat {log} | {tui} -", "{tui} <(cat {log})"])
def test_a_log_from_a_pipe_is_kept_for_the_time_it_is_shown(terminal, three_chats, how):
    """The keys come from the terminal all the same, and the raw lines can be gone back to."""
    tui = shlex.join([sys.executable, "-m", "ds4scope", "tui"])
    script = how.format(log=shlex.quote(str(three_chats)), tui=tui)
    shown = terminal(command=["bash", "-c", script])
    shown.wait_for("24 requests")
    shown.press("mo")
    shown.wait_for("live kv cache miss")
    shown.press("q")
    assert shown.ended() == 0


def test_leaving_ends_the_program_while_something_is_worked_out(terminal, three_chats):
    shown = terminal(str(three_chats))
    shown.wait_for("24 requests")
    shown.press("moq")  # findings are being proven meanwhile
    assert shown.ended() == 0
    assert shown.raw.endswith(b"\x1b[23;2t")  # the title of before


def test_the_title_tells_the_state_and_is_given_back(terminal, three_chats):
    shown = terminal(str(three_chats), "-f")
    shown.wait_for("24 requests")
    shown.wait_for("following")
    assert shown.screen.title.startswith("ds4scope server.log · 24 requests · ")
    assert "following" in shown.screen.title
    assert shown.raw.count(b"\x1b[22;2t") == 1
    shown.press("q")
    assert shown.ended() == 0


@pytest.mark.parametrize("how", [("--ascii", {}), ("", {"PYTHONIOENCODING": "latin-1"})])
def test_ascii_is_all_there_is(terminal, three_chats, how):
    option, env = how
    shown = terminal(*filter(None, (option, str(three_chats))), env={"NO_COLOR": "1", **env})
    shown.wait_for("24 requests")
    shown.wait_for("slot 0")
    shown.wait_for("%")
    shown.press("?")
    shown.wait_for("What you see")
    assert shown.raw.isascii()
    assert "\\u" not in shown.text()
    assert "\\x" not in shown.text()


@pytest.mark.parametrize(("env", "args", "said"), [
    ({"TERM": "dumb"}, (), "cannot draw on this terminal"),
    ({}, ("--theme", "nosuch"), "no theme is called 'nosuch'"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_said_before_the_screen_is_taken(terminal, three_chats, env, args, said):
    shown = terminal(*args, str(three_chats), env=env)
    shown.wait_for(said)
    assert shown.ended() == 2
    assert b"\x1b[?1049h" not in shown.raw


def test_without_a_terminal_it_says_what_to_do(three_chats, capsys):
    assert main(["tui", str(three_chats)]) == 2
    said = capsys.readouterr().err
    assert "needs a terminal" in said
    assert "ds4scope serve" in said


def test_an_input_that_is_missing_is_said_before_the_screen_is_taken(terminal, tmp_path):
    shown = terminal(str(tmp_path / "none.log"))
    shown.wait_for("check the name; - reads standard input")
    assert shown.ended() == 3
    assert b"\x1b[?1049h" not in shown.raw
