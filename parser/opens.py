"""Open requests: which request a line with a span, a decode span or no span at all belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from parser.event import Event
from parser.pending import Episode
from parser.request import Progress, Request, Store
from parser.trace import TraceRequest

Span = tuple[int, int, int]  # C, P, n as printed
#: Across two excerpts of a report: seconds by which stamps and printed times may part within one request, and
#: after which a line that carries neither span nor seconds is of another one.
_SAME_S, _APART_S = 60.0, 3_600.0


@dataclass(slots=True)
class Open:
    """A request while its lines come in. `t0` figures are seconds on the log's clock.

    `place` is the seq that orders it among requests (`prompt start`, else its first line); `extra` are
    tokens of earlier attempts and appended tool errors; `live_set` is a live length that a line names
    (canonicalised, remembered); `unprinted` is true where its `prompt start` is not in the input.
    """

    row: Request
    place: int
    span: Span | None = None
    episode: Episode | None = None
    first: int = 0
    last: int = 0
    events: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    started_at: float | None = None
    stamp: str | None = None  # of `prompt start`, as printed
    start_second: int | None = None  # its second of the day
    seen: list[tuple[float | None, float | None]] = field(default_factory=list)
    latest: tuple[float, float] | None = None  # the chunk line that bounds the start from below
    earliest: tuple[float, float] | None = None  # and from above
    last_at: float | None = None
    done_s: float | None = None
    done_seq: int | None = None
    done_at: float | None = None  # stamp of `prompt done`
    progress: Progress = field(default_factory=Progress)
    extra: int = 0
    live_set: int | None = None
    rebuild: Span | None = None
    dead: bool = False  # ended without a finish line (stream error, prefill failed)
    reset: bool = False  # its state was thrown away (DS13)
    finish_seq: int | None = None
    unprinted: bool = False
    trace: TraceRequest | None = None
    previous: Open | None = None  # the request before it in the same slot

    def touch(self, event: Event, at: float | None) -> None:
        """One of its lines: keep its place."""
        self.events.append(event.seq)
        self.lines.append(event.line)
        self.last = max(self.last, event.seq)
        self.last_at = at if at is not None else self.last_at

    def bound(self, at: float, elapsed: float) -> None:
        """A chunk line of this stamp and these seconds: keep it if none bounds the start more closely."""
        began = at - elapsed
        if self.latest is None or began > self.latest[0] - self.latest[1]:
            self.latest = (at, elapsed)
        if self.earliest is None or began < self.earliest[0] - self.earliest[1]:
            self.earliest = (at, elapsed)

    def misses(self, event: Event, at: float | None) -> float:
        """How badly a `prompt done` or `finish` line fits this request in time (0 fits, seconds off)."""
        elapsed: float | None = event.get("elapsed_s")
        if elapsed is None or at is None or self.started_at is None:
            return 0.0
        off = abs((at - self.started_at) - elapsed)
        return max(0.0, off - 1.1)

    def decode_misses(self, event: Event, at: float | None) -> float:
        """The same for a decode line, whose seconds count from the end of the prefill."""
        elapsed: float | None = event.get("elapsed_s")
        if elapsed is None or at is None or self.done_at is None:
            return 0.0
        return max(0.0, abs((at - self.done_at) - elapsed) - 1.1)

    def apart(self, event: Event, at: float) -> bool:
        """Whether a line of a later excerpt cannot be of this request, or of anything that it still does: its own
        seconds contradict the stamps, or it says nothing of whose it is and comes hours later."""
        decoded = event.kind == "decoding"
        span = span_of(event)
        if decoded and span is not None and event.get("gen") is not None:
            own = span[1] - event.get("gen") == self.row.prompt_tokens
        else:
            own = span is None or span == self.span
        if not own:
            return False
        elapsed = event.get("elapsed_s") if span is not None else None
        if elapsed is not None:
            begun_later = self.last_at is not None and at - elapsed - self.last_at > _SAME_S
            return begun_later or (self.decode_misses if decoded else self.misses)(event, at) > _SAME_S
        return self.last_at is not None and not -_SAME_S <= at - self.last_at <= _APART_S

    def behind(self, done: int | None) -> int:
        """Tokens that a chunk line of `done` lies ahead of its last one; much where it would go back."""
        if done is None:
            return 0
        last = -1 if self.progress.last_done is None else self.progress.last_done
        return done - last if done > last else 1 << 40


class Opens:
    """The table of requests that have started and not ended."""

    def __init__(self) -> None:
        self.by_span: dict[Span, list[Open]] = {}
        self.all: dict[int, Open] = {}  # id(open) -> open, in order of start
        self.carried: list[Open] = []  # those that an earlier excerpt of a report left open

    def __len__(self) -> int:
        return len(self.all)

    def add(self, opened: Open) -> None:
        """Enter a request under its span."""
        self.all[id(opened)] = opened
        if opened.span is not None:
            self.by_span.setdefault(opened.span, []).append(opened)

    def turn_page(self) -> None:
        """Another excerpt begins."""
        self.carried = list(self.all.values())

    def apart(self, event: Event, at: float | None) -> list[Open]:
        """Those of an earlier excerpt that a line shows to be over."""
        return [] if at is None else [o for o in self.carried if id(o) in self.all and o.apart(event, at)]

    def remove(self, opened: Open) -> None:
        """It ended."""
        self.all.pop(id(opened), None)
        if opened.span is None:
            return
        left = [o for o in self.by_span.get(opened.span, ()) if o is not opened]
        if left:
            self.by_span[opened.span] = left
        else:
            self.by_span.pop(opened.span, None)

    def in_prefill(self, span: Span | None, event: Event, at: float | None) -> Open | None:
        """For `prompt done` and prefill chunks: the open request of this span that is still in prefill."""
        only = self.by_span.get(span, ()) if span is not None else ()
        if len(only) == 1 and only[0].done_seq is None:
            return only[0]
        return _best([o for o in self._of(span) if o.done_seq is None], event, at)

    def any(self, span: Span | None) -> Open | None:
        """For tool, checkpoint and stream lines: prefer the one that decodes."""
        opened = self._of(span)
        decoding = [o for o in opened if o.done_seq is not None]
        return next(iter(decoding or opened), None)

    def finishing(self, span: Span | None, event: Event, at: float | None) -> Open | None:
        """For `finish`: the request of this span whose decoded tokens and seconds agree with the line."""
        opened = self._of(span)
        if len(opened) == 1:
            return opened[0]
        decoding = [o for o in opened if o.done_seq is not None] or opened
        gen = event.get("gen")
        exact = [o for o in decoding if gen is not None and o.progress.decoded == gen]
        return _best(exact or decoding, event, at)

    def decoding(self, prompt: int, before: int, event: Event, at: float | None) -> Open | None:
        """For a decode line of prompt length `prompt` whose last line stood at `before` generated tokens."""
        opened = [o for o in self.all.values() if o.row.prompt_tokens == prompt]
        ready = [o for o in opened if o.done_seq is not None] or opened
        exact = [o for o in ready if (o.progress.decoded or 0) == before]
        fits = exact or ready
        if len(fits) <= 1:
            return fits[0] if fits else None
        return min(fits, key=lambda o: (round(o.decode_misses(event, at), 3), o.first))

    def settle_decode(self, opened: Open, gen: int | None) -> None:
        """A finish line whose tokens the decode lines of another request with that P show: they were its."""
        if gen is None or opened.progress.decoded == gen:
            return
        for other in self.all.values():
            alike = other is not opened and other.row.prompt_tokens == opened.row.prompt_tokens
            if alike and other.progress.decoded == gen:
                mine, its = opened.progress, other.progress
                opened.progress, other.progress = _with_decode_of(mine, its), _with_decode_of(its, mine)
                return

    def rebuilding(self, span: Span | None) -> Open | None:
        """For chunks of a tool-checkpoint rebuild, which carry the rebuild's own span."""
        return next((o for o in self.all.values() if span is not None and o.rebuild == span), None)

    def _of(self, span: Span | None) -> list[Open]:
        if span is None:
            return []
        return self.by_span.get(span) or self._adopted(span)

    def _adopted(self, span: Span) -> list[Open]:
        """A request of which only decode lines were seen so far learns its span (those give P alone)."""
        for opened in self.all.values():
            if opened.span is None and opened.row.prompt_tokens == span[1]:
                opened.span = span
                set_span(opened)
                self.by_span[span] = [opened]
                return [opened]
        return []


