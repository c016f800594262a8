"""Policies by name: built in, from an entry point, or a class in a file (`file.py:Class`)."""

from __future__ import annotations

import importlib.util
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from parser.errors import UsageError
from replay.seams import Reuse, Scheduler, Store

#: seam -> name -> where its class is; `name:argument` passes the argument to the class
BUILT_IN: Final = MappingProxyType(
    {
        "scheduler": {
            "common-prefix": "replay.policies.schedulers:CommonPrefix",
            "visible-key": "replay.policies.schedulers:VisibleKey",
            "reuse-aware": "replay.policies.schedulers:ReuseAware",
            "empty-first": "replay.policies.schedulers:EmptyFirst",
            "min-prefix": "replay.policies.schedulers:MinPrefix",
            "lru": "replay.policies.schedulers:LeastRecentlyUsed",
            "clairvoyant": "replay.policies.schedulers:Clairvoyant",
        },
        "reuse": {
            "ladder": "replay.policies.reuse:Ladder",
            "rewind-to-common": "replay.policies.reuse:RewindToCommon",
            "rewind-in-ring": "replay.policies.reuse:RewindInRing",
            "rewind-points": "replay.policies.reuse:RewindPoints",
        },
        "store": {
            "profile": "replay.policies.stores:Profile",
            "images-on-disk": "replay.policies.stores:ImagesOnDisk",
            "load-before-store": "replay.policies.stores:LoadBeforeStore",
            "protect-incoming": "replay.policies.stores:ProtectIncoming",
            "clairvoyant": "replay.policies.stores:Clairvoyant",
        },
    }
)
_NEEDS: Final = {"scheduler": "score", "reuse": "rewind", "store": "victim"}
_GROUPS: Final = {"scheduler": "ds4scope.schedulers", "reuse": "ds4scope.reuse", "store": "ds4scope.stores"}


def scheduler_of(name: str) -> Scheduler:
    """A new scheduler."""
    made: Scheduler = _policy("scheduler", name)
    return made


def reuse_of(name: str) -> Reuse:
    """A new reuse policy."""
    made: Reuse = _policy("reuse", name)
    return made


def store_of(name: str) -> Store:
    """A new store policy."""
    made: Store = _policy("store", name)
    return made


def names(seam: str) -> tuple[str, ...]:
    """Names that can be given for a seam, built in and installed."""
    installed = {entry.name for entry in entry_points(group=_GROUPS[seam])}
    return tuple(BUILT_IN[seam]) + tuple(sorted(installed - set(BUILT_IN[seam])))


def _policy(seam: str, name: str) -> Any:
    kind, arguments = _class(seam, name)
    try:
        made = kind(*arguments)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError("E-PLUGIN", f"{seam} {name!r} cannot be made: {error}") from error
    if not callable(getattr(made, _NEEDS[seam], None)):
        hint = "docs/plugins.md builds one from nothing"
        raise UsageError("E-PLUGIN", f"{seam} {name!r} has no method `{_NEEDS[seam]}`", hint=hint)
    return made


def _class(seam: str, name: str) -> tuple[Any, tuple[str, ...]]:
    """The class and its arguments."""
    head, _, tail = name.partition(":")
    if head in BUILT_IN[seam]:
        module, _, cls = BUILT_IN[seam][head].partition(":")
        return getattr(import_module(module), cls), ((tail,) if tail else ())
    path, _, cls = name.rpartition(":")
    if path.endswith(".py"):
        return _from_file(seam, path, cls), ()
    for entry in entry_points(group=_GROUPS[seam], name=head):
        return entry.load(), ((tail,) if tail else ())
    hint = f"one of {', '.join(names(seam))}, or file.py:Class"
    raise UsageError("E-PLUGIN", f"no {seam} {name!r}", hint=hint)


def _from_file(seam: str, path: str, cls: str) -> Any:
    """Run the user's file and take the class from it."""
    if not Path(path).is_file():
        raise UsageError("E-PLUGIN", f"{seam} file {path!r} is not there")
    spec = importlib.util.spec_from_file_location(f"ds4scope_plugin_{Path(path).stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError("E-PLUGIN", f"{path}: {type(error).__name__}: {error}") from error
    if not hasattr(module, cls):
        raise UsageError("E-PLUGIN", f"{path} has no class {cls!r}")
    return getattr(module, cls)
