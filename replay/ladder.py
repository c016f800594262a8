"""The reuse ladder: what of a slot's live state one request can use (sections 3.1-3.3). First match wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from replay.config import ServerConfig
from replay.seams import Reuse
from replay.session import Binding, Job, Session
from replay.tree import Forest, Node, common, extends


class Hit(NamedTuple):
    """What is reused: the first `cached` tokens of `prompt` (the effective prompt). `rewound`: the live state is
    cut back to `cached`; `restart`: the length is reported, but the evaluation starts at 0 (R3.6)."""

    source: str
    cached: int
    prompt: Node
    rewound: bool = False
    restart: bool = False


class Look:
    """One slot's live state and one request (the `Live` of `replay.seams`)."""

    __slots__ = ("_common", "asked", "config", "forest", "job", "session")

    def __init__(self, session: Session, job: Job, config: ServerConfig, forest: Forest) -> None:
        self.session, self.job, self.config, self.forest = session, job, config, forest
        self.asked = job.asked
        self._common = -1

    @property
    def live(self) -> int:
        """R1.3: the length, valid or not."""
        return self.session.node.size

    @property
    def common(self) -> int:
        """R1.3, R2.10: shared tokens of the canonical prompt and the live tokens; 0 if invalid."""
        if self._common < 0:
            self._common = common(self.session.node, self.job.prompt) if self.session.valid else 0
        return self._common

    @property
    def prompt(self) -> int:
        """Tokens of the canonical prompt."""
        return self.job.prompt.size

    @property
    def family(self) -> str:
        """Model family."""
        return self.config.family

    @property
    def ring(self) -> int:
        """Raw rows a layer."""
        return self.config.ring

    @property
    def rows_from(self) -> int:
        """The first position whose raw rows are still in the ring."""
        return max(self.session.rows_from, self.live - self.config.ring)

    @property
    def points(self) -> Sequence[int]:
        """Remembered positions, descending."""
        return self.session.points[::-1]

    def fits(self, frontier: int) -> bool:
        """R3.10: every image of the session is unchanged in the request, and new ones start at or behind the
        live frontier (given in tokens of the canonical prompt)."""
        if not self.config.generation.images:
            return True
        if not self.session.valid:
            return False
        old, new = self.session.images, self.asked.images
        return new[: len(old)] == old and all(image.at >= frontier for image in new[len(old) :])

    @property
    def visible(self) -> bool:
        """R2.15: the prompt's text extends the visible key that is bound to the present length."""
        session = self.session
        binding = session.responses if self.asked.api == "responses" else session.thinking
        return self._extends_key(session.bound(binding))

    def _extends_key(self, binding: Binding | None) -> bool:
        if binding is None or binding.key is None:
            return False
        key, text = binding.key, self.job.prompt.text
        return key.text.size < text.size and extends(text, key.text) and self.fits(key.size)

    def _spliced(self, text: Node) -> Node:
        """R3.2: the live tokens as sampled, and the rest of the prompt after `text`, tokenised."""
        node, prompt = self.session.node, self.job.prompt
        if self.common == node.size and text is node.text:
            return prompt
        return self.forest.extend(node, self.forest.after_text(prompt, text))

    def hit(self) -> Hit | None:
        """The ladder of the build's generation."""
        session = self.session
        if not session.node.size or (self.config.generation.probe and not session.valid):
            return None  # R3.20: the probe needs a valid checkpoint
        return self._by_key_or_ids() or self._by_tokens() or self._by_text()

    def _by_key_or_ids(self) -> Hit | None:
        """Steps 1-3: the visible transcript of a Responses turn, or the ids of the results it waits for."""
        session, asked = self.session, self.asked
        pos = session.node.size
        if asked.api == "responses":
            binding = session.bound(session.responses)
            if binding is not None and binding.key is not None and self._extends_key(binding):
                return Hit("responses-visible", pos, self._spliced(binding.key.text))
            if self._answers(binding):
                return Hit("responses-tool-output", pos, self._with_tail())
        if asked.api == "anthropic" and self._answers(session.bound(session.anthropic)):
            return Hit("anthropic-tool-output", pos, self._with_tail())
        return None

    def _answers(self, binding: Binding | None) -> bool:
        """Steps 2-3: the ids of the trailing results equal the bound ids."""
        results = self.asked.results
        if binding is None or not results or not binding.ids:
            return False
        return len(results) == len(binding.ids) and binding.ids == frozenset(results)

    def _with_tail(self) -> Node:
        """Live tokens and the tool tail of the prompt."""
        prompt = self.job.prompt
        tail = self.forest.after_tokens(prompt, prompt.size - self.asked.tool_tail)
        return self.forest.extend(self.session.node, tail)

    def _by_tokens(self) -> Hit | None:
        """Step 5 (GLM, exact retry: the prompt is cut to its end, R7.1) and step 6 (the live tokens are a prefix
        of the prompt); both behind the image gate of R3.10."""
        pos, prompt, shared = self.session.node.size, self.job.prompt, self.common
        retry = self.config.generation.exact_retry and self.config.family == "glm"
        if retry and 1 < prompt.size < pos and shared == prompt.size:
            return Hit("memory-rewind", prompt.size - 1, prompt, rewound=True) if self.fits(pos) else None
        if shared == pos and prompt.size >= pos and self.fits(pos):
            return Hit("memory-token", pos, prompt)
        return None

    def _by_text(self) -> Hit | None:
        """Step 7 (the visible transcript of a thinking turn) and step 8 (the rendered live tokens, R3.21)."""
        session = self.session
        pos, text = session.node.size, self.job.prompt.text
        binding = session.bound(session.thinking)
        if self.asked.api not in ("responses", "completion") and binding and self._extends_key(binding):
            assert binding.key is not None
            return Hit("thinking-visible", pos, self._spliced(binding.key.text))
        if not extends(text, session.node.text):
            return None
        effective = self._spliced(session.node.text)
        if not self.fits(self.job.prompt.size - (effective.size - pos)):
            return None
        return Hit("memory-text", pos, effective, restart=not session.valid)

    def rewind(self, policy: Reuse) -> Hit | None:
        """What a reuse policy keeps when the ladder found nothing; bounded so that a policy cannot cheat."""
        if not self.session.valid:
            return None
        seen = Look(self.session, self.job, self.config, self.forest)
        seen._common = self._unchanged()
        kept = min(policy.rewind(seen), seen._common, self.prompt - 1)
        cuts = any(image.at < kept < image.at + image.tokens for image in self.session.spans)
        if kept <= 0 or cuts:  # an image span is never cut (R6.9)
            return None
        return Hit("memory-rewind", kept, self.job.prompt, rewound=True)

    def _unchanged(self) -> int:
        """Of `common`, the tokens before the first image that is not the same in both, or not whole."""
        if not self.config.generation.images:
            return self.common
        old, new = set(self.session.spans), set(self.asked.images)
        ends = [image.at for image in old ^ new]
        ends += [image.at for image in old if image.at + image.tokens > self.common]
        return min([self.common, *ends])
