"""The comparison screen: what was observed above, what another policy would have done below, on one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from parser.errors import Ds4scopeError
from tui.keys import COMPARE_KEYS, bindings
from tui.panes import Lines
from tui.placing import AxisChoice
from tui.scene import Scene, Setting, build
from tui.session import Session
from tui.timeline import Timeline
from tui.verdict import decision_lines, totals_lines
from tui.versus import Side, Versus, choices, parse_policy

if TYPE_CHECKING:
    from tui.app import TimelineApp


class Policies(ModalScreen[str | None]):
    """Choose a profile or policy from the list, or type one; gives the text, or None when left."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "leave"),
        Binding("down", "list", "list", show=False),
    ]
    AUTO_FOCUS = "Input"
    DEFAULT_CSS = """
    Policies { align: center middle; }
    Policies Vertical { width: 76; height: 80%; border: round $primary; background: $surface; }
    Policies Static { height: auto; padding: 0 1; color: $text-muted; }
    Policies Input { height: 1; border: none; padding: 0 1; }
    Policies Input:focus { border: none; }
    Policies OptionList, Policies OptionList:focus { height: 1fr; border: none; background: $surface; }
    """

    def compose(self) -> ComposeResult:
        """A line to type in, and what there is."""
        with Vertical() as frame:
            frame.border_title = "replay this log under"
            yield Static(
                "Type, or choose below: scheduler=lru slots=3 · FILE.py:Class · several at once", markup=False
            )
            yield Input(placeholder="ds4-2026-09-reuse slots=3", compact=True)
            yield OptionList(
                *[Option(f"{name:<26} {words}", id=name) for name, words in choices()], markup=False
            )

    def action_list(self) -> None:
        """From the line to the list."""
        self.query_one(OptionList).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Typed, and checked before the replay starts."""
        try:
            parse_policy(event.value)
        except Ds4scopeError as error:
            cast("TimelineApp", self.app).complain(f"{error.message}\n{error.hint or ''}")
            return
        self.dismiss(event.value)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Chosen from the list."""
        self.dismiss(event.option_id)

    def action_leave(self) -> None:
        """Nothing is wanted."""
        self.dismiss(None)


class Contest(Screen[None]):
    """Two timelines that move together, totals on top, one decision at a time below."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(COMPARE_KEYS)]
    AUTO_FOCUS = ""  # the keys are the screen's; None would focus the first timeline
    DEFAULT_CSS = """
    Contest .lanes { height: 1fr; }
    Contest #totals { height: 7; padding: 0 1; }
    Contest #decision { height: 5; padding: 0 1; border-top: solid $primary-muted; }
    """

    def __init__(self, versus: Versus, setting: Setting, axis: AxisChoice = "auto") -> None:
        super().__init__()
        self.versus, self.setting, self.axis = versus, setting, axis
        self.number = versus.numbers[0] if versus.numbers else 0
        self.seen = Session(self._scene(versus.observed))
        self.other = Session(self._scene(versus.other))
        self._whole()

    @property
    def scope(self) -> TimelineApp:
        """The app, typed."""
        from tui.app import TimelineApp

        return cast(TimelineApp, self.app)

    def compose(self) -> ComposeResult:
        """Totals, two timelines, one decision."""
        yield Lines("totals")
        glyphs = self.scope.glyphs
        yield Timeline(self.seen, glyphs, id="seen", classes="lanes", title="observed", lanes_only=True)
        yield Timeline(self.other, glyphs, id="other", classes="lanes", title="replayed", lanes_only=True)
        yield Lines("decision")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Totals stand; the first request that differs is where one wants to begin."""
        for timeline in self.query(Timeline):
            timeline.can_focus = False
            timeline.different = self._rows_that_differ(timeline.session.scene)
        self._go(min(self.versus.different, default=self.number))

    def _scene(self, side: Side) -> Scene:
        from dataclasses import replace

        setting = replace(self.setting, slots=side.slots)
        return build(side.frozen, setting, axis=self.axis)

    def _whole(self) -> None:
        """One axis for both: from the first to the last moment of either."""
        lo = min(session.scene.axis.lo for session in (self.seen, self.other))
        hi = max(session.scene.axis.hi for session in (self.seen, self.other))
        for session in (self.seen, self.other):
            session.stretch(lo, hi)

    def _rows_that_differ(self, scene: Scene) -> frozenset[int]:
        numbers = scene.table["request"].to_list()
        return frozenset(row for row, number in enumerate(numbers) if number in self.versus.different)

    def _go(self, number: int) -> None:
        """Show the decision for one request in both."""
        self.number = number
        for session in (self.seen, self.other):
            rows = session.scene.table.filter(session.scene.table["request"] == number)["row"].to_list()
            if rows:
                session.choose(int(rows[0]))
        lo = min(self.seen.lo, self.other.lo)
        for session in (self.seen, self.other):
            session.lo, session.hi = lo, lo + (session.hi - session.lo)
        self._renew()

    def _renew(self) -> None:
        for timeline in self.query(Timeline):
            timeline.refresh()
        palette = self.query_one("#seen", Timeline).palette()
        width = self.size.width - 2
        self.query_one("#totals", Lines).show(totals_lines(self.versus), palette)
        lines = decision_lines(self.versus, self.number, width)
        self.query_one("#decision", Lines).show(lines, palette)

    # -- actions -----------------------------------------------------------------------------------

    def action_decide(self, by: int) -> None:
        """The next or previous decision."""
        numbers = self.versus.numbers
        if self.number in numbers:
            place = numbers.index(self.number) + by
            self._go(numbers[min(max(place, 0), len(numbers) - 1)])

    def action_differ(self, forward: bool) -> None:
        """The next or previous decision that differs."""
        after = sorted(n for n in self.versus.different if (n > self.number if forward else n < self.number))
        if after:
            self._go(after[0] if forward else after[-1])
        else:
            self.notify(f"no {'further' if forward else 'earlier'} difference", timeout=2)

    def action_zoom(self, factor: float) -> None:
        """Both zoom alike."""
        self.seen.zoom(factor)
        self.other.lo, self.other.hi = self.seen.lo, self.seen.hi
        self._renew()

    def action_zoom_all(self) -> None:
        """Both whole."""
        self._whole()
        self._renew()

    def action_turn_axis(self) -> None:
        """Time or order of requests."""
        self.axis = "time" if self.seen.scene.axis.kind == "order" else "order"
        for session, side in ((self.seen, self.versus.observed), (self.other, self.versus.other)):
            session.show(self._scene(side))
        self._whole()
        self._go(self.number)

    def action_policy(self) -> None:
        """Another policy."""
        self.dismiss(None)
        self.scope.open_compare()

    def action_leave(self) -> None:
        """Back to the log."""
        self.dismiss(None)

    def on_timeline_moved(self, event: Timeline.Moved) -> None:
        """The mouse moved one of the two: the other goes along."""
        moved = event.timeline.session
        still = self.other if moved is self.seen else self.seen
        still.lo, still.hi = moved.lo, moved.hi
        row = moved.chosen()
        if row is not None:
            self.number = int(moved.scene.table["request"][row])
        self._renew()
