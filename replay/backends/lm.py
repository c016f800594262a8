"""Any mlx-lm model and its own prompt cache in place of the small models: `--model PATH` (the extra `lm`).

What can be rewound is what mlx-lm's caches say they can trim. A request's text is not known, so its tokens are
hashed words of the model's vocabulary; images are words too.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from parser.errors import Ds4scopeError, UsageError
from replay.models.cache import RewindRefused, Verdict
from replay.models.model import Tokens
from replay.models.snapshot import SnapshotError, read_arrays, write_arrays

#: tokens that are evaluated to learn how much memory a session takes
_SAMPLE: Final = 256


class LmSession:
    """Tokens and mlx-lm's list of caches, one a layer."""

    def __init__(self, engine: LmEngine) -> None:
        self.engine, self.cache = engine, engine.caches.make_prompt_cache(engine.model)
        self._tokens: Tokens = np.zeros(0, dtype=np.uint64)
        self._logits: NDArray[np.float32] | None = None
        self._points: dict[int, Any] = {}

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return len(self._tokens)

    @property
    def tokens(self) -> Tokens:
        """Their identities."""
        return self._tokens

    def common(self, tokens: Tokens) -> int:
        """How many leading tokens agree."""
        count = min(self.length, len(tokens))
        differ = np.flatnonzero(self._tokens[:count] != tokens[:count])
        return int(differ[0]) if differ.size else count

    def extend(self, tokens: Tokens) -> None:
        """Evaluate tokens after the present end, in one piece."""
        if not len(tokens):
            return
        words = mx.array((tokens % np.uint64(self.engine.vocabulary)).astype(np.int32))[None]
        logits = self.engine.model(words, cache=self.cache)[0, -1].astype(mx.float32)
        mx.eval(logits, [cache.state for cache in self.cache])
        self._tokens = np.concatenate([self._tokens, tokens])
        self._logits = np.array(logits)

    def logits(self) -> NDArray[np.float32] | None:
        """Of the next token; None right after a rewind."""
        return self._logits

    def can_rewind(self, position: int) -> Verdict:
        """Whether every layer's cache can be trimmed to that length, or the point was saved."""
        if not 0 <= position <= self.length:
            return Verdict(f"position {position} is not within the {self.length} tokens held")
        if position in (0, self.length) or position in self._points:
            return Verdict()
        kinds = sorted({type(cache).__name__ for cache in self.cache if not cache.is_trimmable()})
        if not kinds:
            return Verdict()
        return Verdict(f"mlx-lm cannot trim a {', '.join(kinds)} at {self.length} tokens to {position}")

    def rewind(self, position: int) -> None:
        """Cut to `position` tokens, or raise `RewindRefused`."""
        verdict = self.can_rewind(position)
        if not verdict:
            raise RewindRefused(verdict.reason)
        if position == self.length:
            return
        if position == 0:
            self.cache = self.engine.caches.make_prompt_cache(self.engine.model)
        elif position in self._points:
            self.cache = copy.deepcopy(self._points[position])
        else:
            self._trim(self.length - position)
        self._tokens, self._logits = self._tokens[:position], None
        self._points = {at: point for at, point in self._points.items() if at <= position}

    def _trim(self, tokens: int) -> None:
        trimmed = self.engine.caches.trim_prompt_cache(self.cache, tokens)
        if trimmed != tokens:  # never a silent trim
            raise RewindRefused(f"mlx-lm trimmed {trimmed} tokens where {tokens} were asked for")

    def save_point(self) -> None:
        """Remember this position; a copy of the cache only where it could not be trimmed back."""
        if not self.engine.caches.can_trim_prompt_cache(self.cache):
            self._points[self.length] = copy.deepcopy(self.cache)

    def reset(self) -> None:
        """Empty."""
        self.rewind(0)
        self._points = {}

    def fork(self) -> LmSession:
        """An independent copy."""
        twin = LmSession(self.engine)
        twin.cache, twin._tokens, twin._logits = copy.deepcopy(self.cache), self._tokens, self._logits
        return twin

    def restore(self, cache: list[Any], tokens: Tokens, logits: NDArray[np.float32] | None) -> None:
        """Become what was saved."""
        self.cache, self._tokens, self._logits = cache, tokens, logits


