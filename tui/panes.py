"""The pane below (or beside) the timeline: the cursor's state, one request, raw lines, findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from tui.palette import Palette
from tui.rawlog import RawFile
from tui.words import Line, fold

_UP_DOWN: list[BindingType] = [
    Binding("k", "scroll_up", "up", show=False),
    Binding("j", "scroll_down", "down", show=False),
]


def content(lines: Sequence[Line], palette: Palette) -> Content:
    """Lines of (text, role) as styled text. Nothing is read as markup."""
    styled = [Content.assemble(*[_span(text, role, palette) for text, role in line]) for line in lines]
    return Content("\n").join(styled)


def _span(text: str, role: str, palette: Palette) -> tuple[str, str] | str:
    return text, _STYLE_WORDS.get(role, "") + palette.word(role)


_STYLE_WORDS: Final = {"strong": "bold ", "unsure": "italic "}


class Lines(Widget):
    """A few styled lines of fixed height, cut at the width; showing others asks for no new layout."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._strips: list[Strip] = []
        self._shown: object = None
        self._ground = Style()

    def show(self, lines: Sequence[Line], palette: Palette) -> None:
        """Show these lines."""
        if (lines, palette) != self._shown:
            self._shown, self._ground = (lines, palette), palette.text("plain")
            self._strips = [_strip(line, palette) for line in lines]
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line."""
        strip = self._strips[y] if y < len(self._strips) else Strip([])
        return strip.crop_extend(0, self.size.width, self._ground)


def _strip(line: Line, palette: Palette) -> Strip:
    return Strip([Segment(text, palette.text(role)) for text, role in line if text])


class TextPane(ScrollView, can_focus=True):
    """Styled lines, wrapped to the width, that scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [*_UP_DOWN]
    ALLOW_SELECT = False
    DEFAULT_CSS = """
    TextPane {
        height: 1fr; padding: 0 1; overflow-x: hidden; scrollbar-size-vertical: 1; scrollbar-gutter: stable;
    }
    """

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.lines: Sequence[Line] = ()
        self._palette: Palette | None = None
        self._strips: list[Strip] = []

    def show(self, lines: Sequence[Line], palette: Palette) -> None:
        """Show these lines from the top."""
        if lines == self.lines and palette is self._palette:
            return
        self.lines, self._palette = lines, palette
        self._wrap()
        self.scroll_home(animate=False, immediate=True)
        self.refresh()

    def on_resize(self) -> None:
        """The lines break elsewhere."""
        self._wrap()

    def _wrap(self) -> None:
        if self._palette is None:
            return
        width = max(self.scrollable_content_region.width, 10)
        folded = [part for line in self.lines for part in fold(line, width)]
        self._strips = [_strip(line, self._palette) for line in folded]
        if self.virtual_size.height != len(folded):
            self.virtual_size = Size(width, len(folded))

    def render_line(self, y: int) -> Strip:
        """One wrapped line."""
        at = self.scroll_offset.y + y
        strip = self._strips[at] if at < len(self._strips) else Strip([])
        ground = self._palette.text("plain") if self._palette else None
        return strip.crop_extend(0, self.size.width, ground)


class LogPane(ScrollView, can_focus=True):
    """Raw lines of one file, read as they come into view; the lines of the chosen request are lit."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *_UP_DOWN,
        Binding("enter", "follow_line", "to the timeline", show=False),
    ]
    DEFAULT_CSS = "LogPane { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 1; }"

    class Chosen(Message):
        """A line was asked for: go to its request."""

        def __init__(self, line: int) -> None:
            super().__init__()
            self.line = line

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.file: RawFile | None = None
        self.lit: frozenset[int] = frozenset()
        self.line = 1
        self._cache: dict[int, list[str]] = {}

    def open(self, file: RawFile) -> None:
        """Show this file."""
        self.file = file
        self._cache.clear()
        self.virtual_size = Size(400, max(file.count, 1))

    def go_to(self, line: int, lit: Sequence[int] = ()) -> None:
        """Put `line` on the third row and light the lines `lit`."""
        if self.file is None:
            return
        self.line, self.lit = line, frozenset(lit)
        self.file.lines(line, 100)
        self.virtual_size = Size(400, max(self.file.count, line))
        self.call_after_refresh(self.scroll_to, y=max(0, line - 3), animate=False)
        self.refresh()

    def action_follow_line(self) -> None:
        """The timeline goes to the request of the topmost lit or visible line."""
        self.post_message(self.Chosen(self.scroll_offset.y + 3))

    def on_click(self, event: object) -> None:
        """A click goes to the request of that line."""
        self.post_message(self.Chosen(self.scroll_offset.y + getattr(event, "y", 0) + 1))

    def render_line(self, y: int) -> Strip:
        """One raw line with its number."""
        number = self.scroll_offset.y + y + 1
        text = self._text(number)
        strong = number in self.lit
        style = self.rich_style + (Style(bold=True) if strong else Style(dim=True))
        mark = "▶" if number == self.line else "│" if strong else " "
        segments = [
            Segment(f"{number:>8} {mark} " if text is not None else "", style),
            Segment(text or "", style),
        ]
        return Strip(segments).crop_extend(
            self.scroll_offset.x, self.scroll_offset.x + self.size.width, style
        )

    def _text(self, number: int) -> str | None:
        if self.file is None:
            return None
        block = (number - 1) // 64
        if block not in self._cache:
            if len(self._cache) > 32:
                self._cache.clear()
            self._cache[block] = self.file.lines(block * 64 + 1, 64)
        lines = self._cache[block]
        if len(lines) < 64:  # the file may grow
            del self._cache[block]
        place = (number - 1) % 64
        return lines[place] if place < len(lines) else None


class FindingsPane(OptionList):
    """One finding an entry; choosing one goes to its first request."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "cursor_up", "up", show=False),
        Binding("j", "cursor_down", "down", show=False),
    ]
    DEFAULT_CSS = """
    FindingsPane, FindingsPane:focus { height: 1fr; border: none; background: $background; }
    FindingsPane > .option-list--option-highlighted,
    FindingsPane:focus > .option-list--option-highlighted {
        background: $foreground 10%; text-style: none; color: $foreground;
    }
    """

    def show(self, entries: Sequence[Sequence[Line]], palette: Palette) -> None:
        """List these entries; each is a few lines."""
        chosen = self.highlighted
        self.clear_options()
        self.add_options(
            [Option(content(lines, palette), id=str(number)) for number, lines in enumerate(entries)]
        )
        if chosen is not None and chosen < len(entries):
            self.highlighted = chosen
