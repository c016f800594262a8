"""Every key of the timeline, once: the bindings, the help page and the documentation are made from this
table.

A person's own keys stand in `keys.toml` (`$XDG_CONFIG_HOME/ds4scope/`, or `--keys FILE`):
`id = "key,key"` under `[keys]`, and `theme = "NAME"` on top.
"""

from __future__ import annotations

import os
import tomllib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from textual.binding import Binding
from textual.keys import KEY_NAME_REPLACEMENTS, Keys, _character_to_key, _get_unicode_name_from_key

from parser.errors import UsageError


@dataclass(frozen=True, slots=True)
class Key:
    """A key: stable `id`, default `keys` (Textual names), the action, what it does, whether the footer
    shows it."""

    id: str
    keys: str
    action: str
    text: str
    footer: str = ""


#: Where the timeline has the focus.
TIMELINE_KEYS: Final = (
    Key("left", "left,h", "move(-1)", "cursor one cell back"),
    Key("right", "right,l", "move(1)", "cursor one cell on"),
    Key("up", "up,k", "lane(-1)", "lane above"),
    Key("down", "down,j", "lane(1)", "lane below"),
    Key("page_back", "shift+left,H,pageup", "pan(-0.5)", "half a window back"),
    Key("page_on", "shift+right,L,pagedown", "pan(0.5)", "half a window on"),
    Key("first", "home,circumflex_accent", "edge('start')", "to the beginning"),
    Key("last", "end,dollar_sign,G", "edge('end')", "to the end"),
)
#: Anywhere on the main screen.
MAIN_KEYS: Final = (
    Key("zoom_in", "plus,equals_sign,i", "zoom(0.5)", "zoom in at the cursor", "zoom"),
    Key("zoom_out", "minus,u", "zoom(2.0)", "zoom out"),
    Key("zoom_all", "0,a", "zoom_all", "the whole log"),
    Key("zoom_request", "z", "zoom_request", "zoom to the chosen request"),
    Key("next_miss", "m", "jump('miss', True)", "next miss", "miss"),
    Key("previous_miss", "M", "jump('miss', False)", "previous miss"),
    Key("next_eviction", "e", "jump('eviction', True)", "next eviction", "evict"),
    Key("previous_eviction", "E", "jump('eviction', False)", "previous eviction"),
    Key("next_restore", "r", "jump('restore', True)", "next restore from disk"),
    Key("previous_restore", "R", "jump('restore', False)", "previous restore"),
    Key("next_finding", "f", "jump('finding', True)", "next finding", "finding"),
    Key("previous_finding", "F", "jump('finding', False)", "previous finding"),
    Key("next_request", "right_square_bracket,w", "jump('request', True)", "next request"),
    Key("previous_request", "left_square_bracket,b", "jump('request', False)", "previous request"),
    Key("search", "slash", "search", "search the log's text", "search"),
    Key("next_match", "n", "match(True)", "next match"),
    Key("previous_match", "N", "match(False)", "previous match"),
    Key("go_to", "g,colon", "go_to", "go to a time, line or request"),
    Key("filter", "x", "filter", "show only a conversation, slot, source or mechanism"),
    Key("filter_off", "X", "filter_off", "show everything again"),
    Key("inspect", "enter", "show('request')", "the chosen request: ladder, prompt, divergence", "request"),
    Key("log", "o", "show('log')", "the raw lines of the chosen request"),
    Key("findings", "d", "show('findings')", "findings: what went wrong, ranked"),
    Key("state", "escape", "back", "back to the cursor's state; stops work that is running"),
    Key("compare", "c", "compare", "replay another policy beside this log", "compare"),
    Key("axis", "t", "turn_axis", "time axis or order of requests"),
    Key("follow", "v", "follow", "follow the growing log"),
    Key("copy", "y", "copy_screen", "copy the screen as text"),
    Key("screenshot", "ctrl+s", "picture", "save the screen as SVG"),
    Key("other_pane", "tab", "other_pane", "focus the other pane"),
)
#: While decisions are compared.
COMPARE_KEYS: Final = (
    Key("next_decision", "n,right,l", "decide(1)", "next decision", "next"),
    Key("previous_decision", "p,left,h", "decide(-1)", "previous decision", "previous"),
    Key("next_difference", "d,e", "differ(True)", "next decision that differs", "difference"),
    Key("previous_difference", "D,E", "differ(False)", "previous decision that differs"),
    Key("compare_zoom_in", "plus,equals_sign,i", "zoom(0.5)", "zoom in"),
    Key("compare_zoom_out", "minus,u", "zoom(2.0)", "zoom out"),
    Key("compare_all", "0,a", "zoom_all", "the whole log"),
    Key("compare_axis", "t", "turn_axis", "time axis or order of requests"),
    Key("compare_policy", "c", "policy", "another policy", "policy"),
    Key("compare_back", "escape", "leave", "back to the log", "back"),
)
#: Everywhere.
APP_KEYS: Final = (
    Key("help", "question_mark,f1", "help", "this page", "help"),
    Key("quit", "q", "quit", "leave", "quit"),
)
ALL_KEYS: Final = (*TIMELINE_KEYS, *MAIN_KEYS, *COMPARE_KEYS, *APP_KEYS)
#: Keys that are alive at the same time.
SCREENS: Final = ((*TIMELINE_KEYS, *MAIN_KEYS, *APP_KEYS), (*COMPARE_KEYS, *APP_KEYS))
NO_KEY: Final = "none"
_MODIFIERS: Final = frozenset({"ctrl", "shift", "alt", "super", "meta", "hyper"})


