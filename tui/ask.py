"""One line of input at the bottom of the screen: search, go to, filter."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class Ask(ModalScreen[str | None]):
    """Asks for one line; gives None when left. The timeline stays visible behind it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "leave")]
    DEFAULT_CSS = """
    Ask { background: $background 0%; align: left bottom; }
    Ask > Static { width: 100%; height: 1; padding: 0 1; background: $panel; color: $text-muted; }
    Ask > Input { width: 100%; height: 1; border: none; padding: 0 1; background: $panel; }
    Ask > Input:focus { border: none; }
    """

    def __init__(self, question: str, hint: str, value: str = "") -> None:
        super().__init__()
        self._question, self._hint, self._value = question, hint, value

    def compose(self) -> ComposeResult:
        """Hint above, input below."""
        yield Static(f"{self._question}  ·  {self._hint}", markup=False)
        yield Input(self._value, compact=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The line is given."""
        self.dismiss(event.value)

    def action_leave(self) -> None:
        """Nothing is wanted."""
        self.dismiss(None)
