"""View: one input (or one segment of it) as the mechanisms see it: episodes, rare events, server, hearsay."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from parser.event import Event
from parser.reading import Reading, Server, ServerRun
from parser.request import Request
from triage.episodes import Episode
from triage.thresholds import Thresholds

#: kinds that are kept as objects even in a long log: they are few, and the mechanisms live on them
RARE: Final = (
    "live_miss", "live_rewind", "live_continuation", "multimodal_hit", "kv_stored", "kv_hit", "kv_evicted",
    "kv_skipped", "kv_failed", "kv_discarded", "tool_repair", "checkpoint", "stream_error", "slot_evicting",
    "vision_cache", "startup", "shutdown",
)  # fmt: skip
#: kinds that are kept as objects in a short input only
COMMON: Final = ("prompt_start", "prompt_done", "finish", "tool_calls")


@dataclass(slots=True)
class Gap:
    """Two neighbouring lines of one request: what the stamps and what the printed seconds moved by."""

    first: Event
    second: Event
    wall_s: float | None
    printed_s: float | None
    tokens: int | None
    usual_s: float | None = None  # seconds per token of its neighbours


@dataclass
class View:
    """What one input holds, for the mechanisms. Built by `triage.build.view_of`.

    `episodes` are the requests that need judging, in order; `events` are the rare events by kind in file
    order; `when` maps an event's seq to seconds since the first stamp.
    """

    reading: Reading
    limits: Thresholds
    episodes: list[Episode] = field(default_factory=list)
    events: dict[str, list[Event]] = field(default_factory=dict)
    owner: dict[int, Episode] = field(default_factory=dict)
    talk: dict[int, str | None] = field(
        default_factory=dict
    )  # seq -> conversation of the request that it belongs to
    when: dict[int, float] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    steps: list[Event] = field(default_factory=list)  # decode_batch, some of them
    finish_flags: dict[int, tuple[str, ...]] = field(default_factory=dict)
    engine: list[Event] = field(default_factory=list)  # lines of the engine and of other programs
    rate: float | None = None  # the log's own prefill tokens a second (median), None where it shows none
    rates: tuple[float, float] | None = None  # its range
    earlier: list[Request] = field(
        default_factory=list
    )  # the last requests of the stretch before (long logs)
    memo: dict[str, Any] = field(default_factory=dict)

    # -- events ------------------------------------------------------------------------------------

    def of(self, kind: str, *rules: str) -> list[Event]:
        """Events of `kind` (and of the given rules, if any) in file order."""
        found = self.events.get(kind, [])
        return [e for e in found if e.rule in rules] if rules else found

    @cached_property
    def misses(self) -> list[Episode]:
        """Episodes with a miss line, in order."""
        return [e for e in self.episodes if e.miss is not None]

    @cached_property
    def consumed(self) -> list[Event]:
        """Hits whose file was deleted by them, in file order."""
        return [e for e in self.of("kv_hit") if e.get("consumed")]

    @property
    def requests(self) -> list[Request]:
        """All requests of the input, in order of their start."""
        return self.reading.requests

    @cached_property
    def by_number(self) -> dict[int, Request]:
        """Request number -> row."""
        return {r.request: r for r in (*self.earlier, *self.requests)}

    @cached_property
    def last_of_conversation(self) -> dict[tuple[int, str], int]:
        """(run, conversation) -> number of its last request."""
        return {(r.run, r.conversation): r.request for r in self.requests if r.conversation is not None}

    def mate(self, episode: Episode) -> Request | None:
        """The request before it in its slot, as the parser chains them."""
        return self.by_number.get(episode.request.previous_in_slot or -1)

    def after(self, request: Request) -> list[Request]:
        """Requests that started later."""
        first = self.requests[0].request if self.requests else 1
        return self.requests[request.request - first + 1 :]

    @cached_property
    def start_lines(self) -> list[int]:
        """Lines of `prompt start`, in order."""
        return sorted(r.prompt_line for r in self.requests if r.prompt_line is not None)

    @property
    def server(self) -> Server:
        """Profile, slots and configuration, with their evidence."""
        return self.reading.server

    def run_of(self, episode: Episode) -> ServerRun | None:
        """The server process that served it."""
        runs = self.reading.runs
        return runs[episode.request.run] if 0 <= episode.request.run < len(runs) else None

    def run_at(self, event: Event) -> int:
        """Index of the server process whose lines surround an event."""
        place = bisect_right(self._first_seqs, event.seq)
        return self.reading.runs[place - 1].run if place else 0

    @cached_property
    def _first_seqs(self) -> list[int]:
        return [run.first_seq for run in self.reading.runs]

    def config(self, episode: Episode | None, name: str) -> Any:
        """A server option: of the episode's run, else of the input as a whole; None where not said."""
        run = self.run_of(episode) if episode is not None else None
        if run is not None and name in run.config:
            return run.config[name]
        return self.server.config.get(name)

    def slots(self, episode: Episode | None = None) -> int | None:
        """Configured slots; None where nothing tells."""
        run = self.run_of(episode) if episode is not None else None
        if run is not None and run.slots is not None:
            return run.slots
        return self.server.slots if self.server.slots is not None else self._one_slot()

    def _one_slot(self) -> int | None:
        """1 where a person says so, or where an excerpt shows a start up to `listening` without a batched line.

        Order at start (log-formats 2): context buffers, disk cache, batched lines, tracing, listening.
        """
        if self.memo.get("one_slot"):
            return 1
        listening = self.of("startup", "listening")
        for end in listening:
            before = [
                e for e in self.of("startup") if e.excerpt == end.excerpt and end.seq - 6 <= e.seq < end.seq
            ]
            rules = {e.rule for e in before}
            unbroken = len(before) == end.seq - min((e.seq for e in before), default=end.seq)
            if unbroken and "context" in rules and not rules & {"batched", "sessions"}:
                return 1
        return None

    # -- the disk cache ----------------------------------------------------------------------------

    @property
    def disk_in_use(self) -> bool:
        """Any line shows that a disk cache is written or read."""
        return bool(self.of("kv_stored") or self.of("kv_hit") or self.of("kv_evicted"))

    def disk_configured(self, episode: Episode | None = None) -> bool:
        """A start line (or an option) says that a disk cache is on."""
        return bool(self.config(episode, "kv_disk") or self.of("startup", "kv_disk"))

    # -- time --------------------------------------------------------------------------------------

    def at(self, event: Event | None) -> float | None:
        """Seconds of an event since the first stamp; None without a stamp."""
        return self.when.get(event.seq) if event is not None else None

    def span_s(self, events: Iterable[Event]) -> float | None:
        """Seconds from the first to the last of `events`; None where fewer than two have stamps."""
        known = [t for t in (self.at(e) for e in events) if t is not None]
        return max(known) - min(known) if len(known) > 1 else None

    def seconds_for(self, tokens: int | None) -> float | None:
        """What `tokens` cost at the log's own prefill speed; None where it shows no speed."""
        return tokens / self.rate if tokens is not None and self.rate else None

    # -- images ------------------------------------------------------------------------------------

    def images_known(self, episode: Episode) -> list[Event]:
        """Events that prove images in the conversation of `episode`; empty where nothing does.

        In a short input any image line counts; in a long one only lines between the previous request
        and this one, or a request of the chain that is known to carry images.
        """
        seen = self.of("multimodal_hit") + self.of("vision_cache")
        if len(self.requests) <= 40:
            return seen
        first = episode.events[0].seq if episode.events else 0
        near = [e for e in seen if 0 <= first - e.seq <= 200]
        carried = bool(episode.request.images or (episode.previous and episode.previous.images))
        return near if near or not carried else seen[:1]

    # -- walking -----------------------------------------------------------------------------------

    def by_conversation(self) -> Iterator[tuple[str | None, list[Episode]]]:
        """Episodes by the parser's conversation label; all unlabelled ones together."""
        groups: dict[str | None, list[Episode]] = {}
        for episode in self.episodes:
            groups.setdefault(episode.request.conversation, []).append(episode)
        yield from groups.items()