def _best(opened: list[Open], event: Event, at: float | None) -> Open | None:
    """The one that fits in time; the oldest of equals (symmetric as far as the log tells)."""
    if len(opened) <= 1:
        return opened[0] if opened else None
    done = event.get("done")
    return min(opened, key=lambda o: (round(o.misses(event, at), 3), o.behind(done), o.first))


def _with_decode_of(one: Progress, other: Progress) -> Progress:
    return replace(
        one,
        decodes=other.decodes,
        decoded=other.decoded,
        decode_s=other.decode_s,
        decode_tps=other.decode_tps,
    )


def set_span(opened: Open) -> None:
    """P, C and n of the row; n wins where the three numbers disagree (mechanisms section 1)."""
    if opened.span is None:
        return
    row, (_, prompt, new) = opened.row, opened.span
    row.prompt_tokens, row.cached_tokens, row.prefilled_tokens = prompt, max(0, prompt - new), new


def span_of(event: Event) -> Span | None:
    """The span `C..P:n` of a line, None where it is cut off."""
    fields = event.fields
    start, end = fields.get("span_start"), fields.get("span_end")
    if start is None or end is None:
        return None
    tokens = fields.get("span_tokens")
    return (start, end, max(0, end - start) if tokens is None else tokens)


def reaches(opened: Open, tokens: int) -> bool:
    """Can a store of `tokens` lie on this request's way (in its prefill, or behind its prompt)?"""
    if opened.span is None:
        return False
    cached, prompt = opened.span[1] - opened.span[2], opened.span[1]
    if opened.done_seq is None:
        return cached < tokens <= prompt
    return tokens >= prompt


def position(opened: Open, progress: Progress) -> int:
    """The live length of the last line seen: C + done, or P + generated."""
    if opened.span is None:
        return 0
    if opened.done_seq is not None:
        return opened.span[1] + (progress.decoded or 0)
    return opened.span[1] - opened.span[2] + (progress.last_done or 0)


def request_span(event: Event) -> Span | None:
    """`request_ctx=` of the rebuild lines."""
    start, end, tokens = (event.get(f"request_span_{part}") for part in ("start", "end", "tokens"))
    return (start, end, tokens) if start is not None and end is not None and tokens is not None else None
