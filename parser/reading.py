"""Reading: one input read whole (or one segment of it): events, requests, server runs, what people said.

`read()` is what everything behind `parser` starts from; `read_segments()` is the same in bounded memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from parser.errors import UsageError
from parser.request import Request

if TYPE_CHECKING:
    from parser.eventlog import EventLog
    from parser.sources import Source
    from parser.trace import TraceRequest


Through: TypeAlias = "Callable[[Iterable[EventLog], Sequence[Source]], Iterator[EventLog]]"


@dataclass(frozen=True, slots=True)
class Asked:
    """What `read` was called with."""

    inputs: tuple[str, ...]
    traces: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    lane: str = "auto"
    since: str | None = None
    until: str | None = None
    max_bytes: int | None = None
    year: int | None = None
    kinds: tuple[str, ...] = ()  # only events of these; () for all

    def __post_init__(self) -> None:
        if self.year is not None and not 1 <= self.year < 9000:
            hint = "the year in which the log begins, as 2026"
            raise UsageError("E-USAGE-YEAR", f"{self.year} is no year of a log", hint=hint)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a server figure is believed: `what` ("slots=2"), `because` (plain words), where, how strongly.

    `grade` is "start-line", "shape" (the shape of lines), "option" (a flag in prose or a command line),
    "inferred" (overlapping requests, ...) or "default" (the server's own default, nothing in the log).
    """

    what: str
    because: str
    grade: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class ServerRun:
    """One server process in the log (a restart begins a new one; an excerpt of a report is one as well).

    `config` holds what the run's own lines say, under the server's option names with underscores: `ctx`,
    `backend`, `prefill_chunk`, `raw_kv_rows`, `compressed_kv_rows`, `batched_session`, `prefill_quantum`,
    `mixed_prefill_quantum`, `decode_coalesce_us`, `kv_disk` (bool), `kv_disk_space_mb`, `cross_quant`,
    `kv_cache_min_tokens`, `kv_cache_cold_max_tokens`, `kv_cache_continued_interval_tokens`,
    `kv_cache_boundary_trim_tokens`, `kv_cache_boundary_align_tokens`, `hit_half_life_s`,
    `exact_dsml_tool_replay`, `mtp`, `vision`, `trace`. A key that is absent was not said.
    """

    run: int
    source: int
    excerpt: int
    first_line: int
    last_line: int
    first_seq: int
    last_seq: int
    config: Mapping[str, Any] = field(default_factory=dict)
    slots: int | None = None
    started: bool = False  # its start lines are in the input (so its slots were empty at the first request)
    stopped: bool = False  # an orderly shutdown is in the input


@dataclass(frozen=True, slots=True)
class Server:
    """The server as far as the whole input tells: profile name (`docs/outputs.md`) or None, slot count,
    model family ("deepseek-v4", "glm", "qwen-next"), config of the last run that says each value."""

    profile: str | None = None
    profile_confidence: float = 0.0
    slots: int | None = None
    family: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Stamps:
    """First and last stamp as printed, the year of the first if anything tells it, and what tells it
    ("declared", "trace", "mtime"). `seconds` is the time from first to last as `Request.start_s` counts."""

    first: str | None = None
    last: str | None = None
    year: int | None = None
    year_from: str | None = None
    seconds: float | None = None


@dataclass(slots=True)
class Reading:
    """Everything one input says. `kind` is "log" or "report" (Markdown or pasted text).

    `requests` are in order of `prompt start`; `runs[request.run]` is the process that served a request.
    `events` holds all events of the input (of the segment, from `read_segments`); `counts` the number of
    events of each kind. `trace` maps `Request.request` to its `--trace` record, `clients` to the client's
    own usage record. `hearsay` are figures people state in their own words.
    """

    sources: tuple[str, ...] = ()
    kind: str = "log"
    events: EventLog | None = None
    requests: list[Request] = field(default_factory=list)
    runs: list[ServerRun] = field(default_factory=list)
    server: Server = field(default_factory=Server)
    hearsay: list[Any] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    stamps: Stamps = field(default_factory=Stamps)
    trace: dict[int, TraceRequest] = field(default_factory=dict)
    clients: dict[int, Mapping[str, Any]] = field(default_factory=dict)


def read(
    inputs: Sequence[str],
    *,
    traces: Sequence[str] = (),
    clients: Sequence[str] = (),
    lane: str = "auto",
    since: str | None = None,
    until: str | None = None,
    max_bytes: int | None = None,
    year: int | None = None,
) -> Reading:
    """Read `inputs` (paths, "-", a directory) whole.

    `traces` are `--trace` files of the same server, `clients` JSON-lines files with the clients' usage.
    `since`/`until` bound the stamps ("1130 17:52:23" or "17:52"). `year` declares the year of the stamps.
    Raises `InputError` where nothing can be read.
    """
    from parser.assemble import whole

    asked = Asked(tuple(inputs), tuple(traces), tuple(clients), lane, since, until, max_bytes, year)
    return whole(asked)


def read_segments(
    inputs: Sequence[str],
    *,
    traces: Sequence[str] = (),
    clients: Sequence[str] = (),
    lane: str = "auto",
    since: str | None = None,
    until: str | None = None,
    max_bytes: int | None = None,
    year: int | None = None,
    through: Through | None = None,
) -> Iterator[Reading]:
    """The same as `read`, in segments of bounded memory: a request leaves as soon as it is closed.

    Request numbers, slots, conversations and runs run on over segments; each segment's `events` are its own.
    `through` is put around the blocks of events (a progress bar); it gets the sources, too.
    """
    from parser.assemble import segments

    asked = Asked(tuple(inputs), tuple(traces), tuple(clients), lane, since, until, max_bytes, year)
    return segments(asked, through)
