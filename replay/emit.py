"""A replay's decisions as the log that such a server would have printed (`ds4scope replay --emit-log`).

The templates are those of `docs/spec/log-formats.md`; which of them a build knows follows from its generation.
Lines stand in the order of the virtual clock. What a model does not have (paths, texts, addresses) is made up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import floor
from typing import Final

from parser.errors import InputError
from replay import decisions as d
from replay.config import MIB, ServerConfig
from replay.rope import length
from replay.workload import Asked, Workload

#: stamps have no year; this one has no leap day
_YEAR: Final = 2023
_DIRECTORY: Final = "/kv/replay"
_HIDDEN: Final = {
    "responses-visible": "responses live continuation RESPPROTO match=visible-prefix ids={ids}",
    "responses-tool-output": "responses live continuation RESPPROTO match=tool-output-ids ids={ids}",
    "anthropic-tool-output": "anthropic live continuation match=tool-output-ids ids={ids}",
    "thinking-visible": "thinking live continuation match=visible-prefix",
}


def _said(asked: Asked, gen: int) -> str:
    """Flags of a decoding line after `gen` tokens of the reply: the reasoning is open; a tool call has begun, and ended."""
    thinking = asked.thinking and not asked.keeps_reasoning and asked.shown is not None
    ended = length(asked.reply) - length(asked.shown or ()) + asked.drop + 1
    begun, over = asked.tool_block if asked.tools and asked.tool_block else (gen, gen)
    flags = (
        ("THINKING", thinking and gen < ended),
        ("DSML_START", gen > begun),
        ("DSML_END", gen >= over > begun),
    )
    return "".join(f" {name}" for name, on in flags if on)


@dataclass(slots=True)
class _Open:
    """A request between `prompt start` and `finish`: its span and what was printed of it last."""

    start_s: float
    cached: int
    prompt: int
    chunk_s: float
    chunk_done: int = 0
    chunks: int = 0
    decode_s: float | None = None
    gen: int = 0
    gen_s: float = 0.0


def emit(
    workload: Workload, configs: Sequence[ServerConfig], log: Sequence[d.Decision], first: str | None = None
) -> bytes:
    """The log of a replay. `first` is the stamp of virtual second 0 ("1130 17:52:23")."""
    written = _Writer(workload, configs, first)
    for row in log:
        written.take(row)
    return written.text()


class _Writer:
    def __init__(self, workload: Workload, configs: Sequence[ServerConfig], first: str | None) -> None:
        self.workload, self.configs = workload, configs
        self.zero = _zero(first)
        self.config = configs[0]
        self.open: dict[int, _Open] = {}
        self.finished: dict[int, d.Finished] = {}
        self.lines: list[tuple[float, int, str]] = []
        self.keys: dict[str, str] = {}
        self.draining = False

    def take(self, row: d.Decision) -> None:
        handler = getattr(self, f"_{type(row).__name__.lower()}", None)
        if handler is not None:
            handler(row)

    def text(self) -> bytes:
        """All lines by time; lines of one moment in the order of the decisions."""
        self.lines.sort(key=lambda line: line[:2])
        return "".join(f"{self._stamp(at)} {text}\n" for at, _, text in self.lines).encode()

    # -- plumbing ------------------------------------------------------------------------------------

    def _stamp(self, at: float) -> str:
        whole = floor(at + self.workload.origin_s + 1e-9)
        try:
            return (self.zero + timedelta(seconds=whole)).strftime("%m%d %H:%M:%S")
        except OverflowError:
            raise InputError(
                "E-WORKLOAD",
                f"the replay would last {whole:.3g} seconds, for which there is no stamp",
                hint="some prompt or reply of the workload is longer than any can be",
            ) from None

    def _say(self, at: float, text: str) -> None:
        self.lines.append((at, len(self.lines), f"ds4-server: {text}"))

    def _asked(self, request: int) -> Asked:
        return self.workload.by_number[request]

    def _flags(self, asked: Asked) -> str:
        flags = [name for name, on in (("RESPPROTO", asked.api == "responses"), ("TOOLS", asked.tools)) if on]
        return "".join(f" {name}" for name in flags)

    def _head(self, request: int) -> str:
        asked, held = self._asked(request), self.open[request]
        kind = "completion" if asked.api == "completion" else "chat"
        return f"{kind} ctx={self._span(held)}"

    @staticmethod
    def _span(held: _Open) -> str:
        return f"{held.cached}..{held.prompt}:{held.prompt - held.cached}"

    # -- the process ---------------------------------------------------------------------------------

    def _started(self, row: d.Started) -> None:
        self.config = config = self.configs[min(row.run, len(self.configs) - 1)]
        at, slots = row.at_s, row.slots
        glm = config.family == "glm"
        rows = 0 if glm else config.ring
        compressed = config.ctx if glm else config.ctx // 4 + 2
        backend = "metal" if glm else "cuda"
        self._say(
            at,
            f"context buffers 1024.00 MiB (ctx={config.ctx}, backend={backend}, prefill_chunk={config.chunk}, "
            f"raw_kv_rows={rows}, compressed_kv_rows={compressed})",
        )
        if config.batched and slots > 1:
            self._say(at, f"{slots} resident sessions request at least {slots}.00 GiB of context buffers")
        if config.kv_disk:
            self._say(
                at,
                f"KV disk cache {_DIRECTORY} (budget={config.kv_disk_space_mb} MiB, cross-quant=accept, "
                f"min={config.kv_cache_min_tokens}, cold_max={config.kv_cache_cold_max_tokens}, "
                f"continued={config.kv_cache_continued_interval_tokens}, "
                f"trim={config.kv_cache_boundary_trim_tokens}, align={config.kv_cache_boundary_align_tokens}, "
                "hit_half_life=21600s)",
            )
        if not config.exact_tool_replay:
            self._say(at, "exact DSML tool replay disabled; tool history uses canonical JSON rendering")
        if config.batched:
            self._say(
                at,
                f"batched mode enabled resident_sessions={slots} prefill_quantum={config.prefill_quantum} "
                f"mixed_prefill_quantum={config.mixed_prefill_quantum} decode_coalesce_us=2000",
            )
        self._say(at, "listening on http://127.0.0.1:8000")

    def _draining(self, at: float) -> None:
        """SD1: the first line of an orderly stop, whatever it then stores."""
        if not self.draining:
            self.draining = True
            self._say(at, "shutdown requested, draining requests")

    def _ended(self, row: d.Ended) -> None:
        if row.clean:
            self._draining(row.at_s)
            for request in list(self.open):
                self._finish_line(row.at_s, request, "error", ' error="shutdown requested"')
        self.open.clear()
        self.draining = False

    # -- the cache decision --------------------------------------------------------------------------

    def _dispatched(self, row: d.Dispatched) -> None:
        if row.evicting and self.config.generation.probe:
            state = "stale" if row.idle_s >= 3600 else "protected"
            text = f"slot {row.slot}: request reuses nothing; evicting checkpoint "
            text += f"({row.live} tokens, idle {row.idle_s} s, {state})"
            self.lines.append((row.at_s, len(self.lines), text))

    def _missed(self, row: d.Missed) -> None:
        resp = " RESPPROTO" if self._asked(row.request).api == "responses" else ""
        vision = f" vision={'match' if row.fit else 'mismatch'}" if self.config.generation.images else ""
        self._say(
            row.at_s,
            f"live kv cache miss{resp} live={row.live} prompt={row.prompt} common={row.common}{vision} "
            "reason=token-mismatch",
        )

    def _rewound(self, row: d.Rewound) -> None:
        self._say(
            row.at_s,
            f"rewound GLM live prefix from {row.live} to {row.kept}; final prompt token will be reevaluated",
        )

    def _stored(self, row: d.Stored) -> None:
        if row.reason == "shutdown":
            self._draining(row.at_s)
            place = f"slot={row.slot} " if self.config.generation.resume_min == 4 else ""
            what = "resident KV cache" if place else "current KV cache"
            self._say(row.at_s, f"persisting {what} before shutdown {place}tokens={row.tokens}")
        self.keys[row.file] = row.key
        if not row.silent:
            self._say(
                row.at_s,
                f"kv cache stored tokens={row.tokens} trimmed={row.trimmed} reason={row.reason} key={row.key} "
                f"size={row.size / MIB:.2f} MiB save={row.seconds * 1000:.1f} ms",
            )

    def _skipped(self, row: d.Skipped) -> None:
        head = f"kv cache skipped tokens={row.tokens} reason={row.reason} because "
        if row.why == "budget":
            safe, budget = row.size * 1.01 / MIB, float(self.config.kv_disk_space_mb)
            head += (
                f"estimated file size {row.size / MIB:.2f} MiB ({safe:.2f} MiB with safety) exceeds budget "
            )
            self._say(row.at_s, head + f"{budget:.2f} MiB")
        else:
            self._say(row.at_s, head + "KV payload staging failed: session has no valid checkpoint to stage")

    def _evictedfile(self, row: d.EvictedFile) -> None:
        self._say(
            row.at_s,
            f"kv cache evicted reason=disk-cache-full tokens={row.tokens} hits={row.hits} "
            f"size={row.size / MIB:.2f} MiB file={_path(row.file)}",
        )

    def _discarded(self, row: d.Discarded) -> None:
        self._say(row.at_s, f"kv cache discarded reason=prefill-failed file={_path(row.file)}")

    def _restored(self, row: d.Restored) -> None:
        resp = " RESPPROTO" if self._asked(row.request).api == "responses" else ""
        consumed = " consumed" if row.consumed else ""
        key = self.keys.get(row.file, "token-text")
        self._say(
            row.at_s + row.seconds,
            f"kv cache hit text{resp} tokens={row.tokens} text={row.text} quant=2 key={key} "
            f"load={row.seconds * 1000:.1f} ms{consumed} file={_path(row.file)}",
        )

    def _begun(self, row: d.Begun) -> None:
        asked, prompt = self._asked(row.request), length(row.prompt)
        held = self.open[row.request] = _Open(row.at_s, row.cached, prompt, row.at_s)
        if row.source in _HIDDEN:
            head = _HIDDEN[row.source].format(ids=len(asked.results))
            self._say(row.at_s, f"{head} cached={row.cached} prompt={prompt}")
        if asked.images and row.cached and row.source != "disk-text":
            self._say(
                row.at_s,
                f"multimodal live kv hit images={len(asked.images)} cached={row.cached} prompt={prompt} "
                "identity=fingerprint-match",
            )
        self._say(row.at_s, f"{self._head(row.request)}{self._flags(asked)} prompt start")
        if row.cached and prompt - row.cached >= self.config.generation.resume_min and not self._late_counter:
            self._chunk(row.request, held, row.at_s, 0)

    # -- prefill and decode --------------------------------------------------------------------------

    @property
    def _late_counter(self) -> bool:
        """Resumed GLM prompts do not print their starting point."""
        return self.config.family == "glm"

    def _chunk(self, request: int, held: _Open, at: float, done: int) -> None:
        total, passed = held.prompt - held.cached, at - held.start_s
        since, made = at - held.chunk_s, done - held.chunk_done
        speed = made / since if held.chunks and since > 0 else 0.0
        average = done / passed if passed > 0 else 0.0
        self._say(
            at,
            f"{self._head(request)}{self._flags(self._asked(request))} prefill chunk {done}/{total} "
            f"({100 * done / total:.1f}%) chunk={speed:.2f} t/s avg={average:.2f} t/s {passed:.3f}s",
        )
        held.chunk_s, held.chunk_done, held.chunks = at, done, held.chunks + 1

    def _prefilled(self, row: d.Prefilled) -> None:
        held = self.open.get(row.request)
        if held is None or held.decode_s is not None:
            return
        few = held.cached and held.prompt - held.cached < self.config.generation.resume_min
        silent = not held.cached and not row.quantum and held.prompt <= self.config.chunk
        if few or silent:
            return
        for end in _ends(row, self.config.chunk):
            share = (end - row.start) / (row.end - row.start)
            at = row.at_s + (row.until_s - row.at_s) * share
            first = not held.cached and not row.start and end <= (row.quantum or self.config.chunk)
            if first and row.quantum:
                held.chunk_s, held.chunk_done = at, end - held.cached
                continue
            self._chunk(row.request, held, at, end - held.cached)

    def _promptdone(self, row: d.PromptDone) -> None:
        held = self.open[row.request]
        held.decode_s = held.gen_s = row.at_s
        flags = self._flags(self._asked(row.request))
        self._say(row.at_s, f"{self._head(row.request)}{flags} prompt done {row.at_s - held.start_s:.3f}s")

    def _decoded(self, row: d.Decoded) -> None:
        held = self.open.get(row.request)
        if held is None or held.decode_s is None:
            return
        start, end = row.start - held.prompt, row.end - held.prompt
        for gen in range((start // 50 + 1) * 50, end + 1, 50):
            share = (gen - start) / (end - start)
            self._decoding(row.request, held, row.at_s + (row.until_s - row.at_s) * share, gen)

    def _decoding(self, request: int, held: _Open, at: float, gen: int) -> None:
        asked = self._asked(request)
        since, passed = at - held.gen_s, at - (held.decode_s or at)
        speed = (gen - held.gen) / since if since > 0 else 0.0
        average = gen / passed if passed > 0 else 0.0
        a, b = held.prompt + held.gen, held.prompt + gen
        kind = "completion" if asked.api == "completion" else "chat"
        self._say(
            at,
            f"{kind} ctx={a}..{b}:{b - a} gen={gen}{self._flags(asked)}{_said(asked, gen)} decoding chunk={speed:.2f} t/s "
            f"avg={average:.2f} t/s {passed:.3f}s",
        )
        held.gen, held.gen_s = gen, at

    # -- the end -------------------------------------------------------------------------------------

    def _finished(self, row: d.Finished) -> None:
        self.finished[row.request] = row
        held, asked = self.open.get(row.request), self._asked(row.request)
        if held is None:
            return
        if row.generated > held.gen:
            self._decoding(row.request, held, row.at_s, row.generated)
        if row.finish == "tool_calls" and asked.calls:
            resp = " RESPPROTO" if asked.api == "responses" else ""
            names = ",".join("tool" for _ in asked.calls)
            raw = "raw_tool_text" if self.config.generation.resume_min == 4 else "raw_dsml"
            self._say(
                row.at_s,
                f"tool calls ctx={self._span(held)}{resp} n={len(asked.calls)} {raw}={int(asked.raw_tools)} "
                f"ids=[{','.join(asked.calls)}] names=[{names}]",
            )
        if "thinking" in row.bound:
            self._say(
                row.at_s,
                f"thinking live checkpoint remembered ctx={self._span(held)} live={row.live} visible={row.visible}",
            )

    def _answered(self, row: d.Answered) -> None:
        done = self.finished.pop(row.request, None)
        if row.request not in self.open:
            return
        if done is not None:
            error = ' error="client stream write failed"' if done.finish == "error" else ""
            self._finish_line(row.at_s, row.request, done.finish, error)
        elif row.gone:
            flags = self._flags(self._asked(row.request))
            self._say(row.at_s, f"{self._head(row.request)}{flags} stream closed during prefill")
            del self.open[row.request]

    def _finish_line(self, at: float, request: int, finish: str, error: str) -> None:
        held, asked = self.open.pop(request), self._asked(request)
        kind = "completion" if asked.api == "completion" else "chat"
        gen = min(asked.generated, held.gen) if error else asked.generated
        flags = self._flags(asked) + (" THINKING" if asked.thinking and asked.open_reasoning else "")
        self._say(
            at,
            f"{kind} ctx={self._span(held)} gen={gen}{flags} finish={finish}{error} {at - held.start_s:.3f}s",
        )


def _ends(row: d.Prefilled, chunk: int) -> Iterator[int]:
    """Where progress is reported: at the end of each piece, and inside it at absolute multiples of the
    chunk."""
    pos, piece = row.start, row.start
    while pos < row.end:
        piece = piece + row.quantum if row.quantum and pos >= piece else piece
        pos = min(piece if row.quantum else row.end, (pos // chunk + 1) * chunk, row.end)
        yield pos


def _path(name: str) -> str:
    return f"{_DIRECTORY}/{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()}.kv"


def _zero(first: str | None) -> datetime:
    try:
        return datetime.strptime(f"{_YEAR} {first}", "%Y %m%d %H:%M:%S") if first else datetime(_YEAR, 1, 1)
    except ValueError:
        return datetime(_YEAR, 1, 1)
