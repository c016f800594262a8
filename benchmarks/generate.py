"""Write a log in the mix of a real month: `python benchmarks/generate.py OUT --lines N [--bytes B] [--seed S]`.

How it is made: conversations take turns on two slots for a month. Each turn adds a user message or tool output
(log-normal, median 900 tokens) to its conversation and is answered in 40 to 900 tokens. One turn in forty begins
a new conversation, one in sixty is of one that was thrown out: both take the slot that was used least lately,
whose state is saved first, and the latter comes back from disk. A full directory evicts a file now and then.
The lines follow from that as the server prints them: one chunk line each 512 tokens of a prefill (a slow machine
with `--prefill-chunk 512`), one decoding line each 50 generated tokens. So chunk and decoding lines make up four
fifths, misses and evictions together stay below 0.5 %. Every number is drawn from a seeded generator: the same
arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

MINUTE, HOUR, DAY = 60, 3600, 86400
CHUNK, DECODE_EVERY = 512, 50
KEPT = 6  # conversations that wait on disk


class Month:
    """The state behind the lines: a clock, what each slot holds, the conversations on disk."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = 10.0 * HOUR
        self.slots: list[int | None] = [None, None]  # live tokens, least lately used first
        self.saved: list[int] = []  # tokens of the conversations that wait on disk

    def stamp(self) -> str:
        whole = int(self.clock)
        day, rest = whole // DAY, whole % DAY
        month, day = day // 28 % 12 + 1, day % 28 + 1
        return (
            f"{month:02d}{day:02d} {rest // HOUR:02d}:{rest // MINUTE % 60:02d}:{rest % 60:02d} ds4-server: "
        )

    def file(self) -> str:
        return f"/srv/kv/{self.random.getrandbits(160):040x}.kv"

    def start(self) -> Iterator[str]:
        head = self.stamp()
        yield (
            f"{head}context buffers 1739.75 MiB (ctx=131072, backend=metal, prefill_chunk={CHUNK}, "
            "raw_kv_rows=4352, compressed_kv_rows=32770)\n"
        )
        yield f"{head}2 resident sessions request at least 3.40 GiB of context buffers\n"
        yield (
            f"{head}KV disk cache /srv/kv (budget=65536 MiB, cross-quant=accept, min=512, cold_max=30000, "
            "continued=10000, trim=32, align=2048, hit_half_life=21600s)\n"
        )
        yield (
            f"{head}batched mode enabled resident_sessions=2 prefill_quantum=2048 mixed_prefill_quantum=128 "
            "decode_coalesce_us=2000\n"
        )
        yield f"{head}listening on http://127.0.0.1:8000\n"

    def turn(self) -> Iterator[str]:
        pick = self.random
        self.clock += pick.expovariate(1 / 40)
        slot, chance = pick.randrange(2), pick.random()
        live = self.slots[slot]
        prompt = (live or 0) + int(pick.lognormvariate(6.8, 1.1)) + 4
        if live is None or prompt > 120_000 or chance < 1 / 40:
            slot, cached, prompt = 0, 0, pick.randint(9_000, 30_000)
            yield from self.miss(prompt, back=None)
        elif self.saved and chance < 1 / 40 + 1 / 60:
            cached = self.saved.pop(pick.randrange(len(self.saved)))
            slot, prompt = 0, cached + prompt - live
            yield from self.miss(prompt, back=cached)
        else:
            cached = live
        yield from self.prefill(cached, prompt)
        generated = pick.randint(40, 900)
        yield from self.decode(cached, prompt, generated)
        del self.slots[slot]
        self.slots.append(prompt + generated)

    def miss(self, prompt: int, *, back: int | None) -> Iterator[str]:
        """The least lately used slot is taken; `back` are the tokens that come from disk."""
        pick, live = self.random, self.slots[0]
        if live is not None:
            yield f"{self.stamp()}live kv cache miss live={live} prompt={prompt} common={min(live, 8_154)} reason=token-mismatch\n"
            if pick.random() < 0.3:
                tokens = pick.randint(10, 60) * 1024
                yield (
                    f"{self.stamp()}kv cache evicted reason=disk-cache-full tokens={tokens} hits={pick.randint(0, 3)} "
                    f"size={tokens / 74:.2f} MiB file={self.file()}\n"
                )
            yield self.stored(live, "evict")
            self.saved = [*self.saved, live][-KEPT:]
        if back is not None:
            yield (
                f"{self.stamp()}kv cache hit text tokens={back} text={back * 4} quant=2 key=token-text "
                f"load={back / 120:.1f} ms file={self.file()}\n"
            )

    def stored(self, tokens: int, reason: str) -> str:
        return (
            f"{self.stamp()}kv cache stored tokens={tokens} trimmed=0 reason={reason} key=token-text "
            f"size={tokens / 74 + 20:.2f} MiB save={tokens / 90:.1f} ms\n"
        )

    def prefill(self, cached: int, prompt: int) -> Iterator[str]:
        span, suffix, rate = f"chat ctx={cached}..{prompt}:{prompt - cached} TOOLS", prompt - cached, 230.0
        yield f"{self.stamp()}{span} prompt start\n"
        began, done = self.clock, 0
        yield f"{self.stamp()}{span} prefill chunk 0/{suffix} (0.0%) chunk=0.00 t/s avg=0.00 t/s 0.001s\n"
        while done < suffix:
            step = min(CHUNK, suffix - done)
            speed = rate * self.random.uniform(0.9, 1.1)
            done += step
            self.clock += step / speed
            spent = self.clock - began
            yield (
                f"{self.stamp()}{span} prefill chunk {done}/{suffix} ({100 * done / suffix:.1f}%) "
                f"chunk={speed:.2f} t/s avg={done / spent:.2f} t/s {spent:.3f}s\n"
            )
            if (cached + done) // 10240 > (cached + done - step) // 10240:
                yield self.stored((cached + done) // 2048 * 2048, "continued")
        yield f"{self.stamp()}{span} prompt done {self.clock - began:.3f}s\n"

    def decode(self, cached: int, prompt: int, generated: int) -> Iterator[str]:
        began, flags = self.clock, self.random.choice(("TOOLS", "TOOLS THINKING", "TOOLS DSML_START"))
        for at in range(DECODE_EVERY, generated + 1, DECODE_EVERY):
            speed = 24 * self.random.uniform(0.9, 1.1)
            self.clock += DECODE_EVERY / speed
            yield (
                f"{self.stamp()}chat ctx={prompt + at - DECODE_EVERY}..{prompt + at}:{DECODE_EVERY} gen={at} {flags} "
                f"decoding chunk={speed:.2f} t/s avg={at / (self.clock - began):.2f} t/s {self.clock - began:.3f}s\n"
            )
        span = f"ctx={cached}..{prompt}:{prompt - cached}"
        if flags == "TOOLS DSML_START":
            yield (
                f"{self.stamp()}tool calls {span} n=1 raw_tool_text=1 ids=[call_{self.random.getrandbits(128):032x}] "
                "names=[bash]\n"
            )
            yield f"{self.stamp()}chat {span} gen={generated} TOOLS DSML_START DSML_END finish=tool_calls {self.clock - began:.3f}s\n"
        else:
            yield f"{self.stamp()}chat {span} gen={generated} TOOLS finish=stop {self.clock - began:.3f}s\n"


def lines(seed: int = 1) -> Iterator[str]:
    """Lines without end."""
    month = Month(seed)
    yield from month.start()
    while True:
        yield from month.turn()


def write(path: Path, *, count: int | None = None, size: int | None = None, seed: int = 1) -> int:
    """Write `count` lines, or lines up to `size` bytes; returns the number of lines."""
    written = total = 0
    with path.open("w", encoding="ascii", buffering=1 << 20) as out:
        for line in lines(seed):
            if total == count or (size is not None and written >= size):
                break
            out.write(line)
            written, total = written + len(line), total + 1
    return total


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--lines", type=int)
    arguments.add_argument("--bytes", type=int)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    print(write(given.out, count=given.lines, size=given.bytes, seed=given.seed), "lines")


if __name__ == "__main__":
    main()
