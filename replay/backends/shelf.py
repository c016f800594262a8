"""The disk tier of a tensor replay: checkpoint files really on disk, in a folder of their own."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from parser.errors import UsageError


@dataclass(slots=True)
class Kept:
    """A checkpoint: `size` is what the server's file would take (R4.4), `path` None for one assumed to have
    lain there before, which nobody has loaded yet."""

    size: int
    path: Path | None


class Shelf:
    """Files by the server's names. The names come from a log, so they never become paths."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: where to make the temporary folder (None: where the system keeps such)."""
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="ds4scope-kv-", dir=folder))
        except OSError as error:
            raise UsageError(
                "E-WORK-DIR", f"no checkpoint folder can be made in {folder}: {error.strerror}"
            ) from error
        self.files: dict[str, Kept] = {}
        self.written = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def size(self) -> int:
        """Bytes that the server's files would take."""
        return sum(kept.size for kept in self.files.values())

    @property
    def bytes_on_disk(self) -> int:
        """Bytes that the tensors take."""
        return sum(path.stat().st_size for path in self.folder.iterdir())

    def new_path(self) -> Path:
        """A path nobody has used."""
        self.written += 1
        return self.folder / f"{self.written:06d}.safetensors"

    def keep(self, name: str, size: int, path: Path | None) -> None:
        """List a file, in place of one of the same name."""
        self.drop(name)
        self.files[name] = Kept(size, path)

    def drop(self, name: str) -> bool:
        """Delete a file; False if there is none of that name."""
        kept = self.files.pop(name, None)
        for path in self._paths(kept):
            path.unlink(missing_ok=True)
        return kept is not None

    def _paths(self, kept: Kept | None) -> list[Path]:
        """A checkpoint's file, and the one beside it that an mlx-lm model has."""
        if kept is None or kept.path is None:
            return []
        return [path for path in self.folder.iterdir() if path.stem.split(".")[0] == kept.path.stem]
