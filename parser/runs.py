"""Server runs: where one process ends and the next begins, and the configuration its start lines print."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from parser.event import KINDS, Event
from parser.reading import Evidence, ServerRun

#: start lines in the order the server prints them (log-formats section 2)
_START: Final = "memory_detail context sessions kv_disk dsml_replay batched mtp trace listening"
_ORDER: Final = {name: rank for rank, name in enumerate(_START.split())}
_CONFIG: Final = {
    "memory_detail": {"ctx": "ctx", "backend": "backend", "prefill_cap": "prefill_cap",
                      "raw_kv_rows": "raw_kv_rows", "compressed_kv_rows": "compressed_kv_rows"},
    "context": {"ctx": "ctx", "backend": "backend", "prefill_chunk": "prefill_chunk",
                "raw_kv_rows": "raw_kv_rows", "compressed_kv_rows": "compressed_kv_rows",
                "size_mib": "context_mib"},
    "sessions": {"resident_sessions": "batched_session"},
    "batched": {"resident_sessions": "batched_session", "prefill_quantum": "prefill_quantum",
                "mixed_prefill_quantum": "mixed_prefill_quantum", "decode_coalesce_us": "decode_coalesce_us"},
    "kv_disk": {"dir": "kv_disk_dir", "budget_mib": "kv_disk_space_mb", "cross_quant": "cross_quant",
                "min": "kv_cache_min_tokens", "cold_max": "kv_cache_cold_max_tokens",
                "continued": "kv_cache_continued_interval_tokens", "trim": "kv_cache_boundary_trim_tokens",
                "align": "kv_cache_boundary_align_tokens", "hit_half_life_s": "hit_half_life_s"},
}  # fmt: skip
_FLAGS: Final = {
    "kv_disk": {"kv_disk": True},
    "kv_disk_failed": {"kv_disk": False},
    "no_checkpoints": {"kv_disk": False},
    "dsml_replay": {"exact_dsml_tool_replay": False},
    "mtp": {"mtp": False},
    "trace": {"trace": True},
}
#: kinds that show that the process is serving; a start line after one of them begins another process
_SERVING: Final = frozenset(KINDS) - {
    "startup",
    "foreign",
    "unknown",
    "kv_evicted",
    "vision_cache",
    "kv_failed",
}

#: More slots than any machine holds contexts for: a larger number in a log is not believed.
MOST_SLOTS: Final = 256


@dataclass(slots=True)
class Run:
    """A server run while its lines come in."""

    number: int
    source: int
    excerpt: int
    first_line: int
    first_seq: int
    last_line: int
    last_seq: int
    config: dict[str, Any] = field(default_factory=dict)
    evidence: list[Evidence] = field(default_factory=list)
    rank: int = -1
    serving: bool = False
    starts: set[str] = field(default_factory=set)
    place: str = "log"
    persisted: dict[int, int] = field(default_factory=dict)  # SD2: slot -> live tokens
    stopped: bool = False
    misses: int = 0  # miss lines

    @property
    def slots(self) -> int | None:
        """ST7/ST2; one slot where a whole start without them is in the log (R1.2)."""
        said = self.config.get("batched_session")
        if said is not None:
            return int(said)
        begun = len(self.starts) > 1 or self.first_line > 1  # else the log may begin behind the batched line
        whole = self.place == "log" and "listening" in self.starts and begun
        return 1 if whole and not self.persisted.keys() - {0} else None

    @property
    def started(self) -> bool:
        """Its start is in the input and came before anything it served."""
        return bool(self.starts)

    def frozen(self) -> ServerRun:
        """The record of `Reading.runs`."""
        return ServerRun(
            self.number, self.source, self.excerpt, self.first_line, self.last_line, self.first_seq,
            self.last_seq, dict(self.config), self.slots, self.started, self.stopped,
        )  # fmt: skip


class Runs:
    """Splits the events into runs: `feed` is true where an event begins another run."""

    def __init__(self) -> None:
        self.all: list[Run] = []

    @property
    def now(self) -> Run:
        """The process that prints now."""
        return self.all[-1]

    def feed(self, event: Event) -> bool:
        """Take one event (file order)."""
        fresh = not self.all or self._restarts(event)
        if fresh:
            self.all.append(
                Run(len(self.all), event.source, event.excerpt, event.line, event.seq, event.line, event.seq)
            )
            self.now.place = event.place
        run = self.now
        self.touch(event)
        if event.kind == "startup":
            self._configure(run, event)
        elif event.kind == "shutdown":
            run.stopped = True
            if event.rule == "persisting" and event.get("tokens") is not None:
                run.persisted[min(event.get("slot") or 0, MOST_SLOTS - 1)] = event.get("tokens")
        return fresh and len(self.all) > 1

    def touch(self, event: Event) -> None:
        """A line of the present run that neither starts nor stops it."""
        run = self.all[-1]
        run.last_line, run.last_seq = event.line, event.seq
        first = event.kind == "kv_hit" and not run.starts  # a thread may load before the start lines are out
        run.serving = run.serving or (event.kind in _SERVING and not first)
        run.misses += event.kind == "live_miss"

    def _restarts(self, event: Event) -> bool:
        rank = _ORDER.get(event.rule) if event.kind == "startup" else None
        run = self.now
        if rank is None:
            return False
        if event.place != "log" and not run.starts:
            return False  # a report shows the start lines after the excerpt
        return run.serving or rank < run.rank or (rank == run.rank and event.rule in run.starts)

    def _configure(self, run: Run, event: Event) -> None:
        if event.rule in _ORDER:
            run.rank = max(run.rank, _ORDER[event.rule])
            run.starts.add(event.rule)
        said = dict(_FLAGS.get(event.rule, {}))
        said |= {
            option: event.get(name)
            for name, option in _CONFIG.get(event.rule, {}).items()
            if event.get(name) is not None
        }
        if said.get("batched_session", 0) > MOST_SLOTS:
            del said["batched_session"]
        for option, value in said.items():
            run.config[option] = value
            run.evidence.append(Evidence(f"{option}={value}", "start line", "start-line", event.line))
