"""The help page: what the signs mean, and every key."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from tui.glyphs import Glyphs
from tui.keys import APP_KEYS, COMPARE_KEYS, MAIN_KEYS, TIMELINE_KEYS, Key
from tui.palette import Palette
from tui.panes import TextPane
from tui.words import Line

_SIGNS: Final = (
    ("recomputed", "fresh-sum", "prefill: tokens computed (the time you pay)"),
    ("cached", "reused-sum", "prefill: the share of the prompt that was reused"),
    ("unknown", "dim", "prefill: how much was reused is not in the log"),
    ("decode", "plain", "writing the answer"),
    ("disk", "io", "waiting for the disk (saving or loading)"),
    ("evict", "evict", "live state put out, saved to disk first"),
    ("lost", "lost", "live state put out and not saved, or a file deleted"),
    ("restore", "restore", "came back from disk"),
    ("swap", "evict", "one put out and another restored at once"),
    ("older", "evict", "came back, but only an older checkpoint was found"),
    ("rewind", "restore", "live state cut back and reused"),
    ("store", "store", "a checkpoint written while the conversation stays"),
    ("failed", "lost", "ended in an error"),
    ("hold", "plain", "a conversation (its letter) holds the slot"),
    ("unsure", "unsure", "the same, but which slot it was is not certain"),
    ("mixed", "mixed", "several conversations within one cell"),
    ("empty", "dim", "nobody there"),
    ("different", "lost", "comparing: this request went another way"),
    ("restart", "plain", "the server started anew"),
)
_GROUPS: Final = (
    ("Moving", TIMELINE_KEYS),
    ("The log", MAIN_KEYS),
    ("Comparing", COMPARE_KEYS),
    ("Always", APP_KEYS),
)


def help_lines(glyphs: Glyphs, shown_key: Callable[[Key], str]) -> list[Line]:
    """The page; `shown_key` gives the keys as they are bound now."""
    lines: list[Line] = [[("What you see", "strong")]]
    lines.append(
        [("Each slot is a lane, time runs to the right; a digit counts events in one cell.", "plain")]
    )
    lines += [[(f"  {getattr(glyphs, name)}  ", role), (text, "plain")] for name, role, text in _SIGNS]
    lines += [
        [],
        [("reuse", "strong"), ("  share of prompt tokens that were reused, by start of request", "plain")],
    ]
    lines += [[("computed, reused", "strong"), ("  prompt tokens, on one scale", "plain")]]
    for title, keys in _GROUPS:
        lines += [[], [(title, "strong")]]
        lines += [[(f"  {shown_key(key):<18}", "evict"), (key.text, "plain")] for key in keys]
    return lines


def key_table() -> str:
    """The keys as a Markdown table, for docs/timeline.md (a test holds the page to it)."""
    rows = ["| key | what it does | name in `keys.toml` |", "|---|---|---|"]
    for title, keys in _GROUPS:
        rows.append(f"| **{title}** | | |")
        rows += [f"| {_written(key)} | {key.text} | `{key.id}` |" for key in keys]
    return "\n".join(rows)


def _written(key: Key) -> str:
    return " ".join(f"`{_SIGN_OF.get(one, one)}`" for one in key.keys.split(","))


_SIGN_OF: Final = {
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "slash": "/",
    "colon": ":",
    "question_mark": "?",
    "circumflex_accent": "^",
    "dollar_sign": "$",
    "right_square_bracket": "]",
    "left_square_bracket": "[",
}


class Help(ModalScreen[None]):
    """The page over everything; escape, q, enter or the key that opened it leaves it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "leave", "leave"),
        Binding(APP_KEYS[0].keys, "leave", "leave", id=APP_KEYS[0].id),  # goes along when the key is rebound
    ]
    DEFAULT_CSS = """
    Help { align: center middle; }
    Help > TextPane { width: 90%; max-width: 86; height: 90%; border: round $primary; background: $surface; }
    """

    def __init__(self, lines: list[Line], palette: Palette) -> None:
        super().__init__()
        self._lines, self._palette = lines, palette

    def compose(self) -> ComposeResult:
        """One scrolling page."""
        pane = TextPane("help")
        pane.border_title = "help"
        yield pane

    def on_mount(self) -> None:
        """Fill the page."""
        self.query_one(TextPane).show(self._lines, self._palette)

    def action_leave(self) -> None:
        """Back."""
        self.dismiss(None)
