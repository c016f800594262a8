"""Checkpoint files: a session's tensors as safetensors, with a header that says whose they are and that all
is there.

Written to a temporary name and renamed, so a killed run or a full disk leaves no file that looks whole; read
back only if format, version, model and digest fit.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from parser.errors import Ds4scopeError
from replay.models.model import Model
from replay.models.session import Session

FORMAT: Final = "ds4scope-kv"
VERSION: Final = "1"

Arrays = dict[str, NDArray[Any]]


class SnapshotError(Ds4scopeError):
    """A checkpoint file that cannot be written, or must not be read."""


def save_session(session: Session, path: Path) -> int:
    """Write the session to `path`. -> bytes of the file. Raises `SnapshotError` (E-KV-WRITE)."""
    arrays: Arrays = {name: np.ascontiguousarray(value) for name, value in session.cache.state().items()}
    arrays["tokens"] = np.ascontiguousarray(session.tokens)
    if session.last is not None:
        arrays["last"] = np.ascontiguousarray(session.last)
    return write_arrays(path, session.model.identity, arrays)


def load_session(model: Model, path: Path) -> Session:
    """The session that was saved. Raises `SnapshotError`, see `read_arrays`."""
    arrays, session = read_arrays(path, model.identity), Session(model)
    tokens, last = arrays.pop("tokens"), arrays.pop("last", None)
    session.fill(tokens)
    session.cache.load({name: mx.array(value) for name, value in arrays.items()}, len(tokens))
    session.last = None if last is None else mx.array(last)
    mx.eval(session.cache.arrays())
    return session


def write_arrays(path: Path, model: str, arrays: Arrays, **more: str) -> int:
    """Write `arrays` and whose they are (`model`). -> bytes. Raises `SnapshotError` (E-KV-WRITE)."""
    header = {"format": FORMAT, "version": VERSION, "model": model, **more}
    header["digest"] = digest(header, arrays)
    return _write(path, save(arrays, metadata=header))


def read_arrays(path: Path, model: str, **more: str) -> Arrays:
    """What `write_arrays` wrote. Raises `SnapshotError`: E-KV-FOREIGN (another format, version or model),
    E-KV-DAMAGED (cut, altered, unreadable)."""
    header, arrays = _read(path)
    for name, wanted in {"format": FORMAT, "version": VERSION, "model": model, **more}.items():
        if header.get(name) != wanted:
            found = header.get(name, "none")
            raise SnapshotError("E-KV-FOREIGN", f"{name} is {found[:80]!r}, not {wanted!r}", path=str(path))
    if header.get("digest") != digest(header, arrays):
        raise SnapshotError("E-KV-DAMAGED", "the digest does not fit the contents", path=str(path))
    return arrays


def digest(header: Mapping[str, str], arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over the header and every array's name, type, shape and bytes."""
    total = hashlib.sha256(repr(sorted((k, v) for k, v in header.items() if k != "digest")).encode())
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(array.data)
    return total.hexdigest()


def _write(path: Path, content: bytes) -> int:
    partial = path.with_name(f"{path.name}.tmp.{os.getpid()}")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        reason = error.strerror or "the write failed"
        hint = "free some room, choose another --work-dir, or divide the replay with --scale"
        raise SnapshotError(
            "E-KV-WRITE", f"checkpoint not written: {reason}", path=str(path), hint=hint
        ) from error
    return len(content)


def _read(path: Path) -> tuple[dict[str, str], Arrays]:
    try:
        with safe_open(path, framework="numpy") as file:
            return dict(file.metadata() or {}), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        message = f"not a readable checkpoint ({type(error).__name__})"
        raise SnapshotError("E-KV-DAMAGED", message, path=str(path)) from error
