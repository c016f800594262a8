"""The timeline widget: draws the visible cells by the line API, and moves the session's cursor and window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui.glyphs import UNICODE, Glyphs
from tui.keys import TIMELINE_KEYS, bindings
from tui.layout import GUTTER, first_lane, plan
from tui.palette import Palette
from tui.picture import Ink, Row, paint
from tui.session import Session


class Timeline(Widget, can_focus=True):
    """Lanes, flows and curves of one scene. Reads its `session`; `refresh()` after changing that is all it
    needs."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(TIMELINE_KEYS)]
    ALLOW_SELECT = False
    DEFAULT_CSS = "Timeline { height: 1fr; width: 1fr; }"

    class Moved(Message):
        """The cursor, the window or the chosen lane changed."""

        def __init__(self, timeline: Timeline) -> None:
            super().__init__()
            self.timeline = timeline

    class Opened(Message):
        """A request was asked for (double click)."""

    def __init__(
        self,
        session: Session,
        glyphs: Glyphs = UNICODE,
        *,
        id: str | None = None,
        classes: str | None = None,
        title: str = "",
        lanes_only: bool = False,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.session, self.glyphs, self.lanes_only = session, glyphs, lanes_only
        self.title = title
        self.different: frozenset[int] = frozenset()
        self.rows: list[Row] = []
        self._runs: list[list[Segment]] = []
        self._lit = Style()
        self._drawn: tuple[object, ...] = ()
        self._palette: tuple[str, Palette] | None = None
        self._pressed: int | None = None  # the column where the button is held down
        self._dragged = False

    # -- drawing -----------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """One row: gutter and cells, with the cursor's column lit."""
        if y == 0 or not self._runs:
            self._draw()
        if y >= len(self.rows):
            return Strip.blank(self.size.width, self.palette().style(("plain", -1)))
        return Strip([self._label(y), *self._with_cursor(y)], GUTTER + self.session.width)

    def palette(self) -> Palette:
        """The palette of the theme in use."""
        theme = self.app.theme
        if self._palette is None or self._palette[0] != theme:
            dark = self.app.current_theme.dark
            self._palette = theme, Palette(dark, self.background_colors[1].hex6)
        return self._palette[1]

    def _draw(self) -> None:
        """Paint anew if what is shown has changed since the last time."""
        session = self.session
        session.resize(self.size.width - GUTTER)
        lanes = len(session.scene.lanes)
        session.top_lane = first_lane(lanes, self.size.height, session.top_lane, session.lane)
        window = (session.lo, session.hi, self.size, session.top_lane)
        key = (id(session.scene), *window, self.app.theme, self.different)
        if key == self._drawn:
            return
        session.slices = plan(session.scene, self.size.height, session.top_lane, lanes_only=self.lanes_only)
        self.rows = paint(
            session.scene, session.window, session.slices, self.glyphs, self.different, self.title
        )
        palette = self.palette()
        self._runs = [_runs(row.text, row.inks, palette) for row in self.rows]
        self._lit = Style(bgcolor=self.app.theme_variables.get("surface-lighten-2", "#444444"))
        self._drawn = key

    def _with_cursor(self, y: int) -> list[Segment]:
        """The row's segments, the cell under the cursor lit."""
        row, runs = self.rows[y], self._runs[y]
        column = self.session.window.column(self.session.at)
        if not 0 <= column < self.session.width:
            return runs
        number, begin = 0, 0
        while begin + len(runs[number].text) <= column:
            begin += len(runs[number].text)
            number += 1
        text, style, _ = runs[number]
        cut = column - begin
        parts = [
            Segment(text[:cut], style),
            self._cell(row, text[cut], style),
            Segment(text[cut + 1 :], style),
        ]
        return runs[:number] + [part for part in parts if part.text] + runs[number + 1 :]

    def _cell(self, row: Row, char: str, style: Style | None) -> Segment:
        """The cell under the cursor: a mark on the axis, inverse where the chosen lane works."""
        palette = self.palette()
        if row.kind == "axis":
            return Segment(self.glyphs.cursor, palette.style(("letter", -1)))
        here = row.lane == self.session.lane and row.kind == "work"
        lit = (style or Style()) + self._lit
        return Segment(char, lit + Style(reverse=True) if here else lit)

    def _label(self, y: int) -> Segment:
        row = self.rows[y]
        chosen = row.lane >= 0 and row.lane == self.session.lane
        first = y == 0 or self.rows[y - 1].lane != row.lane or row.lane < 0
        mark = "›" if self.glyphs is UNICODE else ">"
        text = (mark if chosen and first else " ") + row.label + (self._beyond() if y == 0 else "")
        style = self.palette().style(("letter" if chosen else "dim", -1))
        return Segment(f"{text[: GUTTER - 1]:<{GUTTER}}", style)

    def _beyond(self) -> str:
        """How many lanes are out of sight above and below."""
        shown = [piece.lane for piece in self.session.slices if piece.lane >= 0]
        above, below = (shown[0], len(self.session.scene.lanes) - 1 - shown[-1]) if shown else (0, 0)
        up, down = ("↑", "↓") if self.glyphs is UNICODE else ("^", "v")
        return (f" {up}{above}" if above else "") + (f" {down}{below}" if below else "")

    # -- moving ------------------------------------------------------------------------------------

    def action_move(self, cells: int) -> None:
        """Cursor by cells."""
        self.session.move(cells)
        self.changed()

    def action_lane(self, by: int) -> None:
        """Another lane."""
        self.session.change_lane(by)
        self.changed()

    def action_pan(self, windows: float) -> None:
        """Cursor and window by a share of the window's width."""
        self.session.page(windows)
        self.changed()

    def action_edge(self, which: str) -> None:
        """Cursor to the first or last moment."""
        self.session.edge(which == "end")
        self.changed()

    def changed(self) -> None:
        """Tell the screen, which draws this and the details anew in one frame."""
        self.post_message(self.Moved(self))

    # -- mouse -------------------------------------------------------------------------------------

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """A press starts a drag; the click itself comes with the release."""
        self.focus()
        self.capture_mouse()
        self._pressed, self._dragged = event.x, False

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """A drag moves the window."""
        if self._pressed is None or event.x == self._pressed:
            return
        self.session.pan(self._pressed - event.x)
        self._pressed, self._dragged = event.x, True
        self.changed()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """The drag is over."""
        self.release_mouse()
        self._pressed = None

    def on_click(self, event: events.Click) -> None:
        """A click puts the cursor, a double click opens the request; the end of a drag does neither."""
        if self._dragged:
            self._dragged = False
            return
        lane = self.rows[event.y].lane if 0 <= event.y < len(self.rows) else -1
        if event.x >= GUTTER:
            self.session.point(event.x - GUTTER, lane if lane >= 0 else None)
        elif lane >= 0:
            self.session.lane = lane
        self.changed()
        if event.chain == 2:
            self.post_message(self.Opened())

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Wheel: zoom in under the pointer; with shift or ctrl pan."""
        self._wheel(event, -1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Wheel: zoom out; with shift or ctrl pan."""
        self._wheel(event, 1)

    def on_mouse_scroll_left(self, event: events.MouseScrollLeft) -> None:
        """Sideways wheel: pan."""
        self._pan(-0.1)

    def on_mouse_scroll_right(self, event: events.MouseScrollRight) -> None:
        """Sideways wheel: pan."""
        self._pan(0.1)

    def _pan(self, windows: float) -> None:
        self.session.pan(windows * self.session.width)
        self.changed()

    def _wheel(self, event: events.MouseEvent, direction: int) -> None:
        event.stop()
        if event.shift or event.ctrl:
            self._pan(0.1 * direction)
            return
        window = self.session.window
        around = window.lo + (event.x - GUTTER + 0.5) * window.cell
        self.session.zoom(1.25**direction, min(max(around, window.lo), window.hi))
        self.changed()


def _runs(text: str, inks: Sequence[Ink], palette: Palette) -> list[Segment]:
    """A row's cells as segments, equal inks joined into one."""
    segments, begin = [], 0
    for end in range(1, len(text) + 1):
        if end == len(text) or inks[end] != inks[begin]:
            segments.append(Segment(text[begin:end], palette.style(inks[begin])))
            begin = end
    return segments
