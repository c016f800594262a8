"""Workload files: JSON that a person can read, cut and edit; one segment, rope and request a line.

Ropes are lists: `"s1"` is a whole segment, `["s1", 0, 40]` tokens 0..40 of it; first may stand `"&12"`, the
rope named 12, or `["&12", 8482]`, its first 8482 tokens. So a prompt costs what is new in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from parser.errors import InputError
from replay import rope
from replay.rope import Piece, Rope
from replay.workload import SCHEMA, Asked, Fault, Image, KnownFile, Segment, Stop, Workload

T = TypeVar("T")
_NAME: Final = re.compile(r"[A-Za-z0-9._:+@/#-]{1,80}")
_MOST: Final = 1 << 40
_MOST_PIECES: Final = 20_000_000
_ROPES: Final = ("prompt", "reply", "shown", "key", "state")


def dumps(workload: Workload) -> bytes:
    """The workload as JSON (UTF-8, ends with a newline); the same bytes for equal workloads."""
    names, ropes = _shared_ropes(workload)
    head = _plain(workload, skip=("segments", "requests", "stops", "files"))
    parts = {
        "segments": _block(
            "{}", (f"{_json(s.id)}: {_json(_plain(s, skip=('id',)))}" for s in _used(workload))
        ),
        "ropes": _block("{}", (f"{_json(name)}: {_json(value)}" for name, value in ropes)),
        "stops": _block("[]", (_json(_plain(stop)) for stop in workload.stops)),
        "files": _block("[]", (_json(_with_ropes(file, workload, {})) for file in workload.files)),
        "requests": _block("[]", (_json(_with_ropes(a, workload, names)) for a in workload.requests)),
    }
    lines = [f"{_json(k)}: {_json(v)}" for k, v in {"schema": SCHEMA, **head}.items()]
    lines += [f"{_json(k)}: {v}" for k, v in parts.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def save(workload: Workload, path: Path) -> None:
    """Write `dumps(workload)` to `path`."""
    path.write_bytes(dumps(workload))


def load(path: Path) -> Workload:
    """Read a workload file; InputError names what is wrong in it and what to do."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError("E-WORKLOAD-READ", error.strerror or str(error), path=str(path)) from None
    return loads(data, path=str(path))


def loads(data: bytes | str, *, path: str | None = None) -> Workload:
    """A workload from JSON text; `path` only names it in errors."""
    import orjson

    from replay.workload_check import check

    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        hint = "a workload file is JSON; `ds4scope workload LOG -o FILE` writes one"
        raise InputError("E-WORKLOAD-JSON", str(error), path=path, line=error.lineno, hint=hint) from None
    workload = _Reader(path).workload(document)
    check(workload, path=path)
    return workload


# -- writing ---------------------------------------------------------------------------------------------


def _json(value: Any) -> str:
    import orjson

    return orjson.dumps(value).decode()


def _block(brackets: str, rows: Iterable[str]) -> str:
    body = ",\n".join(f" {row}" for row in rows)
    return f"{brackets[0]}\n{body}\n{brackets[1]}" if body else brackets


