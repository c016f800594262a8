"""The two lines on top: which log and in what state; what matters most in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parser.sanitise import sanitise
from tui.picture import short
from tui.scene import Scene
from tui.words import Line, cut, requests_words

if TYPE_CHECKING:
    from tui.app import TimelineApp


def status(app: TimelineApp, width: int) -> Line:
    """Name, requests, slots, profile; then what is going on: reading, following, filter, axis."""
    scene = app.session.scene
    left = sanitise(app.feed.wanted.title())
    slots = f"{scene.setting.slots} slots" if scene.setting.slots != 1 else "1 slot"
    parts = [requests_words(len(scene.table)), slots if scene.setting.slots else "slots not known"]
    parts += [scene.setting.profile] if scene.setting.profile and width >= 100 else []
    parts += [f"{app.session.at_share():.0%} of the log"] if width >= 120 else []
    doing = _doing(app, scene)
    room = max(8, width - len("ds4scope ") - sum(len(part) + 3 for part in parts) - len(doing) - 2)
    name = left if len(left) <= room else left[: room - 1] + "…"
    text = " · ".join(["", *parts])
    gap = " " * max(1, width - len("ds4scope ") - len(name) - len(text) - len(doing))
    return [("ds4scope ", "strong"), (name, "plain"), (text, "dim"), (gap, "plain"), (doing, "evict")]


def title(app: TimelineApp) -> str:
    """The state of the session in a few words, for the terminal's title."""
    scene = app.session.scene
    parts = (app.title, requests_words(len(scene.table)), _doing(app, scene))
    return " · ".join(part for part in parts if part)


def _doing(app: TimelineApp, scene: Scene) -> str:
    states = []
    if app.reading:
        states.append(f"reading {100 * app.share:.0f}%" if app.share is not None else "reading …")
    if app.work:
        states.append(f"{app.work} …")
    if app.feed.following:
        states.append("following")
    if app.session.filter:
        states.append(f"only {app.session.filter} ({scene.kept:,})")
    if scene.axis.kind == "order":
        states.append("by order, not by time" if scene.axis.why else "by order")
    return sanitise(" · ".join(states))


def headline(app: TimelineApp, width: int) -> Line:
    """The first finding if there is one, else why there is no time axis, else the sums. With a filter: the sums
    of what is shown."""
    found, why = app.findings.headline(), app.session.scene.axis.why
    if app.session.filter or not (found or why):
        return app.sums()
    return [(cut(found, width), "plain") if found else (cut(why, width), "evict")]


def sums(scene: Scene) -> Line:
    """Misses, evictions, restores and tokens over the requests shown."""
    table = scene.table.filter(scene.table["keep"])
    if not len(table):
        return [("no request here", "dim")]
    misses, restores = int(table["miss"].sum()), int((table["disk_hit"].fill_null(0) > 0).sum())
    gone = table.filter(table["evicted"].fill_null(0) > 0)
    lost = len(gone) - int(gone["saved"].sum())
    reused, fresh = int(table["cached"].sum() or 0), int(table["fresh"].sum() or 0)
    line: Line = [
        (f"{misses:,} misses", "lost" if misses else "restore"),
        (f" · {len(gone):,} put out", "plain"),
    ]
    line += [(f" ({lost:,} not saved)", "lost")] if lost else []
    line += [(f" · {restores:,} restored · ", "plain"), (f"{short(reused)} tokens reused", "restore")]
    return [*line, (", ", "plain"), (f"{short(fresh)} computed", "fresh-sum")]
