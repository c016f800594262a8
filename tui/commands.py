"""The command palette: every key of the screen one looks at, by what it does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.app import SystemCommand
from textual.dom import DOMNode
from textual.screen import Screen

from tui.keys import APP_KEYS, COMPARE_KEYS, MAIN_KEYS, TIMELINE_KEYS, Key
from tui.main import MainScreen

if TYPE_CHECKING:
    from tui.app import TimelineApp


def commands(app: TimelineApp, screen: Screen[Any]) -> Iterator[SystemCommand]:
    """The commands of `screen`, then those that are there always."""
    yield SystemCommand("theme", "change the colours", app.action_change_theme)
    for node, keys in _groups(app, screen):
        for key in keys:
            run = partial(app.run_action, key.action, node)
            yield SystemCommand(key.text, f"key {app.shown_key(key)}", run)


def _groups(app: TimelineApp, screen: Screen[Any]) -> Iterator[tuple[DOMNode, tuple[Key, ...]]]:
    if isinstance(screen, MainScreen):
        yield screen, MAIN_KEYS
        yield screen.timeline, TIMELINE_KEYS
    elif any(binding.id == COMPARE_KEYS[0].id for _, binding in screen._bindings):
        yield screen, COMPARE_KEYS  # its class is loaded with the replays only
    yield app, APP_KEYS
