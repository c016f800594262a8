"""The main screen: headline, timeline, and a pane that follows the cursor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final, cast

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Footer
from textual.worker import get_current_worker

from parser.errors import Ds4scopeError
from parser.sanitise import sanitise
from tui.aside import aside
from tui.ask import Ask
from tui.dump import copy_text, save_picture
from tui.headline import headline, status, title
from tui.inspector import inspect
from tui.keys import MAIN_KEYS, bindings
from tui.moments import parse_filter, row_of_line
from tui.panes import FindingsPane, Lines, LogPane, TextPane
from tui.rawlog import Place, RawFile
from tui.session import Session
from tui.timeline import Timeline
from tui.words import Line, moment_lines, request_story, request_title

if TYPE_CHECKING:
    from tui.app import TimelineApp

_REQUEST: Final = re.compile(r"(?:request|r)? ?#?([0-9]{1,15})")
PANES = ("state", "request", "log", "findings")


class MainScreen(Screen[None]):
    """What one opens with. Everything shown is read from the app's session when it changes."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(MAIN_KEYS)]
    AUTO_FOCUS = "Timeline"
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 (as the base class has it)
        (0, "-narrow"),
        (120, "-wide"),
    ]
    DEFAULT_CSS = """
    MainScreen #top { height: 2; padding: 0 1; }
    MainScreen #middle { height: 1fr; }
    MainScreen #pane { border-top: solid $primary-muted; border-title-color: $text-muted; height: 8; }
    MainScreen.-narrow #pane.-large { height: 50%; }
    MainScreen.-wide #middle { layout: horizontal; }
    MainScreen.-wide #pane { width: 56; height: 100%; border-top: none; border-left: solid $primary-muted; }
    MainScreen.-wide #pane.-large { width: 45%; min-width: 56; }
    MainScreen #pane ContentSwitcher { height: 1fr; }
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.shown = "state"
        self._looked: tuple[int | None, Place | None] = (None, None)  # chosen row, raw line looked at there

    @property
    def scope(self) -> TimelineApp:
        """The app, typed."""
        from tui.app import TimelineApp

        return cast(TimelineApp, self.app)

    @property
    def timeline(self) -> Timeline:
        """The timeline widget."""
        return self.query_one(Timeline)

    def compose(self) -> ComposeResult:
        """Headline, timeline, pane, keys."""
        yield Lines("top")
        with Container(id="middle"):
            yield Timeline(self.session, self.scope.glyphs, id="timeline")
            with Container(id="pane"), ContentSwitcher(initial="state"):
                yield TextPane("state")
                yield TextPane("request")
                yield LogPane("log")
                yield FindingsPane(id="findings")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """First picture."""
        self.renew()

    def on_resize(self) -> None:
        """The texts depend on the width."""
        self.call_after_refresh(self.renew)

    # -- what is shown -----------------------------------------------------------------------------

    def renew(self) -> None:
        """Draw everything anew from the session."""
        self.timeline.refresh()
        self.renew_top()
        self.renew_pane()

    def renew_top(self) -> None:
        """Name and state on the first line, what matters most on the second."""
        palette = self.timeline.palette()
        width = self.size.width - 2
        lines = [status(self.scope, width), headline(self.scope, width)]
        self.query_one("#top", Lines).show(lines, palette)
        self.scope.show_title(title(self.scope))

    def renew_pane(self) -> None:
        """The pane that is open, for the cursor as it stands."""
        pane = self.query_one("#pane", Container)
        pane.border_title = self._pane_title()
        if self.shown == "state":
            self.query_one("#state", TextPane).show(self._state_lines(), self.timeline.palette())
        elif self.shown == "request":
            self.query_one("#request", TextPane).show(
                self._request_lines(pane.size.width), self.timeline.palette()
            )
        elif self.shown == "log":
            self._renew_log()
        else:
            self._renew_findings()

    def _pane_title(self) -> Content:
        at = self.session.scene.axis.long_label(self.session.at)
        name = ""
        if self.shown == "log" and len(files := self.scope.raw_log().files) > 1:
            name = sanitise(files[self.place[0]].name)
        return Content(" · ".join(filter(None, (self.shown, name.rpartition("/")[2], at))))

    def _state_lines(self) -> list[Line]:
        session, row = self.session, self.session.chosen()
        lines: list[Line] = []
        if row is not None:
            request = self.scope.request(row)
            lines = [request_title(session.scene, request, row), *request_story(session.scene, request, row)]
        elif len(session.scene.table):
            lines = [[("nobody in this lane here", "dim")]]
        return [*lines, *moment_lines(session.scene, session.moment())]

    def _request_lines(self, width: int) -> list[Line]:
        row = self.session.chosen()
        if row is None:
            return [[("no request under the cursor in this lane", "dim")]]
        request = self.scope.request(row)
        trace = self.scope.feed.trace(request.request)
        family = self.scope.feed.server.family
        return inspect(self.session.scene, request, row, width=width - 4, trace=trace, family=family)

    def _renew_log(self) -> None:
        pane = self.query_one("#log", LogPane)
        row, files = self.session.chosen(), self.scope.raw_log().files
        number, line = self.place
        file = files[min(number, len(files) - 1)]
        if pane.file is not file:
            pane.open(file)
        if file.is_far(line):
            self._count_to(file, line)
            return
        here = row is not None and number == self._source()
        pane.go_to(line, self.scope.request(row).lines if row is not None and here else ())

    def _count_to(self, file: RawFile, line: int) -> None:
        """Find a line far into a file beside the keys; it is shown once it is found."""

        def work() -> None:
            worker = get_current_worker()
            file.count_to(line, lambda: worker.is_cancelled)
            if not worker.is_cancelled:
                self.app.call_from_thread(self.renew_pane)

        self.run_worker(aside(work), group="counting", exclusive=True, exit_on_error=False)

    @property
    def place(self) -> Place:
        """The raw line one looks at: the last found or chosen one, else the first of the chosen request."""
        row = self.session.chosen()
        if self._looked[1] is not None and (row is None or row == self._looked[0]):
            return self._looked[1]
        return (0, 1) if row is None else (self._source(), self.scope.request(row).line)

    def found(self, text: str, place: Place | None) -> None:
        """A search has ended."""
        if place is None:
            self.notify(f"“{sanitise(text)}” is not there", severity="warning", markup=False)
            return
        if self.shown != "log":
            self.action_show("log")
        self.go_to_line(*place)

    def _renew_findings(self) -> None:
        pane = self.query_one(FindingsPane)
        number = self.scope.findings.at_row(self.session.chosen())
        if pane.highlighted != number and number is not None:
            with pane.prevent(FindingsPane.OptionHighlighted):
                pane.highlighted = number

    def fill_findings(self) -> None:
        """The list of findings is new."""
        self.query_one(FindingsPane).show(self.scope.findings.entries(), self.timeline.palette())

    # -- actions -----------------------------------------------------------------------------------

    def on_timeline_moved(self) -> None:
        """Cursor or window moved."""
        self.renew()

    def on_timeline_opened(self) -> None:
        """A request was double-clicked."""
        self.action_show("request")

    def action_zoom(self, factor: float) -> None:
        """Zoom around the cursor."""
        self.session.zoom(factor)
        self.timeline.changed()

    def action_zoom_all(self) -> None:
        """The whole axis."""
        self.session.whole()
        self.timeline.changed()

    def action_zoom_request(self) -> None:
        """The chosen request, with a little around it."""
        row = self.session.chosen()
        if row is None:
            self.notify("no request under the cursor", severity="warning")
            return
        begin, end = (float(self.session.scene.table[name][row]) for name in ("begin", "end"))
        margin = max(end - begin, self.session.window.cell / 100) * 0.25
        self.session.look_at(begin - margin, end + margin)
        self.session.choose(row)
        self.timeline.changed()

    def action_jump(self, kind: str, forward: bool) -> None:
        """Next or previous stop of a kind."""
        if self.session.jump(kind, forward):
            self.timeline.changed()
        else:
            self.notify(f"no {'further' if forward else 'earlier'} {kind}", timeout=2)

    def action_show(self, pane: str) -> None:
        """Open a pane; the same key again closes it."""
        self.shown = "state" if self.shown == pane and pane != "request" else pane
        self.query_one(ContentSwitcher).current = self.shown
        self.query_one("#pane").set_class(self.shown != "state", "-large")
        if self.shown == "findings":
            self.scope.want_findings()
            self.query_one(FindingsPane).focus()
        elif self.focused is None or self.focused is not self.timeline:
            self.timeline.focus()
        self.call_after_refresh(self.renew)

    def action_back(self) -> None:
        """Close the pane; with none open, stop what is running."""
        if self.shown != "state":
            self.action_show("state")
        elif not self.scope.stop_work():
            self.timeline.focus()

    def action_other_pane(self) -> None:
        """Focus between timeline and pane."""
        inside = self.query_one(f"#{self.shown}")
        (self.timeline if self.focused is inside else inside).focus()

    def action_turn_axis(self) -> None:
        """Time or order."""
        self.scope.turn_axis()

    def action_follow(self) -> None:
        """Follow the growing log, or stop."""
        self.scope.toggle_follow()

    def action_compare(self) -> None:
        """Replay beside what was observed."""
        self.scope.open_compare()

    def action_copy_screen(self) -> None:
        """Screen text to the clipboard."""
        copy_text(self.scope)

    def action_picture(self) -> None:
        """SVG of the screen."""
        save_picture(self.scope)

    def action_filter_off(self) -> None:
        """Show all."""
        self.scope.set_filter(parse_filter(""))

    def action_filter(self) -> None:
        """Ask for a filter."""
        hint = "conv=A slot=1 source=disk-text why=too-few-slots"
        self.app.push_screen(Ask("show only", hint, str(self.session.filter)), self._filtered)

    def action_search(self) -> None:
        """Ask for a text."""
        self.app.push_screen(
            Ask("search", "text in the log; n and N for the next", self.scope.searched), self._search
        )

    def action_match(self, forward: bool) -> None:
        """Next or previous match of the search."""
        self.scope.next_match(forward)

    def action_go_to(self) -> None:
        """Ask for a place."""
        several = len(self.scope.feed.wanted.inputs) > 1
        hint = f"17:53:57 · +90 · line {'NAME:233' if several else '233'} · request 12"
        self.app.push_screen(Ask("go to", hint), self._gone)

    def _filtered(self, text: str | None) -> None:
        if text is None:
            return
        try:
            self.scope.set_filter(parse_filter(text))
        except Ds4scopeError as error:
            self._complain(error)

    def _search(self, text: str | None) -> None:
        if text:
            self.scope.search(text)

    def _gone(self, text: str | None) -> None:
        if not text:
            return
        try:
            self._go(text)
        except ValueError as error:
            self.scope.complain(str(error))
        self.timeline.changed()

    def _go(self, text: str) -> None:
        word, _, number = text.strip().partition(" ")
        if word in ("line", "l"):
            self.go_to_line(*self._place_of(number))
        elif (asked := _REQUEST.fullmatch(text.strip())) is not None:
            self._go_to_request(int(asked[1]))
        else:
            self.session.put(self.session.scene.axis.parse(text))

    def _place_of(self, text: str) -> Place:
        """`LINE` of the file that one looks at, or `NAME:LINE` (of several files, the end of its name is enough)."""
        name, _, line = text.strip().rpartition(":")
        files = self.scope.raw_log().files
        fits = [n for n, file in enumerate(files) if name and file.name.endswith(name)]
        if not (line.isdecimal() and len(line) < 16) or (name and len(fits) != 1):
            raise ValueError(
                f"no single line {text.strip()!r} here: line 233, or line NAME:233 of several files"
            )
        return (fits[0] if name else self.place[0], int(line))

    def go_to_line(self, source: int, line: int) -> None:
        """Choose the request in whose stretch of the log a line lies."""
        row = row_of_line(self.session.scene, line, source)
        if row is not None:
            self.session.choose(row)
        self._looked = (self.session.chosen(), (source, line))
        self.timeline.changed()

    def _source(self) -> int:
        """The file that the chosen request stands in; lines are numbered within it."""
        row = self.session.chosen()
        return 0 if row is None else int(self.session.scene.table["file"][row])

    def _go_to_request(self, number: int) -> None:
        row = self.scope.row_of(number)
        if row is None:
            raise ValueError(f"there is no request {number}; a time is HH:MM, HH:MM:SS or +SECONDS")
        self.session.choose(row)

    def _complain(self, error: Ds4scopeError) -> None:
        hint = f" · {error.hint}" if error.hint else ""
        self.scope.complain(error.message + hint)

    def on_log_pane_chosen(self, event: LogPane.Chosen) -> None:
        """A raw line was chosen: the timeline goes there."""
        self.go_to_line(self.place[0], event.line)

    def on_option_list_option_highlighted(self, event: FindingsPane.OptionHighlighted) -> None:
        """A finding was chosen: the timeline goes to its first request."""
        rows: Sequence[int] = self.scope.findings.rows(event.option_index)
        if rows and self.focused is self.query_one(FindingsPane):
            self.session.choose(rows[0])
            self.timeline.refresh()
            self.renew_top()
