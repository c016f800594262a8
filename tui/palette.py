"""Inks -> terminal styles. A colour for each conversation, warm for what was lost, grey for the rest."""

from __future__ import annotations

from typing import Final

from rich.style import Style

from tui.picture import Ink

# Eight hues that stay apart for the usual kinds of colour blindness; the letters tell the same without
# colour.
_DARK: Final = ("#6fa8ff", "#ffb454", "#5fd7a7", "#e58fd0", "#d7c94f", "#ff8f70", "#7fd4e8", "#b7a0ff")
_LIGHT: Final = ("#1f5fbf", "#a85b00", "#00795a", "#9c2f86", "#6f6600", "#b23a17", "#00718a", "#5b3fc4")
_ROLES_DARK: Final = {
    "plain": "#c8ccd4",
    "dim": "#848c99",
    "hidden": "#3f4550",
    "mixed": "#9aa0ac",
    "restart": "#c8ccd4",
    "lost": "#ff6b6b",
    "evict": "#ffcc66",
    "restore": "#7ee787",
    "store": "#8b93a1",
    "io": "#ffcc66",
    "fresh-sum": "#e0a070",
    "reused-sum": "#6fae8f",
    "reuse": "#6fae8f",
    "disk": "#8b93a1",
}
_ROLES_LIGHT: Final = {
    "plain": "#24292f",
    "dim": "#68707a",
    "hidden": "#c2c7cf",
    "mixed": "#57606a",
    "restart": "#24292f",
    "lost": "#c4261d",
    "evict": "#8a5a00",
    "restore": "#1a7f37",
    "store": "#6e7781",
    "io": "#8a5a00",
    "fresh-sum": "#a04f1f",
    "reused-sum": "#2f7d5b",
    "reuse": "#2f7d5b",
    "disk": "#6e7781",
}
_STRONG: Final = frozenset({"letter", "fresh", "lost", "evict", "restore"})
_SOFT: Final = frozenset({"hold", "idle", "decode", "live"})


class Palette:
    """Styles for one theme, made once each."""

    def __init__(self, dark: bool, background: str) -> None:
        self._hues = _DARK if dark else _LIGHT
        self._roles = _ROLES_DARK if dark else _ROLES_LIGHT
        self._background = background
        self._made: dict[Ink, Style] = {}

    def style(self, ink: Ink) -> Style:
        """The style of an ink on the theme's background."""
        made = self._made.get(ink)
        if made is None:
            made = self._made[ink] = self._make(*ink)
        return made

    def conversation(self, conv: int) -> str:
        """The colour of a conversation (grey for an unknown one)."""
        return self._hues[conv % len(self._hues)] if conv >= 0 else self._roles["plain"]

    def word(self, role: str) -> str:
        """The colour of a role of `tui.words` ("strong", "conv:N" and "unsure" beside those of the picture)."""
        if role.startswith("conv:"):
            return self.conversation(int(role[5:]))
        return self._roles.get(role) or self._roles["mixed" if role == "unsure" else "plain"]

    def text(self, role: str) -> Style:
        """The style of a role of `tui.words`."""
        key = (role, -2)
        made = self._made.get(key)
        if made is None:
            bold = role == "strong" or role.startswith("conv:")
            made = Style(
                color=self.word(role),
                bgcolor=self._background,
                bold=bold or None,
                italic=role == "unsure" or None,
            )
            self._made[key] = made
        return made

    def role(self, name: str) -> str:
        """The colour of a role."""
        return self._roles[name]

    def _make(self, role: str, conv: int) -> Style:
        if role in ("fresh", "reused") and conv < 0:
            role += "-sum"
        colour = self._roles.get(role) or self.conversation(conv)
        if role in _SOFT:
            colour = _blend(colour, self._background)
        return Style(
            color=colour,
            bgcolor=self._background,
            bold=role in _STRONG or None,
            italic=role == "unsure" or None,
        )


def _blend(colour: str, ground: str) -> str:
    """Two thirds of a colour over the background: what goes on without cost keeps back."""
    pairs = [(int(colour[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(0.66 * over + 0.34 * under):02x}" for over, under in pairs)
