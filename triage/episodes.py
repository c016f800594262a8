"""Episodes: one request as the mechanisms see it, with the quantities of `mechanisms.md` section 1.

An episode is one request: its cache decision, its evict store, its disk hit, its prefill. Letters are the
specification's: L live tokens before, P prompt, C common, S start (reused), n prefilled, H disk hit,
E evicted and needed; primed letters are the previous request in the same slot. Unknown is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from parser.event import Event
from parser.request import Request


@dataclass(frozen=True, slots=True)
class Previous:
    """P', gen', L' of the request before in the same slot, and how that is known.

    `how` is "slot" (P' + gen' meets L), "excerpt" (the request just before, gen' not in the log) or
    "line" (another line of that request names its prompt). `finish` is as printed or None.
    """

    prompt: int
    generated: int | None
    finish: str | None
    flags: tuple[str, ...]
    how: str
    request: int | None = None
    images: int | None = None


@dataclass(eq=False)
class Episode:
    """One request with the events that speak about its cache. Token counts are tokens, times seconds.

    `events` are its own non-bulk events in file order, `before` the events between the previous
    `prompt start` and this one that belong to no request or to the previous one (repairs, errors).
    The letters are worked out once; `take` gives it more events and works them out anew.
    """

    request: Request
    events: list[Event] = field(default_factory=list)
    previous: Previous | None = None
    before: list[Event] = field(default_factory=list)
    running_tps: float | None = None  # average of the last chunk line
    last_chunk_s: float | None = None
    measured_s: float | None = None  # prefill seconds, wherever the log states or implies them
    start_override: int | None = None  # S named by a fork's own line

    def take(self, events: Iterable[Event], request: Request | None = None) -> None:
        """More of its events (and the row that has its span)."""
        self.events = sorted([*self.events, *events], key=lambda e: e.seq)
        self.request = request or self.request
        for name in _LETTERS:
            self.__dict__.pop(name, None)

    # -- lines -------------------------------------------------------------------------------------

    def of(self, kind: str, *rules: str) -> list[Event]:
        """Its events of `kind` (and of the given rules, if any)."""
        return [e for e in self.events if e.kind == kind and (not rules or e.rule in rules)]

    @cached_property
    def miss(self) -> Event | None:
        """Its miss line."""
        return next(iter(self.of("live_miss")), None)

    @cached_property
    def hit(self) -> Event | None:
        """The disk hit before its prefill (the last one, if the log shows several)."""
        hits = self.of("kv_hit")
        return hits[-1] if hits else None

    @cached_property
    def evict_store(self) -> Event | None:
        """The store of the state that this request displaced."""
        return next((e for e in self.of("kv_stored") if e.get("reason") == "evict"), None)

    @property
    def lines(self) -> tuple[int, ...]:
        """1-based lines of the input that tell this episode, the telling ones only."""
        told = [e.line for e in self.events if e.kind in _TELLING]
        return tuple(sorted(set(told))) or self.request.lines[:4] or (self.request.line,)

    # -- the letters -------------------------------------------------------------------------------

    @cached_property
    def live(self) -> int | None:
        """L: tokens in the slot before."""
        if self.miss is not None and self.miss.get("live") is not None:
            return int(self.miss.get("live"))
        if self.evict_store is not None:
            return _int(self.evict_store.get("tokens"))
        if self.request.live_before is not None:
            return self.request.live_before
        rewind = next(iter(self.of("live_rewind")), None)
        if rewind is not None and rewind.get("from") is not None:
            return int(rewind.get("from"))
        return None

    @cached_property
    def prompt(self) -> int | None:
        """P: the prompt of the miss line (canonical), else the end of the span."""
        if self.miss is not None and self.miss.get("prompt") is not None:
            return int(self.miss.get("prompt"))
        request = self.request
        return request.prompt_tokens if request.prompt_tokens is not None else request.canonical_prompt_tokens

    @cached_property
    def common(self) -> int | None:
        """C: tokens that live state and prompt share from the start; None without a miss line."""
        if self.miss is not None:
            return _int(self.miss.get("common"))
        return self.request.common if self.request.mismatch_first is not None else None

    @cached_property
    def start(self) -> int | None:
        """S: where the prefill really starts; None where no span (nor a fork's line) tells it."""
        if self.start_override is not None:
            return self.start_override
        return self.request.cached_tokens if self.spanned else None

    @property
    def spanned(self) -> bool:
        """A line with its `ctx=` span is in the input."""
        request = self.request
        return request.prefilled_tokens is not None and request.prompt_tokens is not None

    @cached_property
    def prefilled(self) -> int | None:
        """n: tokens that are prefilled; P - S."""
        if self.start_override is not None and self.prompt is not None:
            return self.prompt - self.start_override
        return self.request.prefilled_tokens if self.spanned else None

    @cached_property
    def hit_tokens(self) -> int | None:
        """H: tokens of the disk checkpoint that was read."""
        return _int(self.hit.get("tokens")) if self.hit is not None else self.request.disk_hit_tokens

    @cached_property
    def evicted(self) -> list[Event]:
        """Files deleted between the miss and `prompt start`."""
        start = self.request.prompt_line
        if start is None:
            start = next((e.line for e in self.events if e.kind == "prompt_start"), None)
        miss = self.miss.seq if self.miss is not None else -1
        return [e for e in self.of("kv_evicted") if e.seq > miss and (start is None or e.line < start)]

    # -- derived quantities (section 1) --------------------------------------------------------------

    @property
    def depth(self) -> int | None:
        """Tokens that were reused: S, else H, else None."""
        return self.start if self.start is not None else self.hit_tokens

    @property
    def reprefill(self) -> int | None:
        """reprefill_tokens: n, or P - S (P - H where only the hit is in the log)."""
        if self.prefilled is not None:
            return self.prefilled
        if self.prompt is None or self.depth is None:
            return None
        return max(0, self.prompt - self.depth)

    @property
    def changed(self) -> int | None:
        """changed_tokens: P - C, the text behind the point where prompt and live state part."""
        return None if self.prompt is None or self.common is None else max(0, self.prompt - self.common)

    @property
    def new(self) -> int | None:
        """new_tokens: P - L if P >= L, what would have been computed had the live state fitted."""
        if self.prompt is None or self.live is None or self.prompt < self.live:
            return None
        return self.prompt - self.live

    @property
    def not_replayed(self) -> int | None:
        """sampled_not_replayed_tokens: L - C; None where the line says that more is shared than was there."""
        known = self.live is not None and self.common is not None and self.common <= self.live
        return (self.live or 0) - (self.common or 0) if known else None

    def needed_eviction(self, slack: int) -> Event | None:
        """E: the deepest file within C + `slack` that was deleted before it could be loaded (hits = 0)."""
        if self.common is None:
            return None
        fitting = [
            e
            for e in self.evicted
            if (e.get("tokens") or 0) <= self.common + slack and not e.get("hits") and e.get("tokens")
        ]
        return max(fitting, key=lambda e: int(e.get("tokens")), default=None)

    def cache_loss(self, slack: int = 16) -> int | None:
        """cache_loss_tokens: max(C, E) - S, never below 0; the upper bound C where S is unknown."""
        evicted = self.needed_eviction(slack)
        known = max(self.common or 0, int(evicted.get("tokens")) if evicted is not None else 0)
        if self.common is None and evicted is None:
            return None
        return max(0, known - (self.depth or 0))

    @property
    def wasted_hit(self) -> int:
        """H - S: tokens that were loaded from disk and computed all the same; 0 where the hit was used."""
        if self.hit_tokens is None or self.start is None:
            return 0
        return max(0, self.hit_tokens - self.start)

    @property
    def seconds(self) -> float | None:
        """Seconds of this prefill, as the log states or implies them."""
        return self.request.prefill_s if self.request.prefill_s is not None else self.measured_s

    def seconds_of(self, tokens: int | None) -> float | None:
        """avoidable_seconds: this prefill's seconds times tokens / n; while it runs, tokens / average."""
        if tokens is None:
            return None
        n = self.prefilled
        if self.seconds is not None and n:
            return self.seconds * min(tokens, n) / n
        return tokens / self.running_tps if self.running_tps else None

    @property
    def projected(self) -> float | None:
        """projected_seconds: n / running average, for a prefill that the log does not finish."""
        if self.seconds is not None or not self.running_tps or not self.prefilled:
            return None
        return self.prefilled / self.running_tps

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of the request lines."""
        return self.request.flags


#: worked out once, forgotten when events are added
_LETTERS = (
    "miss", "hit", "evict_store", "live", "prompt", "common", "start", "prefilled", "hit_tokens", "evicted",
)  # fmt: skip
_TELLING = frozenset(
    {
        "live_miss", "live_rewind", "live_continuation", "multimodal_hit", "kv_stored", "kv_hit", "kv_evicted",
        "kv_skipped", "kv_failed", "kv_discarded", "prompt_start", "prompt_done", "tool_repair", "checkpoint",
        "stream_error", "slot_evicting", "finish",
    }
)  # fmt: skip


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def total(values: Iterable[int | None]) -> int | None:
    """Sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def total_s(values: Iterable[float | None]) -> float | None:
    """Sum of the known seconds, to the millisecond; None where nothing is known."""
    known = [value for value in values if value is not None]
    return round(sum(known), 3) if known else None