def bindings(keys: tuple[Key, ...]) -> list[Binding]:
    """Textual bindings of a part of the table."""
    return [
        Binding(
            key.keys, key.action, key.footer or key.text, show=bool(key.footer), id=key.id, tooltip=key.text
        )
        for key in keys
    ]


@dataclass(frozen=True, slots=True)
class Habits:
    """A person's settings: `keys` maps key ids to keys, `theme` names a Textual theme (None: the default)."""

    keys: Mapping[str, str] = field(default_factory=dict)
    theme: str | None = None


def load_habits(path: str | None = None) -> Habits:
    """Settings of `path`, or of the default place where that file exists.

    Raises UsageError where the file cannot be read, is not TOML, names something that does not exist, or gives
    one key to two things.
    """
    place = Path(path) if path else default_place()
    if path is None and not place.is_file():
        return Habits()
    try:
        data = tomllib.loads(place.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        hint = "see docs/timeline.md, section Your own keys"
        raise UsageError(
            "E-KEYS", f"cannot read the key file: {error}", path=str(place), hint=hint
        ) from error
    return _checked(data, str(place))


def default_place() -> Path:
    """Where a person's own keys are looked for."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "ds4scope" / "keys.toml"


def _checked(data: Mapping[str, Any], path: str) -> Habits:
    keys, theme = data.get("keys", {}), data.get("theme")
    unknown = sorted(set(data) - {"keys", "theme"})
    if unknown:
        raise UsageError(
            "E-KEYS", f"unknown setting {unknown[0]!r}", path=path, hint="known are: theme, [keys]"
        )
    if not isinstance(keys, dict) or not all(isinstance(value, str) for value in keys.values()):
        raise UsageError("E-KEYS", '[keys] needs lines like next_miss = "m"', path=path)
    known = {key.id for key in ALL_KEYS}
    wrong = sorted(set(keys) - known)
    if wrong:
        hint = "known are: " + " ".join(sorted(known))
        raise UsageError("E-KEYS", f"no key is called {wrong[0]!r}", path=path, hint=hint)
    if theme is not None and not isinstance(theme, str):
        raise UsageError("E-KEYS", 'theme needs a name, like theme = "nord"', path=path)
    own = {name: _keys_of(text, path) for name, text in keys.items()}
    return Habits(_with_the_rest(own, path), theme)


def _keys_of(text: str, path: str) -> list[str]:
    """The keys of one line by the names that Textual uses; NO_KEY alone for none."""
    found = [_character_to_key(word) if len(word) == 1 else word for word in map(str.strip, text.split(","))]
    for word in found:
        *modifiers, last = word.split("+")
        if word and not (set(modifiers) <= _MODIFIERS and _is_key(last)):
            hint = 'as in "m", "M", "f5", "ctrl+n", "shift+left", "pageup", "plus", "slash", "comma"'
            raise UsageError("E-KEYS", f"there is no key {word!r}", path=path, hint=hint)
    return [word for word in found if word] or [NO_KEY]


def _is_key(name: str) -> bool:
    if len(name) == 1 or name in {key.value for key in Keys} | {*KEY_NAME_REPLACEMENTS.values(), NO_KEY}:
        return True
    try:
        return bool(unicodedata.lookup(_get_unicode_name_from_key(name).replace("_", " ")))
    except KeyError:
        return False


def _with_the_rest(own: Mapping[str, list[str]], path: str) -> dict[str, str]:
    """A person's keys, and what is left of the others: a key that was given away does nothing else there."""
    settled = {name: ",".join(keys) for name, keys in own.items()}
    for screen in SCREENS:
        taken: dict[str, str] = {}
        for key in screen:
            for one in own.get(key.id, ()):
                if one != NO_KEY and taken.setdefault(one, key.id) != key.id:
                    message = f"{one!r} is given to {taken[one]} and to {key.id}"
                    raise UsageError("E-KEYS", message, path=path, hint="each key can do one thing")
        for key in screen:
            left = settled.get(key.id, key.keys).split(",")
            if key.id not in own and any(one in taken for one in left):
                settled[key.id] = ",".join(one for one in left if one not in taken) or NO_KEY
    return settled
