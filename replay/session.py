"""Slots: the resident sessions, what is bound to them, and one request on its way (R1, R3.30-R3.36)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from replay.outcome import StoreMade
from replay.tree import Node
from replay.workload import Asked, Image

if TYPE_CHECKING:
    from replay.disk import DiskFile

#: raw rows before a position that attention reads, and all that a disk file holds of them (R4.4, section 7)
WINDOW = 128
#: at most this many images in a visible key (R3.14)
KEY_IMAGES = 16


@dataclass(frozen=True, slots=True)
class Binding:
    """What a slot's live state answers to besides its tokens, while the slot is `pos` tokens long.

    `key` is the visible transcript in canonical tokens; `ids` the tool calls whose results may follow.
    """

    pos: int
    key: Node | None = None
    ids: frozenset[str] = frozenset()


@dataclass(slots=True)
class Session:
    """R1.1, R1.2: one resident KV session.

    `node` is the token list, kept when the checkpoint becomes invalid (R1.3); `continued_last` the tokens of
    the last continued or cold store of this conversation; `points` where earlier prompts and replies of the
    live state ended, ascending. `images` are those of the request that made the live state, `spans` the same
    where they lie in it: behind a hidden reply, not where the canonical prompt has them. `rows_from` is
    the first position whose raw rows the ring held at the last restore (a file holds the window only, R4.4)
    or rewind (what the ring had overwritten by then does not come back).
    """

    number: int
    node: Node
    valid: bool = False
    responses: Binding | None = None
    anthropic: Binding | None = None
    thinking: Binding | None = None
    continued_last: int = 0
    images: tuple[Image, ...] = ()
    spans: tuple[Image, ...] = ()
    points: list[int] = field(default_factory=list)
    rows_from: int = 0
    last_used: float = 0.0
    job: Job | None = None

    def bound(self, binding: Binding | None) -> Binding | None:
        """The binding if it is bound to the present length."""
        return binding if binding is not None and binding.pos == self.node.size else None

    def place(self, job: Job) -> None:
        """Where the images of a prompt will lie. What is reused has them where it had them; the rest of the
        effective prompt is the canonical one's, moved."""
        if not job.asked.images and not self.spans:
            return
        images, moved = job.asked.images, job.effective_size - job.prompt.size
        old = images if job.source in ("memory-rewind", "disk-text") else self.spans
        kept = tuple(image for image in old if image.at < job.cached)
        new = tuple(replace(image, at=image.at + moved) for image in images)
        self.spans = kept + tuple(image for image in new if image.at >= job.cached)

    def clear_bindings(self) -> None:
        """R3.7, R3.16."""
        self.responses = self.anthropic = self.thinking = None

    def invalidate(self, empty: Node) -> None:
        """R1.4: length 0, nothing bound."""
        self.node, self.valid, self.rows_from = empty, False, 0
        self.images = self.spans = ()
        self.points.clear()
        self.clear_bindings()

    def key(self) -> tuple[Node, str]:
        """R4.1, R5.4: the text under which the live state is stored, and the name of its kind. R5.7: the text of tokens
        holds sampled reasoning, which a client that does not send it back never matches."""
        for binding, kind in ((self.responses, "responses-visible"), (self.thinking, "thinking-visible")):
            fits = self.bound(binding)
            if fits is not None and fits.key is not None:
                return fits.key.text, kind
        return self.node.text, "token-text"


@dataclass(slots=True)
class Job:
    """One request on its way through the server, and what came of it. Seconds of the virtual clock.

    `prompt` is canonical, `effective` what is evaluated, of which the first `cached` tokens are reused.
    `gone`: its client left; `cut`: it must stop at the next point where it can.
    """

    asked: Asked
    prompt: Node
    sent_s: float
    required: frozenset[str] = frozenset()
    slot: int | None = None
    source: str | None = None
    effective: Node | None = None
    cached: int = 0
    prefilled: int = 0
    generated: int = 0
    live_before: int = 0
    common: int = 0
    evicted_live: int = 0
    loaded: int = 0
    file: DiskFile | None = None
    stores: list[StoreMade] = field(default_factory=list)
    evicted_files: int = 0
    start_s: float | None = None
    prefill_s: float | None = None
    end_s: float | None = None
    finish: str | None = None
    scores: tuple[int | None, ...] = ()
    gone: bool = False
    cut: bool = False
    failed: bool = False
    done: bool = False
    locked: bool = False

    @property
    def effective_size(self) -> int:
        """P of the span; 0 before the cache decision."""
        return 0 if self.effective is None else self.effective.size


def bind(session: Session, job: Job, key: Node | None, qwen_tools_key: bool) -> None:
    """R3.30-R3.32, R3.22: what the slot answers to after a request; `key` is its visible transcript."""
    asked, pos = job.asked, session.node.size
    session.clear_bindings()
    if job.finish in ("error", "length") or not pos or (key is None and not asked.calls):
        return
    ids = frozenset(asked.calls)
    if len(asked.images) > KEY_IMAGES:
        key = None
    if asked.api == "responses":
        session.responses = Binding(pos, key, ids)
    if asked.api == "anthropic" and ids:
        session.anthropic = Binding(pos, None, ids)
    if key is not None and thinks(asked, qwen_tools_key):
        session.thinking = Binding(pos, key)


def thinks(asked: Asked, qwen_tools_key: bool) -> bool:
    """R3.32: a chat turn without tools whose reasoning was open at the prompt's end and closed in the reply;
    R3.22: with tools too for Qwen chat in the last generation."""
    if not asked.thinking or asked.keeps_reasoning or asked.open_reasoning or asked.calls:
        return False
    return asked.api != "completion" and (not asked.tools or (qwen_tools_key and asked.api == "chat"))
