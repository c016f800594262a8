"""The application: owns the input, the session and the work in the background; screens only show them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.worker import Worker, WorkerState, get_current_worker

from parser.collector import keep_out
from parser.errors import Ds4scopeError
from parser.request import Request
from parser.sanitise import sanitise
from triage.finding import Finding
from tui.aside import aside
from tui.commands import commands
from tui.driver import ascii_driver, takes_title, title_sequence
from tui.feed import Feed, News, Wanted
from tui.findings import Findings
from tui.glyphs import UNICODE, Glyphs
from tui.headline import sums
from tui.help import Help, help_lines
from tui.keys import APP_KEYS, NO_KEY, Habits, Key, bindings
from tui.main import MainScreen
from tui.moments import Filter, mask
from tui.placing import AxisChoice
from tui.rawlog import RawLog
from tui.scene import Scene, Setting, build, refilter
from tui.session import Session
from tui.tables import Frozen, Tables
from tui.words import Line

JUDGED_AT_ONCE: Final = 5_000  # requests up to which findings are worked out unasked
PROVEN_AT_ONCE: Final = 1_000  # requests up to which the replays that prove them run unasked
#: Seconds after which a thread that reads hands over to the one that draws; Python's own 5 ms add up over a frame.
_TURN_S: Final = 0.002


_OVER: Final = (WorkerState.SUCCESS, WorkerState.ERROR, WorkerState.CANCELLED)


class TimelineApp(App[None]):
    """`ds4scope tui`. `failure` holds the error that ended it, for the command line to show."""

    TITLE = "ds4scope"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings(APP_KEYS),
        Binding("ctrl+p", "command_palette", "commands", show=False),
    ]
    CSS = "Toast { max-width: 70%; }"

    class Fresh(Message):
        """There is more of the input."""

        def __init__(self, feed: Feed, news: News) -> None:
            super().__init__()
            self.feed, self.news = feed, news

    def __init__(
        self,
        wanted: Wanted,
        *,
        follow: bool = False,
        habits: Habits | None = None,
        glyphs: Glyphs = UNICODE,
    ) -> None:
        super().__init__()
        if glyphs is not UNICODE:
            self.driver_class = ascii_driver(self.driver_class)
        self.feed = Feed(wanted, following=follow)
        self.habits = habits or Habits()
        self.glyphs = glyphs
        self.frozen: Frozen = Tables().freeze()
        self.session = Session(build(self.frozen, Setting()))
        self.findings = Findings()
        self.failure: Ds4scopeError | None = None
        self.searched = ""
        self.work = ""
        self.share: float | None = None
        self.closed = 0
        self.catching_up = False
        self._book = self.feed.book
        self.unfinished: tuple[Request, ...] = ()
        self.reading = True
        self._titled = ""
        self._whole: Feed | None = None  # what was read to its end
        self._worker: Worker[Any] | None = None
        self._reader: Worker[Any] | None = None
        self._raw: RawLog | None = None
        self._sums: tuple[object, Line] = (None, [])
        self._held: tuple[tuple[object, ...], Scene | None] = (), None  # the scene before the axis was turned

    # -- start and end -----------------------------------------------------------------------------

    def get_default_screen(self) -> Screen[Any]:
        """The main screen is the only one that always is."""
        return MainScreen(self.session)

    @property
    def main(self) -> MainScreen:
        """The main screen, typed."""
        screen = self.screen_stack[0]
        assert isinstance(screen, MainScreen)
        return screen

    def on_mount(self) -> None:
        """Habits first, then the input."""
        sys.setswitchinterval(_TURN_S)
        if self.habits.theme in self.available_themes:
            self.theme = self.habits.theme
        self.set_keymap(dict(self.habits.keys))
        self.title = f"ds4scope {sanitise(self.feed.wanted.title())}"
        self._start_reading()

    def on_unmount(self) -> None:
        """Files are given back."""
        self._book.close()
        self.feed.book.close()
        self._close_raw()

    def _close_raw(self) -> None:
        if self._raw is not None:
            self._raw.close()
        self._raw = None

    def _start_reading(self) -> None:
        self._reader = self.run_worker(
            aside(self._read), group="reading", exclusive=True, exit_on_error=False
        )

    def _read(self) -> None:
        worker = get_current_worker()
        feed = self.feed
        feed.run(lambda news: void(self.post_message(self.Fresh(feed, news))), lambda: worker.is_cancelled)

    # -- work in the background --------------------------------------------------------------------

    def start_work(self, name: str, work: Callable[[], None]) -> None:
        """Run `work` in a thread; one at a time, a new one cancels the old."""
        self.work, self.share = name, None
        self._worker = self.run_worker(
            aside(work), name=name, group="work", exclusive=True, exit_on_error=False
        )
        self.main.renew_top()

    def stop_work(self) -> bool:
        """Ask what runs to stop: a replay or search first, else the reading. False where nothing runs."""
        if self._worker is not None and not self._worker.is_finished:
            self._worker.cancel()
            self.notify(f"{self.work} stopped")
            return True
        if self.reading and self._reader is not None:
            self._reader.cancel()
            self.reading = False
            self.notify("reading stopped: what follows in the log is not shown")
            self.main.renew_top()
            return True
        return False

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Work that failed says why; what cannot be read at all ends the program."""
        if event.worker not in (self._worker, self._reader) or event.state not in _OVER:
            return
        if not self.is_running:  # on the way out the screen is gone, and whatever still ran was cancelled
            return
        if event.worker is self._reader:
            name, self.reading = "reading", False
        else:
            name, self.work = self.work, ""
        error = event.worker.error if event.state is WorkerState.ERROR else None
        if isinstance(error, Ds4scopeError):
            self._failed(name, error)
        elif error is not None:
            raise error
        self.main.renew_top()

    def _failed(self, name: str, error: Ds4scopeError) -> None:
        if name == "reading" and not len(self.session.scene.table):
            self.failure = error
            self.exit(return_code=error.exit_code)
            return
        hint = f"\n{error.hint}" if error.hint else ""
        self.complain(f"{name}: {error.message}{hint}")

    def complain(self, text: str) -> None:
        """Say what did not work. The text may come from anywhere: a plug-in's error, a log."""
        self.notify("\n".join(map(sanitise, text.split("\n"))), severity="error", markup=False)

    def on_timeline_app_fresh(self, event: Fresh) -> None:
        """Take the newer scene."""
        news = event.news
        if not self.is_running or event.feed is not self.feed or (self.catching_up and not news.live):
            return
        keep_out()
        if self.catching_up:
            self._close_raw()
        self.catching_up, self._book = False, self.feed.book
        self.frozen, self.share, self.reading = news.frozen, news.share, not news.live
        self.closed, self.unfinished = news.closed, news.unfinished
        self._show(news)
        if self.feed.following:
            self.raw_log().reach(self.feed.sources)  # while the file that was read is still to be had
        if news.live and self._whole is not event.feed:  # its thread's end may be heard of before this
            self._whole = event.feed
            self._read_whole()

    def _catch_up(self) -> None:
        """Read the log again, this time to go on at its end; what is shown stays until then."""
        self.catching_up, self._book = True, self.feed.book
        self.feed = Feed(self.feed.wanted, axis=self.feed.axis, following=True)
        self._start_reading()

    def _read_whole(self) -> None:
        """All that was there is read."""
        if not len(self.frozen.requests):
            self.notify("no request in this input", severity="warning")
        if len(self.frozen.requests) <= JUDGED_AT_ONCE:
            self.want_findings()

    def _show(self, news: News) -> None:
        self.session.show(news.scene)
        if self.session.filter:
            self.set_filter(self.session.filter)
        self.main.renew()

    def show_title(self, words: str) -> None:
        """The terminal's title: which log, and how it stands."""
        if words != self._titled and self._driver is not None and takes_title():
            self._titled = words
            self._driver.write(title_sequence(words))

    def sums(self) -> Line:
        """The sums of the scene that is shown, worked out once."""
        scene = self.session.scene
        if self._sums[0] is not scene:
            self._sums = scene, sums(scene)
        return self._sums[1]

    # -- what screens ask for ----------------------------------------------------------------------

    def request(self, row: int) -> Request:
        """The request of a row of the scene."""
        return self._book[row] if row < self.closed else self.unfinished[row - self.closed]

    def raw_log(self) -> RawLog:
        """The files as they are."""
        if self._raw is None:
            self._raw = RawLog(self.feed.wanted.inputs)
        return self._raw

    def set_filter(self, wanted: Filter) -> None:
        """Show only what passes. Raises UsageError for names that this log does not have."""
        scene = self.session.scene
        keep = mask(scene, wanted, self.findings.mechanisms())
        self.session.filter = wanted
        self.session.show(refilter(scene, self.frozen, keep))
        self.main.renew()

    def turn_axis(self) -> None:
        """From time to order and back."""
        kind = self.session.scene.axis.kind
        self.feed.axis = "order" if kind == "time" else "time"
        self.session.show(self._turned(self.session.scene, self.feed.axis))
        if self.session.scene.axis.kind == kind:
            self.notify("this log has no clock", severity="warning")
        self.main.renew()

    def _turned(self, scene: Scene, axis: AxisChoice) -> Scene:
        """The same requests on the other axis; to turn back costs nothing, as long as no more was read."""
        (seen, held), now = self._held, (self.frozen, self.session.filter, self.findings)
        self._held = now, scene
        if held and held.axis.kind == axis and all(old is new for old, new in zip(seen, now, strict=True)):
            return held
        made = build(self.frozen, scene.setting, axis=axis)
        if not self.session.filter:
            return made
        return refilter(made, self.frozen, mask(made, self.session.filter, self.findings.mechanisms()))

    def want_findings(self) -> None:
        """Have the findings worked out, if they are not yet."""
        if self.findings.state == "none yet" and not self.work:
            self.findings = replace(self.findings, state="being worked out …")
            self.start_work("judging", self._judge)

    def _judge(self) -> None:
        """Findings first, then the replays that prove them."""
        from triage.triage import triage

        worker = get_current_worker()
        if self.feed.skims:
            self._judge_skimmed()
            return
        for counterfactuals in (False, True):
            reading = self.feed.whole_reading(lambda: worker.is_cancelled)
            if reading is None or (counterfactuals and len(reading.requests) > PROVEN_AT_ONCE):
                break
            report = triage(reading, counterfactuals=counterfactuals)
            self.call_from_thread(self._judged, report.findings)

    def _judge_skimmed(self) -> None:
        """A long log is judged as it is read: by its numbers, stretch by stretch."""
        from triage.long import triage_inputs

        wanted = self.feed.wanted
        report = triage_inputs(wanted.inputs, year=wanted.year)
        self.call_from_thread(self._judged, report.findings)

    def _judged(self, found: Sequence[Finding]) -> None:
        self.findings = Findings.of(found, self.row_of)
        self.session.mark("finding", self.findings.all_rows())
        self.main.fill_findings()
        self.main.renew()

    def row_of(self, number: int) -> int | None:
        """Row of a request number, unfinished ones included."""
        row = self._book.row_of(number)
        if row is not None:
            return row
        places = (place for place, request in enumerate(self.unfinished) if request.request == number)
        found = next(places, None)
        return None if found is None else self.closed + found

    def toggle_follow(self) -> None:
        """Follow the growing log, or stop."""
        self.feed.following = not self.feed.following
        if self.feed.following and (self.feed.skims or self._reader is None or self._reader.is_finished):
            self._catch_up()
        self.main.renew_top()

    def search(self, text: str) -> None:
        """Find `text` in the raw lines from the chosen one on."""
        self.searched = text
        self.next_match(True)

    def next_match(self, forward: bool) -> None:
        """The next line that holds the searched text, around the end if need be."""
        if not self.searched:
            self.notify("nothing searched yet: press / first")
            return
        log, place = self.raw_log(), self.main.place
        self.start_work("searching", lambda: self._find(log, self.searched, place, forward))

    def _find(self, log: RawLog, text: str, place: tuple[int, int], forward: bool) -> None:
        worker = get_current_worker()
        look = log.find if forward else log.find_back
        found = look(text, place, lambda: worker.is_cancelled)
        if not worker.is_cancelled:
            self.call_from_thread(self.main.found, text, found)

    def open_compare(self) -> None:
        """Choose a policy and replay it."""
        from tui.contest import Policies

        self.push_screen(Policies(), self._compare)

    def _compare(self, policy: str | None) -> None:
        if policy:
            self.start_work("replaying", lambda: self._replay(policy))

    def _replay(self, policy: str) -> None:
        from tui.contest import Contest
        from tui.versus import parse_policy, versus

        worker = get_current_worker()
        options = parse_policy(policy)
        reading = self.feed.whole_reading(lambda: worker.is_cancelled)
        made = versus(reading, options, policy, lambda: worker.is_cancelled) if reading else None
        if made is not None and not worker.is_cancelled:
            self.call_from_thread(self.push_screen, Contest(made, self.session.scene.setting))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Every key of the screen is a command too, and the theme."""
        return commands(self, screen)

    def action_help_quit(self) -> None:
        """ctrl+c, from habit."""
        self.notify(f"press {self.shown_key(APP_KEYS[-1])} to leave", timeout=3)

    def action_help(self) -> None:
        """The help page."""
        self.push_screen(Help(help_lines(self.glyphs, self.shown_key), self.main.timeline.palette()))

    def shown_key(self, key: Key) -> str:
        """The keys of `key` as they are bound now, for people."""
        keys = self.habits.keys.get(key.id, key.keys).split(",")
        if keys == [NO_KEY]:
            return "–"
        return " ".join(self.get_key_display(Binding(one.strip(), "")) for one in keys)


def void(_: object) -> None:
    """Drop a result."""
