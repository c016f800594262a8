"""What a log says for certain about which token strings share how much. Defaults are in `replay.defaults`.

Read in file order, with the checkpoints that the log saw written and deleted, since a lookup that passes over
a file says that the prompt does not extend it (R4.10).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from parser.event import Event
from parser.reading import Reading
from parser.request import VISIBLE_KEYS, Request
from replay.marks import Between
from replay.prefixes import Agree, Guess, Part
from replay.shown import known, read_by_key, shown, surely
from replay.strings import (
    HIDDEN,
    canonical,
    live,
    measure,
    owner,
    successors,
    visible,
)  # fmt: skip

#: smallest file the store writes or finds (R4.2), where no start line says it
MIN_TOKENS = 512
#: files that a lookup passed over, the latest written
_PASSED = 64
_DISK_KINDS = ("kv_stored", "kv_hit", "kv_evicted", "kv_discarded")


@dataclass(slots=True, eq=False)
class LogFile:
    """A checkpoint: the first `tokens` tokens of `string` (-1: written before the log began)."""

    string: int
    tokens: int
    size_mib: float | None = None
    key: str | None = None
    name: str | None = None
    ctx: int | None = None
    text_bytes: int | None = None
    hits: int | None = None
    gone: bool = False
    known_from_hit: bool = False  # no line of the log wrote it
    doubtful: bool = False  # one of several that a deletion may mean: it may be gone


@dataclass(slots=True)
class Evidence:
    """Statements over the strings of `requests`, and what is known of the disk directory."""

    requests: list[Request]
    lengths: list[int]
    agreed: list[Agree] = field(default_factory=list)
    parted: list[Part] = field(default_factory=list)
    guesses: list[Guess] = field(default_factory=list)
    files: list[LogFile] = field(default_factory=list)
    #: index of a request -> index of the one that sat in its slot before it
    occupant: dict[int, int] = field(default_factory=dict)
    #: index -> index of the request whose live state it continued without equal tokens (R3.2)
    hidden: dict[int, int] = field(default_factory=dict)
    #: index -> index of the turn whose file it found by a visible key, which may hold other tokens than its prompt
    loaded: dict[int, int] = field(default_factory=dict)
    #: index -> the file it was served from
    served_from: dict[int, LogFile] = field(default_factory=dict)
    #: indices of requests that thought (a closed reasoning was remembered)
    thought: set[int] = field(default_factory=set)
    #: of these, indices of those whose visible length is only likely
    unsure: set[int] = field(default_factory=set)
    #: index -> tokens at the prompt's end that the visible key does not hold (R3.32)
    dropped: dict[int, int] = field(default_factory=dict)
    #: indices of requests after which the slot was empty: a client's stop sequence ended the reply (R3.36)
    emptied: set[int] = field(default_factory=set)
    #: index -> index of a request that was served while it waited, by their times
    waited: dict[int, int] = field(default_factory=dict)
    #: indices whose prompt is placed for certain at the end of an earlier string
    placed: set[int] = field(default_factory=set)

    def sent_back(self, index: int) -> int:
        """The string that a next prompt goes on from if its client sends all back: the visible one if there is one."""
        return visible(index) if self.lengths[visible(index)] else live(index)

    def loads_of(self, file: LogFile) -> int:
        """How often the log shows the file loaded."""
        return sum(one is file for one in self.served_from.values())


def gather(reading: Reading, ended: Mapping[int, Between]) -> Evidence:
    """All that `reading` says for certain. Where replies `ended` their reasoning (`replay.marks`) tells how long prompts are
    that no line gives the length of (`replay.shown`)."""
    return _Gatherer(reading, ended).evidence()


class _Gatherer:
    def __init__(self, reading: Reading, ended: Mapping[int, Between]) -> None:
        self.reading = reading
        self.requests = reading.requests
        self.of_event = {seq: i for i, r in enumerate(self.requests) for seq in r.events}
        thought = self._thought()
        hits = reading.events.rows("kv_hit") if reading.events is not None else ()
        read = read_by_key(hits, self.requests, self.of_event, thought)
        turns = known(self.requests, thought, read, ended)
        measured = measure(self.requests, shown(turns), thought, read)
        self.out = Evidence(self.requests, measured.lengths, thought=set(thought))
        self.out.unsure = (set(thought) & turns.turns.keys()) - surely(turns)
        self.out.hidden, self.out.dropped, self.out.loaded = measured.hidden, measured.dropped, read
        #: file name -> tokens, and a string that begins with its text
        self.named: dict[str, tuple[int, int]] = {}
        follows = successors(self.requests)
        self.out.occupant = {after: before for before, after in follows.items()}

    def _thought(self) -> dict[int, int]:
        """Index -> bytes of the visible key that a thinking turn left (LC9)."""
        log = self.reading.events
        found = log.rows("checkpoint") if log is not None else ()
        return {
            self.of_event[e.seq]: e.get("visible") or 0
            for e in found
            if e.rule == "thinking_remembered" and e.seq in self.of_event
        }

    def evidence(self) -> Evidence:
        """What the reading shows of each request."""
        decided = self._decided()
        for index, request in enumerate(self.requests):
            if not request.events:
                self._own(index)
        for event in self.reading.events.rows() if self.reading.events is not None else ():
            if event.kind in _DISK_KINDS:
                getattr(self, f"_{event.kind}")(event, self.of_event.get(event.seq))
            if event.seq in decided:
                self._decision(decided[event.seq])
        return self.out

    def _decided(self) -> dict[int, int]:
        """Event number -> index of the request whose cache decision is over with it: its `prompt start`, or the
        last line of an episode that has none."""
        log = self.reading.events
        starts = {event.seq for event in log.rows("prompt_start")} if log is not None else set()
        decided = {}
        for index, request in enumerate(self.requests):
            if request.events:
                own = [seq for seq in request.events if seq in starts]
                decided[own[0] if own else max(request.events)] = index
        return decided

    # -- the live state ------------------------------------------------------------------------------

    def _decision(self, index: int) -> None:
        request = self.requests[index]
        before = self._occupant(index)
        self._own(index)
        if request.source in HIDDEN:
            self._continued(index, before)
            return
        if before is not None:
            self._met(index, before)
            if self._found_empty(request) or self.requests[before].live_after == 0:
                self.out.emptied.add(before)
        if self._looks_up(request):
            self._silent_store(index, before)
            self._passed_over(index)

    def _occupant(self, index: int) -> int | None:
        return self.out.occupant.get(index)

    def _found_empty(self, request: Request) -> bool:
        """It reused nothing in memory, and no miss line says what was there (since 05-14 each miss has
        one)."""
        silent = not request.live_before and bool(self.reading.counts.get("live_miss"))
        return silent and request.source in ("cold", "disk-text")

    def _own(self, index: int) -> None:
        """The live string begins with the prompt, as far as it was evaluated; so does the visible one."""
        lengths, one = self.out.lengths, canonical(index)
        if index in self.out.loaded:
            cached, state = self.requests[index].cached_tokens or 0, live(self.out.loaded[index])
            self.out.agreed.append(
                Agree(live(index), state, min(cached, lengths[state], lengths[live(index)]))
            )
        elif index not in self.out.hidden:
            self.out.agreed.append(Agree(one, live(index), min(lengths[one], lengths[live(index)])))
        if lengths[visible(index)]:
            kept = lengths[one] - self.out.dropped.get(index, 0)
            self.out.agreed.append(Agree(one, visible(index), kept))

    def _continued(self, index: int, before: int | None) -> None:
        cached = self.requests[index].cached_tokens or 0
        if before is None:
            return
        self.out.agreed.append(Agree(live(index), live(before), cached))
        shown = self.out.lengths[visible(before)]
        one, tokens = (visible(before), shown) if shown else (live(before), cached)
        self.out.agreed.append(Agree(canonical(index), one, tokens))
        self.out.placed.add(index)

    def _met(self, index: int, before: int) -> None:
        request = self.requests[index]
        shared = _shared_with_live(request)
        if shared is None:
            return
        one, other = canonical(index), live(before)
        self.out.agreed.append(Agree(one, other, shared))
        whole = shared in (self.out.lengths[one], self.out.lengths[other])
        if whole:
            self.out.placed.add(index)
        else:
            self.out.parted.append(Part(one, other, shared))

    # -- the disk ------------------------------------------------------------------------------------

    def _looks_up(self, request: Request) -> bool:
        """Only a text request that nothing in memory serves looks at the disk (R3.13, ladder step 11)."""
        return request.source in ("cold", "disk-text") and not request.images and self._has_disk(request)

    def _has_disk(self, request: Request) -> bool:
        said = self.reading.runs[request.run].config.get("kv_disk") if self.reading.runs else None
        return bool(said) if said is not None else bool(self.out.files)

    def _ctx(self, index: int | None) -> int | None:
        if index is None or not self.reading.runs:
            return None
        return self.reading.runs[self.requests[index].run].config.get("ctx")

    def _present(self) -> Iterator[LogFile]:
        return (file for file in self.out.files if not file.gone)

    def _surely_there(self) -> Iterator[LogFile]:
        return (file for file in self._present() if not file.doubtful)

    def _kv_stored(self, event: Event, index: int | None) -> None:
        tokens, reason = event.get("tokens"), event.get("reason")
        string = self._stored_string(tokens, reason, index)
        file = LogFile(string, tokens, event.get("size_mib"), event.get("key"), ctx=self._ctx(index))
        if event.get("trimmed"):
            self._same_head(file)
        self._not_there_yet(file)
        self.out.files.append(file)

    def _same_head(self, file: LogFile) -> None:
        """Two cold checkpoints of one length and size, the first one deleted before: by default one head."""
        for other in reversed(self.out.files):
            if other.gone and other.tokens == file.tokens and _like(other.size_mib, file.size_mib):
                if min(other.string, file.string) >= 0 and other.string != file.string:
                    self.out.guesses.append(Guess(file.string, [(other.string, file.tokens)]))
                return

    def _not_there_yet(self, file: LogFile) -> None:
        """A store that prints its line found no file of its text (R4.20)."""
        for other in self._surely_there():
            known = min(other.string, file.string) >= 0 and other.string != file.string
            if known and other.tokens == file.tokens and other.key == file.key:
                self.out.parted.append(Part(file.string, other.string, file.tokens - 1))

    def _stored_string(self, tokens: int, reason: str, index: int | None) -> int:
        if reason in ("evict", "shutdown"):
            before = self._occupant(index) if index is not None else None
            if before is not None and self.out.lengths[live(before)] == tokens:
                return live(before)
            return self._latest_live(tokens)
        return live(index) if index is not None else -1

    def _latest_live(self, tokens: int) -> int:
        """The latest request that left so many tokens; the lengths of live states are their fingerprints."""
        found = (i for i in reversed(range(len(self.requests))) if self.out.lengths[live(i)] == tokens)
        return live(next(found, -1)) if tokens else -1

    def _kv_hit(self, event: Event, index: int | None) -> None:
        if index is None or not event.get("tokens"):
            return
        tokens = event.get("tokens")
        found = [f for f in self._present() if f.name == event.get("file") and f.name is not None]
        found = found or [
            f for f in self._present() if f.tokens == tokens and f.name is None and _one_key(f, event)
        ]
        if not found:
            found = [LogFile(-1, tokens, key=event.get("key"), known_from_hit=True)]
            self.out.files += found
        self._hit(index, found, event)

    def _hit(self, index: int, found: list[LogFile], event: Event) -> None:
        file = found[-1]
        self.out.served_from[index] = file
        tokens = event.get("tokens")
        known = self._read_before(index, event)
        if len(found) == 1:
            file.name, file.text_bytes = event.get("file"), event.get("text")
            if file.string < 0:
                file.string = canonical(index)
            else:
                self._extends(index, file)
        elif not known:
            ways = [(f.string, tokens) for f in reversed(found) if f.string >= 0]
            self.out.guesses.append(Guess(canonical(index), ways))
        if "consumed" in (event.get("flags") or ()) or event.get("consumed"):
            file.gone = True

    def _read_before(self, index: int, event: Event) -> bool:
        """A file's name is that of its text: two prompts that read one name share it, two that read different names of
        one length do not (R9.2). True if a request before read this one."""
        name, tokens = event.get("file"), event.get("tokens")
        if name is None or event.get("key") not in (None, "token-text"):
            return False
        if name in self.named:
            self.out.agreed.append(Agree(canonical(index), self.named[name][1], tokens))
            return True
        others = [other for size, other in self.named.values() if size == tokens]
        self.out.parted += [Part(canonical(index), other, tokens - 1) for other in others]
        self.named[name] = (tokens, canonical(index))
        return False

    def _extends(self, index: int, file: LogFile) -> None:
        if file.key not in VISIBLE_KEYS:
            self.out.agreed.append(Agree(canonical(index), file.string, file.tokens))
        else:
            one, tokens = self._text_of(file)
            one, tokens = (one, tokens) if one >= 0 else (file.string, file.tokens)
            self.out.agreed.append(
                Agree(canonical(index), one, min(tokens, self.out.lengths[canonical(index)]))
            )

    def _kv_evicted(self, event: Event, index: int | None) -> None:
        name, tokens, size = event.get("file"), event.get("tokens"), event.get("size_mib")
        same = [f for f in self._present() if name is not None and f.name == name]
        same = same or [f for f in self._present() if f.tokens == tokens and _like(f.size_mib, size)]
        if not same:
            same = [LogFile(-1, tokens, size, known_from_hit=True)]
            self.out.files += same
        if len(same) == 1 or all(file.doubtful for file in same):
            same[0].gone, same[0].hits, same[0].name = True, event.get("hits"), name
            if len(same) == 1 and name is not None and same[0].string >= 0 and same[0].key == "token-text":
                self.named.setdefault(name, (tokens, same[0].string))
        for file in same[1:]:
            file.doubtful = same[0].doubtful = True

    def _kv_discarded(self, event: Event, index: int | None) -> None:
        for file in self._present():
            if file.name is not None and file.name == event.get("file"):
                file.gone = True

    def _silent_store(self, index: int, before: int | None) -> None:
        """A miss whose live state was not stored and not refused: an identical file is there (R4.20)."""
        request = self.requests[index]
        tokens = request.live_before or 0
        if before is None or request.evict_stored or tokens < MIN_TOKENS or request.common == 0:
            return
        if any(store.reason == "evict" for store in request.stores):
            return
        same = [f for f in self._present() if f.tokens == tokens and f.string >= 0]
        if same:
            self.out.agreed.append(Agree(live(before), same[-1].string, tokens))

    def _passed_over(self, index: int) -> None:
        """R4.10: the prompt goes on from no file whose text is longer than that of the one that was read."""
        read = self.out.served_from.get(index)
        reached, limit = 0 if read is None else self._text_of(read)[1], self.out.lengths[canonical(index)]
        ctx, nearest = self._ctx(index), dict[int, int]()
        for file in self._surely_there():
            fits = file.ctx is None or ctx is None or file.ctx <= ctx
            string, tokens = self._text_of(file)
            if fits and string >= 0 and owner(string) != index and reached < tokens <= limit:
                nearest[string] = min(tokens, nearest.get(string, tokens))
        latest = list(nearest.items())[-_PASSED:]
        self.out.parted += [Part(canonical(index), string, tokens - 1) for string, tokens in latest]

    def _text_of(self, file: LogFile) -> tuple[int, int]:
        """The string of prompts that holds the file's text, and the tokens of the text in it; -1 if that is not known."""
        if file.key not in VISIBLE_KEYS:
            return file.string, file.tokens
        string = visible(owner(file.string)) if file.string >= 0 else -1
        return (string, self.out.lengths[string]) if string >= 0 and self.out.lengths[string] else (-1, 0)


def _one_key(file: LogFile, event: Event) -> bool:
    """Both are found by the same kind of text, as far as their lines say it."""
    return None in (file.key, event.get("key")) or file.key == event.get("key")


def _like(one: float | None, other: float | None) -> bool:
    return one is None or other is None or abs(one - other) < 0.006


def _shared_with_live(request: Request) -> int | None:
    """Tokens the prompt shares with what was in the slot, where the log says it; None for an invalid
    state."""
    if request.source in ("memory", "memory-token", "memory-text", "memory-rewind"):
        if request.cached_tokens is not None and request.prompt_tokens == request.cached_tokens + 1:
            return request.prompt_tokens if request.source == "memory-rewind" else request.cached_tokens
        return request.cached_tokens
    return request.common or None
