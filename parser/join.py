"""Events -> requests: one row a request, joined across interleaving (log-formats section 6).

`Joiner.feed` takes events in file order; rows that are closed lie in `Joiner.closed`. Which slot served a
request is not decided here (`parser.slots`), nor who continues whom (`parser.conversations`).
"""

from __future__ import annotations

from collections.abc import Callable

from parser.bulk import Bulk, absorb
from parser.clock import Clock, Stamp
from parser.event import Event
from parser.lifetimes import FATAL
from parser.opens import Open, Opens, Span, position, reaches, request_span, span_of
from parser.pending import Episode, Pending
from parser.progress import with_chunk, with_decode
from parser.request import Request
from parser.rows import begin_row, file_name, finish_row, from_episode, store_of

#: episodes that may wait for their `prompt start` in a log of many slots
_WAITING = 64
#: requests that may be open at once: more than any server runs; the oldest of more is over
_MOST_OPEN = 256
#: a request is over when so many lines and seconds went by without one of its own
_QUIET_LINES, _QUIET_S = 200_000, 1_800.0


class Joiner:
    """The open requests of one server run after another, and what waits for its `prompt start`.

    `serial`: one request at a time can be running (single mode), so nearness joins what numbers do not.
    `near`: nothing says how many run at once (excerpts): a line may be left out between miss and start.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.opens = Opens()
        self.pending = Pending()
        self.closed: list[Open] = []
        self.serial = self.near = False
        self.run = 0
        self.bulk: Bulk | None = None  # chunk and decoding lines of the block at hand, as columns
        self._evicted: list[Event] = []
        self._excerpt = self._source = 0
        self._handlers: dict[str, Callable[[Event, float | None], object]] = {
            "live_miss": self._miss,
            "live_rewind": self._note,
            "live_continuation": self._note,
            "multimodal_hit": self._note,
            "slot_evicting": lambda event, at: self.pending.routed.append(event),
            "kv_stored": self._store,
            "kv_skipped": self._store,
            "kv_failed": self._store,
            "kv_hit": lambda event, at: self.pending.hit(event),
            "kv_evicted": lambda event, at: self._evicted.append(event),
            "kv_discarded": self._discarded,
            "prompt_start": self._start,
            "prefill_chunk": self._chunk,
            "prompt_done": self._done,
            "decoding": self._decoding,
            "finish": self._finish,
            "tool_calls": self._spanned,
            "tool_repair": self._repair,
            "checkpoint": self._checkpoint,
            "stream_error": self._stream_error,
        }

    def feed(self, event: Event) -> None:
        """One event, in file order."""
        if event.excerpt != self._excerpt:
            self._turn_page(event.excerpt)
        if event.source != self._source:  # the next file may begin before this one ended
            self._source = event.source
            self.clock.forget_order()
        handler = self._handlers.get(event.kind)
        at = self.clock.seconds(event.stamp)
        for opened in self.opens.carried and self.opens.apart(event, at):
            self._close(opened)
        if handler is not None:
            handler(event, at)

    def begin_block(self, bulk: Bulk | None) -> None:
        """Another block, its chunk and decoding lines perhaps as columns."""
        self.bulk = bulk

    def end_block(self) -> None:
        """Requests that stay open take what the columns say of them."""
        for opened in self.opens.all.values() if self.bulk is not None else ():
            self._absorb(opened)

    def bury(self, seq: int, at: float | None) -> None:
        """Requests of which nothing was heard for long are over (no line says so): rows must not wait."""
        for opened in list(self.opens.all.values()):
            quiet = at is None or opened.last_at is None or at - opened.last_at > _QUIET_S
            if quiet and seq - opened.last > _QUIET_LINES:
                self._close(opened)

    def _absorb(self, opened: Open) -> None:
        if self.bulk is None:
            return
        reduced = self.bulk.by_start.pop(opened.place, None)
        if reduced is None:
            return
        if opened.start_second is None and (stamp := Stamp.parse(opened.stamp)) is not None:
            opened.start_second = stamp.second
        absorb(opened, reduced)

    def end_run(self) -> None:
        """The process ended (restart, end of input): what is open or waits will get no more lines."""
        self._flush()
        for opened in list(self.opens.all.values()):
            self._close(opened)

    def frontier(self) -> float:
        """No request that is not closed yet has a line before this seq."""
        waiting = [e.events[0].seq for e in self.pending.episodes] + [
            hit.seq for hit in self.pending.hits[:1]
        ]
        return min([*(o.first for o in self.opens.all.values()), *waiting], default=float("inf"))

    # -- before the prompt starts --------------------------------------------------------------------

    def _miss(self, event: Event, at: float | None) -> None:
        if self.serial:
            self._flush()
        self.pending.miss(event)
        for episode in self.pending.drop_older(_WAITING):
            self._row_of(episode)

    def _note(self, event: Event, at: float | None) -> None:
        if event.rule == "refused" and self.serial:
            self._flush()
        self.pending.note(event)

    def _start(self, event: Event, at: float | None) -> None:
        span = span_of(event)
        if self.serial:
            for left in list(self.opens.all.values()):
                self._close(left)
        cached = span[1] - span[2] if span else None
        episode = None
        if span is not None and cached is not None:
            alone = self.serial or (self.near and not self.opens.all and self.pending.lone(span[1]))
            episode = self.pending.claim(max(0, cached), span[1], serial=alone, near=self.near, seq=event.seq)
            episode = self._exact_miss(span[1], episode)
        if self.serial:
            self._flush()
        opened = self._open(event, at, span)
        opened.started_at, opened.stamp, opened.episode = at, event.stamp, episode
        self._give_evictions(opened)

    def _exact_miss(self, prompt: int, episode: Episode | None) -> Episode | None:
        """A miss that went to a request of nearly its length goes to the one of exactly its length."""
        if episode is None or episode.miss is not None or episode.note is not None:
            return episode
        for other in self.opens.all.values():
            held = other.episode
            if held and held.prompt == prompt and other.span and other.span[1] != prompt and held.hit:
                mine = Episode(miss=held.miss, evict=held.evict, hit=episode.hit, slot=held.slot)
                mine.events = [e for e in held.events if e is not held.hit] + episode.events
                other.episode = Episode(hit=held.hit, events=[held.hit])
                return mine
        return episode

    def _open(self, event: Event, at: float | None, span: Span | None) -> Open:
        row = Request(0, event.line, run=self.run, excerpt=event.excerpt)
        opened = Open(row, place=event.seq, span=span, first=event.seq)
        opened.touch(event, at)
        row.api = event.get("api")
        begin_row(opened, event)
        self.opens.add(opened)
        if len(self.opens) > _MOST_OPEN:
            self._close(next(iter(self.opens.all.values())))
        return opened

    def _unprinted(self, event: Event, at: float | None, span: Span | None) -> Open:
        """A line of a request whose `prompt start` is not in the input: a row with nulls."""
        opened = self._open(event, at, span)
        opened.unprinted = True
        self._claim_late(opened)
        return opened

    def _claim_late(self, opened: Open) -> None:
        """What waits for a `prompt start` that is not in the input, as soon as another line tells the numbers."""
        if not opened.unprinted or opened.episode is not None:
            return
        if opened.span is not None:
            _, prompt, new = opened.span
            cached = max(0, prompt - new)
            opened.episode = self.pending.claim(cached, prompt, serial=self.serial, near=self.near)
        elif opened.row.prompt_tokens is not None:
            opened.episode = self.pending.claim_prompt(opened.row.prompt_tokens)

    # -- disk ----------------------------------------------------------------------------------------

    def _store(self, event: Event, at: float | None) -> None:
        if event.rule in ("load", "create") or event.get("reason") is None:
            self.pending.loose.append(event)
            return
        owner = self._owner_of_store(event)
        if isinstance(owner, Episode):
            owner.events.extend(self._evicted)
        elif owner is not None:
            owner.touch(event, at)
            if event.kind == "kv_stored":
                owner.stores.append(store_of(event))
            self._give_evictions(owner)
        if owner is not None:
            self._evicted = []

    def _owner_of_store(self, event: Event) -> Episode | Open | None:
        reason, tokens = event.get("reason"), event.get("tokens")
        if reason == "evict":
            return self.pending.evict_store(event)
        if reason == "cold":
            return self._cold_owner(tokens, event.get("trimmed"))
        if reason in ("continued", "interval-catchup"):
            return self._continued_owner(event, tokens)
        return None

    def _cold_owner(self, tokens: int | None, trimmed: int | None) -> Open | None:
        """DS1 cold: tokens + trimmed = P, C = 0, between `prompt start` and the first decode line."""
        whole = None if tokens is None or trimmed is None else tokens + trimmed
        for opened in self.opens.all.values():
            fits = opened.span is not None and (whole is None or opened.span[1] == whole)
            if fits and not any(store.reason == "cold" for store in opened.stores):
                return opened
        return self._only_open()

    def _continued_owner(self, event: Event, tokens: int | None) -> Open | None:
        """DS1 continued: the position just reached by a prefill (C + done) or passed by decoding."""
        if tokens is None or len(self.opens) <= 1:
            return self._only_open()
        able = [o for o in self.opens.all.values() if o.span and reaches(o, tokens)]
        if len(able) <= 1:
            return able[0] if able else None
        return min(able, key=lambda o: self._distance(o, event.seq, tokens))

    def _distance(self, opened: Open, seq: int, tokens: int) -> tuple[int, int]:
        """How far from `tokens` a request had come by the line `seq`, and how long that is ago."""
        seen = self.bulk.seen(opened, seq) if self.bulk is not None else opened
        return abs(position(opened, seen.progress) - tokens), -seen.last

    def _only_open(self) -> Open | None:
        return next(iter(self.opens.all.values())) if len(self.opens) == 1 else None

    def _give_evictions(self, opened: Open) -> None:
        """DS12 lines stand before the store (or the start) that needed the room."""
        for event in self._evicted:
            opened.events.append(event.seq)
            opened.lines.append(event.line)
            opened.row.evicted_files += (event.seq,)
        self._evicted = []

    def _discarded(self, event: Event, at: float | None) -> None:
        """DS13: the load of an open request turned out useless; its slot is empty now."""
        name = file_name(event.get("file"))
        for opened in self.opens.all.values():
            hit = opened.episode.hit if opened.episode else None
            if hit is not None and file_name(hit.get("file")) == name and opened.done_seq is None:
                opened.touch(event, at)
                opened.reset = event.rule.startswith("prefill_failed")
                return

    # -- prefill, decode, end --------------------------------------------------------------------------

    def _chunk(self, event: Event, at: float | None) -> None:
        span = span_of(event)
        if event.get("phase") == "tool checkpoint rebuild":
            rebuilt = self.opens.rebuilding(span) or self._only_open()
            if rebuilt is not None:
                rebuilt.last, rebuilt.last_at = event.seq, at
            return
        opened = self.opens.in_prefill(span, event, at) or self.opens.any(span) or self._guess(span)
        if opened is None:
            opened = self._unprinted(event, at, span)
        with_chunk(opened, event, at)

    def _guess(self, span: Span | None) -> Open | None:
        """A line whose span was cut off belongs to the only open request."""
        return self._only_open() if span is None else None

    def _done(self, event: Event, at: float | None) -> None:
        span = span_of(event)
        opened = self.opens.in_prefill(span, event, at) or self._guess(span)
        if opened is None:
            opened = self._unprinted(event, at, span)
        opened.touch(event, at)
        opened.done_seq, opened.done_at, opened.done_s = event.seq, at, event.get("elapsed_s")
        opened.seen.append((at, opened.done_s))
        opened.row.prefill_s = opened.done_s

    def _decoding(self, event: Event, at: float | None) -> None:
        end, gen, start = event.get("span_end"), event.get("gen"), event.get("span_start")
        prompt = end - gen if end is not None and gen is not None else None
        opened = self._only_open()
        if prompt is not None:
            opened = self.opens.decoding(prompt, (start or 0) - prompt, event, at)
        if opened is None:
            opened = self._unprinted(event, at, None)
            opened.row.prompt_tokens = prompt
            self._claim_late(opened)
        with_decode(opened, event, at)

    def _finish(self, event: Event, at: float | None) -> None:
        span = span_of(event)
        opened = self.opens.finishing(span, event, at) or self._guess(span)
        if opened is None:
            opened = self._unprinted(event, at, span)
        self._claim_late(opened)
        self._absorb(opened)
        self.opens.settle_decode(opened, event.get("gen"))
        opened.touch(event, at)
        opened.seen.append((at, event.get("elapsed_s")))
        opened.finish_seq = event.seq
        finish_row(opened, event, at)
        self._close(opened)

    # -- tools, checkpoints, clients ------------------------------------------------------------------

    def _spanned(self, event: Event, at: float | None) -> Open | None:
        span = span_of(event)
        opened = self.opens.any(span) or self._guess(span)
        if opened is not None:
            opened.touch(event, at)
        return opened

    def _repair(self, event: Event, at: float | None) -> None:
        opened = self._spanned(event, at)
        if opened is not None and event.rule == "continued":
            opened.extra += (event.get("tokens") or 0) + (opened.progress.decoded or 0)

    def _checkpoint(self, event: Event, at: float | None) -> None:
        request = request_span(event) or span_of(event)
        opened = self.opens.any(request) or self._guess(request)
        if opened is None:
            return
        opened.touch(event, at)
        if event.rule == "needs_rebuild":
            opened.rebuild = span_of(event)
            hit = self.pending.take_hit(event.get("cached")) if event.get("source") == "disk" else None
            if hit is not None:
                opened.touch(hit, at)
        target = event.get("target") if event.rule == "rebuild_done" else event.get("canonical")
        if event.rule in ("canonicalized", "rebuild_done", "thinking_remembered"):
            opened.live_set = event.get("live") if event.rule == "thinking_remembered" else target

    def _stream_error(self, event: Event, at: float | None) -> None:
        opened = self._spanned(event, at)
        if opened is None:
            return
        opened.row.client_gone = True
        opened.dead = event.rule in FATAL
        if event.rule in ("prefill_failed", "sse_error"):
            opened.row.error = event.get("error")
        if opened.dead:
            self._close(opened)

    # -- closing ---------------------------------------------------------------------------------------

    def _close(self, opened: Open) -> None:
        self._absorb(opened)
        self.opens.remove(opened)
        from_episode(opened)
        self.closed.append(opened)

    def _flush(self) -> None:
        for episode in self.pending.flush():
            self._row_of(episode)

    def _row_of(self, episode: Episode) -> None:
        """A miss, hit or continuation whose `prompt start` is not in the input."""
        first = episode.events[0]
        row = Request(0, first.line, run=self.run, excerpt=first.excerpt)
        opened = Open(row, place=first.seq, first=first.seq, episode=episode, unprinted=True)
        from_episode(opened)
        self.closed.append(opened)

    def _turn_page(self, excerpt: int) -> None:
        """Another excerpt of a report: nothing is joined across, but for equal spans of open requests."""
        self._flush()
        self.opens.turn_page()
        self._evicted = []
        self._excerpt = excerpt
        self.clock.forget_order()