def _plain(record: Any, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a record that differ from their defaults."""
    out = {}
    for part in fields(record):
        value = getattr(record, part.name)
        if part.name not in skip and not (part.default is not MISSING and value == part.default):
            out[part.name] = _plain(value) if isinstance(value, Fault) else _listed(value)
    return out


def _listed(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) if isinstance(item, Image) else item for item in value]
    return value


def _used(workload: Workload) -> list[Segment]:
    return [workload.segments[name] for name in sorted(workload.segments)]


def _with_ropes(record: Asked | KnownFile, workload: Workload, names: Mapping[Rope, str]) -> dict[str, Any]:
    out = _plain(record, skip=_ROPES)
    for name in _ROPES:
        value: Rope | None = getattr(record, name, None)
        if value is not None and (value or name in ("shown", "prompt")):
            known = names.get(value) if name == "prompt" else None
            out[name] = [f"&{known}"] if known else [_piece(piece, workload) for piece in value]
    return out


def _piece(piece: Piece, workload: Workload) -> Any:
    whole = piece.start == 0 and piece.end == workload.segments[piece.segment].tokens
    return piece.segment if whole else list(piece)


def _shared_ropes(workload: Workload) -> tuple[dict[Rope, str], list[tuple[str, list[Any]]]]:
    """Every prompt by name, written as its longest beginning that an earlier one has, and the rest."""
    names: dict[Rope, str] = {}
    out: list[tuple[str, list[Any]]] = []
    nodes: dict[tuple[int, Piece], int] = {}
    owner: dict[int, tuple[str, int]] = {}
    for asked in workload.requests:
        if asked.prompt not in names:
            name = names[asked.prompt] = str(asked.request)
            out.append((name, _against(asked.prompt, name, nodes, owner, workload)))
    return names, out


def _against(
    prompt: Rope,
    name: str,
    nodes: dict[tuple[int, Piece], int],
    owner: dict[int, tuple[str, int]],
    workload: Workload,
) -> list[Any]:
    node, shared, known = 0, 0, True
    for depth, piece in enumerate(prompt, 1):
        known = known and (node, piece) in nodes
        node = nodes.setdefault((node, piece), len(nodes) + 1)
        if known:
            shared, base = depth, node
        else:
            owner[node] = (name, rope.length(prompt[:depth]) if depth < len(prompt) else 0)
    tail = [_piece(piece, workload) for piece in prompt[shared:]]
    if not shared:
        return tail
    other, tokens = owner[base]
    return [[f"&{other}", tokens] if tokens else f"&{other}", *tail]


# -- reading ---------------------------------------------------------------------------------------------


class _Reader:
    """Turns a JSON document into records; every complaint names its place."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.pieces = 0
        self.segments: dict[str, Segment] = {}
        self.ropes: dict[str, Rope] = {}

    def fail(self, where: str, what: str, hint: str | None = None) -> InputError:
        """The error that names the file and the place in it."""
        return InputError("E-WORKLOAD", f"{where}: {what}", path=self.path, hint=hint)

    def workload(self, document: Any) -> Workload:
        """The workload that a whole document is."""
        document = dict(self.mapping(document, "workload"))
        schema = document.pop("schema", None)
        if schema != SCHEMA:
            raise self.fail(
                "schema", f"is {schema!r}, not {SCHEMA}", "write the file anew with `ds4scope workload`"
            )
        for name, value in self.mapping(document.pop("segments", {}), "segments").items():
            row = {"id": self.name(name, "segments"), **self.mapping(value, f"segment {name}")}
            self.segments[name] = self.record(Segment, row, f"segment {name}")
        for name, value in self.mapping(document.pop("ropes", {}), "ropes").items():
            self.ropes[name] = self.rope(value, f"rope {name}")
        lists: dict[str, Any] = {
            "stops": self.records(Stop, document.pop("stops", []), "stop"),
            "files": self.records(KnownFile, document.pop("files", []), "file"),
            "requests": self.records(Asked, document.pop("requests", []), "request"),
        }
        return self.record(Workload, {**document, **lists, "segments": self.segments}, "workload")

    def mapping(self, value: Any, where: str) -> Mapping[str, Any]:
        """An object, or the error."""
        if not isinstance(value, dict):
            raise self.fail(where, "must be an object { }")
        return value

    def name(self, value: Any, where: str) -> str:
        """A name without private text, or the error."""
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise self.fail(
                where, "a name must be 1-80 of A-Z a-z 0-9 . _ : + @ / # -", "rename it; names carry no text"
            )
        return value

    def records(self, kind: type[T], rows: Any, what: str) -> tuple[T, ...]:
        """A list of records of one kind."""
        if not isinstance(rows, list):
            raise self.fail(f"{what}s", "must be a list [ ]")
        out = []
        for place, row in enumerate(rows, 1):
            row = dict(self.mapping(row, f"{what} at place {place}"))
            where = f"{what} {row.get('request', row.get('id', place))}"
            out.append(self.record(kind, row, where))
        return tuple(out)

    def record(self, kind: type[T], row: Mapping[str, Any], where: str) -> T:
        """One record; unknown keys are errors."""
        hints = get_type_hints(kind)
        unknown = sorted(set(row) - set(hints))
        if unknown:
            raise self.fail(where, f"unknown key {unknown[0]!r}", f"known keys: {', '.join(hints)}")
        values = {
            name: self.value(value, hints[name], f"{where}, {name}", name) for name, value in row.items()
        }
        try:
            return kind(**values)
        except TypeError:
            needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]  # type: ignore[arg-type]
            missing = [name for name in needed if name not in row]
            raise self.fail(where, f"lacks {', '.join(missing)}") from None

    def value(self, value: Any, hint: Any, where: str, name: str) -> Any:
        """A value as the field's type says."""
        if name in _ROPES:
            return None if value is None and NoneType in get_args(hint) else self.rope(value, where)
        if get_origin(hint) is UnionType:
            kinds = [kind for kind in get_args(hint) if kind is not NoneType]
            return None if value is None else self.value(value, kinds[0], where, name)
        if get_origin(hint) is tuple:
            return self.many(value, get_args(hint)[0], where, name)
        if hint in (Image, Fault):
            return self.record(hint, self.mapping(value, where), where)
        return self.scalar(value, hint, where, name)

    def many(self, value: Any, kind: Any, where: str, name: str) -> Any:
        """A list of values of one type."""
        if isinstance(value, tuple):
            return value
        if not isinstance(value, list):
            raise self.fail(where, "must be a list [ ]")
        return tuple(self.value(item, kind, where, name) for item in value)

    def scalar(self, value: Any, hint: Any, where: str, name: str) -> Any:
        """A number, word, flag or null."""
        if hint is bool or isinstance(value, bool):
            if hint is not bool or not isinstance(value, bool):
                raise self.fail(
                    where, "must be true or false" if hint is bool else "must not be true or false"
                )
            return value
        if hint in (int, float):
            right = isinstance(value, int) or (hint is float and isinstance(value, float))
            if not right or not 0 <= value <= _MOST:
                raise self.fail(where, f"must be a {'whole ' * (hint is int)}number from 0 to {_MOST}")
            return hint(value)
        if hint is str:
            return (
                value if name in ("notes", "open_to") and isinstance(value, str) else self.name(value, where)
            )
        return value

    def rope(self, value: Any, where: str) -> Rope:
        """A string as pieces of segments."""
        if not isinstance(value, list):
            raise self.fail(where, 'must be a list of segments, as ["s1", ["s2", 0, 40]]')
        first = value[0] if value else None
        base: Rope = ()
        if _refers(first):
            base, value = self.reference(first, where), value[1:]
        pieces = rope.join(base, [self.piece(item, where) for item in value])
        self.pieces += len(pieces)
        if self.pieces > _MOST_PIECES:
            raise self.fail(where, f"the ropes hold more than {_MOST_PIECES} pieces", "cut the workload")
        return pieces

    def reference(self, value: Any, where: str) -> Rope:
        """A rope by name, whole or its first tokens."""
        name, *tokens = [value] if isinstance(value, str) else value
        if name[1:] not in self.ropes:
            raise self.fail(
                where, f"rope {name!r} is not above it in `ropes`", "spell the rope out, or restore it"
            )
        base = self.ropes[name[1:]]
        if not tokens:
            return base
        if len(tokens) > 1 or not isinstance(tokens[0], int) or not 0 <= tokens[0] <= rope.length(base):
            raise self.fail(where, f"rope {name!r} has {rope.length(base)} tokens; cut it within them")
        return rope.cut(base, tokens[0])

    def piece(self, value: Any, where: str) -> Piece:
        """One piece of a segment, whole or from token to token."""
        name, *span = (
            [value] if isinstance(value, str) else value if isinstance(value, list) and value else [None]
        )
        segment = self.segments.get(name) if isinstance(name, str) else None
        if segment is None:
            raise self.fail(where, f"segment {name!r} is not in `segments`", "add it, with its tokens")
        start, end = span if len(span) == 2 else (0, segment.tokens) if not span else (None, None)
        if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start < end <= segment.tokens:
            raise self.fail(
                where, f'a piece is ["{name}", start, end] with 0 <= start < end <= {segment.tokens}'
            )
        return Piece(segment.id, start, end)


def _refers(value: Any) -> bool:
    head = value[0] if isinstance(value, list) and value else value
    return isinstance(head, str) and head.startswith("&")
