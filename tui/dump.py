"""The screen as plain text: what the copy key gives, and what the text snapshots of the tests hold."""

from __future__ import annotations

from textual.screen import Screen


def screen_text(screen: Screen[object]) -> str:
    """The lines of the screen as drawn, without styles, trailing blanks cut."""
    strips = screen._compositor.render_strips(screen.size)
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"
