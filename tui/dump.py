"""The screen as text (the copy key, and what the text snapshots of the tests hold) and as a picture."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from textual.screen import Screen

from parser.sanitise import sanitise

if TYPE_CHECKING:
    from tui.app import TimelineApp


def screen_text(screen: Screen[object]) -> str:
    """The lines of the screen as drawn, without styles, trailing blanks cut."""
    strips = screen._compositor.render_strips(screen.size)
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"


def copy_text(app: TimelineApp) -> None:
    """Put the screen's text on the clipboard."""
    app.copy_to_clipboard(screen_text(app.screen))
    app.notify("screen copied as text")


def save_picture(app: TimelineApp) -> None:
    """Save an SVG of the screen where one works (a download in the browser)."""
    if app.is_web:
        app.deliver_screenshot()
        return
    try:
        name = app.save_screenshot(path=os.curdir)
    except OSError as error:
        app.complain(f"a picture cannot be saved here: {error.strerror}")
    else:
        app.notify(f"saved as {sanitise(Path(name).name)}", markup=False)