class LmEngine:
    """A model directory as mlx-lm reads it (`config.json`, `model*.safetensors`); nothing is downloaded."""

    #: rounding follows the shapes of chunks; a share of the largest logit
    tolerance = 0.02

    def __init__(self, path: Path) -> None:
        self.model, config, self.caches = _load(path)
        self.vocabulary = int(config.get("vocab_size") or config["text_config"]["vocab_size"])
        kinds = sorted({type(cache).__name__ for cache in self.caches.make_prompt_cache(self.model)})
        self.family = str(config.get("model_type", "unknown"))
        self.name = f"mlx-lm {self.family} ({len(self.model.layers)} layers, {', '.join(kinds)})"
        self._identity = f"mlx-lm {self.family} {self.vocabulary} {len(self.model.layers)}"

    def new(self) -> LmSession:
        """An empty session."""
        return LmSession(self)

    def decode(self, residents: Sequence[LmSession], tokens: Sequence[int]) -> None:
        """One token for each."""
        for resident, token in zip(residents, tokens, strict=True):
            resident.extend(np.array([token], dtype=np.uint64))

    def save(self, resident: LmSession, path: Path) -> int:
        """mlx-lm's own prompt cache file, then ours with the tokens and its digest: without it there is none."""
        cache = _cache_path(path)
        try:
            self.caches.save_prompt_cache(str(cache), resident.cache)
        except (OSError, RuntimeError) as error:
            cache.unlink(missing_ok=True)
            raise SnapshotError("E-KV-WRITE", f"checkpoint not written: {error}", path=str(cache)) from error
        arrays: dict[str, NDArray[Any]] = {"tokens": resident.tokens}
        if (logits := resident.logits()) is not None:
            arrays["logits"] = logits
        size = write_arrays(path, self._identity, arrays, cache=_digest(cache))
        return size + cache.stat().st_size

    def load(self, path: Path) -> LmSession:
        """Raises `SnapshotError` where one of the two files is foreign or damaged."""
        cache = _cache_path(path)
        try:
            arrays = read_arrays(path, self._identity, cache=_digest(cache))
        except OSError as error:
            raise SnapshotError("E-KV-DAMAGED", "the prompt cache is missing", path=str(cache)) from error
        session = LmSession(self)
        session.restore(self.caches.load_prompt_cache(str(cache)), arrays["tokens"], arrays.get("logits"))
        return session

    def session_bytes(self, tokens: int) -> int:
        """By a session of a few tokens; recurrent state does not grow, so this is an upper bound for it."""
        session = self.new()
        session.extend(np.arange(_SAMPLE, dtype=np.uint64))
        sample = sum(int(cache.nbytes) for cache in session.cache)
        return round(sample * max(1.0, tokens / _SAMPLE) * 1.5)


def _load(path: Path) -> tuple[Any, dict[str, Any], Any]:
    try:
        from mlx_lm.models import cache
        from mlx_lm.utils import load_model
    except ImportError as error:
        hint = 'pip install "ds4scope[lm]"; without --model the small models need nothing'
        raise UsageError("E-LM", f"--model needs mlx-lm ({error})", hint=hint) from error
    if not (path / "config.json").is_file():
        raise UsageError("E-LM", "not a model directory: there is no config.json in it", path=str(path))
    try:
        model, config = load_model(path)
    except Exception as error:  # mlx-lm lets whatever its model files raise pass
        raise Ds4scopeError("E-LM", f"mlx-lm cannot load it: {error}", path=str(path)) from error
    return model, config, cache


def _cache_path(path: Path) -> Path:
    return path.with_suffix(".cache.safetensors")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        total = sha256()
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()
