"""Slot inference against a small multi-slot server that prints what ds4-server would.

The server below is as simple as the rules allow (prefix scheduler or reuse-aware, one live state a slot, a
disk store of whole states, stop sequences, failed prefills); its log goes through `read`, and what comes out
is compared with the slots it really used.
"""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass, field

import pytest

from parser.reading import read

#: a text is segments (id, tokens); equal ids are equal text, as far as both go
Text = list[tuple[int, int]]


@dataclass
class Talk:
    text: Text
    turns: int


@dataclass
class Slot:
    live: Text = field(default_factory=list)
    busy: bool = False
    valid: bool = True


@dataclass
class Server:
    """`rule` "old": longest common prefix, lowest slot; "new": reuse, then empty, then the shortest."""

    slots: int
    rule: str
    rng: random.Random
    disk: bool = True
    stop_sequences: float = 0.0
    failures: float = 0.0
    lines: list[tuple[float, int, str]] = field(default_factory=list)
    truth: list[tuple[int, int, int | None, int]] = field(default_factory=list)  # (C, P, gen, slot)
    files: list[Text] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.order = itertools.count()
        self.state = [Slot() for _ in range(self.slots)]
        self.queue: list[tuple[Talk, Text]] = []
        self.clock: list[tuple[float, int, object]] = []

    def say(self, at: float, text: str) -> None:
        self.lines.append((at, next(self.order), text))

    # -- the rules ------------------------------------------------------------------------------------

    def score(self, slot: Slot, prompt: Text) -> float:
        common = shared(slot.live, prompt) if slot.valid else 0
        if self.rule == "old":
            return common
        if slot.live and common == size(slot.live):
            return common
        return 0 if not slot.live else -1 - 1e6 - size(slot.live)

    def dispatch(self, at: float) -> None:
        for job in list(self.queue):
            idle = [n for n, slot in enumerate(self.state) if not slot.busy]
            if not idle:
                return
            best = max(idle, key=lambda n: (self.score(self.state[n], job[1]), -n))
            self.queue.remove(job)
            self.run(at, best, *job)

    def run(self, at: float, number: int, talk: Talk, prompt: Text) -> None:
        slot = self.state[number]
        slot.busy = True
        live, common = slot.live, shared(slot.live, prompt) if slot.valid else 0
        slot.valid = True
        length = size(prompt)
        cached = size(live) if live and common == size(live) else 0
        if not cached and live:
            self.say(
                at,
                f"live kv cache miss live={size(live)} prompt={length} common={common} reason=token-mismatch",
            )
            if self.disk and common and size(live) >= 64 and live not in self.files:
                self.files.append(live)
                self.say(
                    at,
                    f"kv cache stored tokens={size(live)} trimmed=0 reason=evict key=token-text size=40.41 MiB save=5.8 ms",
                )
        if not cached and self.disk:
            cached = max((size(f) for f in self.files if shared(f, prompt) == size(f)), default=0)
            if cached:
                self.say(
                    at,
                    f"kv cache hit text tokens={cached} text=8000 quant=2 key=token-text load=1.0 ms file=/kv/{hash(tuple(cut(prompt, cached))) & (2**160 - 1):040x}.kv",
                )
        span = f"{cached}..{length}:{length - cached}"
        self.say(at + 0.001, f"chat ctx={span} prompt start")
        ready = at + 0.001 + (length - cached) * 0.004
        if self.rng.random() < self.failures:
            slot.live, slot.valid = cut(prompt, self.rng.randint(cached, length)), False
            heapq.heappush(self.clock, (ready, next(self.order), (number, talk)))
            self.truth.append((cached, length, None, number))
            return
        self.say(ready, f"chat ctx={span} prompt done {ready - at:.3f}s")
        gen = self.rng.randint(5, 700)
        for made in [*range(50, gen, 50), gen]:
            last = (made - 1) // 50 * 50
            self.say(
                ready + made * 0.02,
                f"chat ctx={length + last}..{length + made}:{made - last} gen={made} decoding chunk=50.00 t/s avg=50.00 t/s {made * 0.02:.3f}s",
            )
        end = ready + gen * 0.02 + 0.001
        self.say(end, f"chat ctx={span} gen={gen} finish=stop {end - at:.3f}s")
        reply = [(next(self.order), gen)]
        slot.live = [] if self.rng.random() < self.stop_sequences else prompt + reply
        talk.text = prompt + reply if self.rng.random() < 0.85 else prompt + cut(reply, gen // 2)
        self.truth.append((cached, length, gen, number))
        heapq.heappush(self.clock, (end, next(self.order), (number, talk)))

    # -- the clients ------------------------------------------------------------------------------------

    def serve(self, talks: list[Talk], pause: float) -> None:
        for talk in talks:
            heapq.heappush(self.clock, (self.rng.expovariate(1 / pause), next(self.order), talk))
        while self.clock:
            at, _, what = heapq.heappop(self.clock)
            if isinstance(what, Talk):
                what.text = [*what.text, (next(self.order), self.rng.randint(3, 900))]
                self.queue.append((what, list(what.text)))
            else:
                number, talk = what
                self.state[number].busy = False
                talk.turns -= 1
                if talk.turns > 0:
                    heapq.heappush(self.clock, (at + self.rng.expovariate(1 / pause), next(self.order), talk))
            self.dispatch(at)

    def log(self) -> str:
        start = [
            "0915 10:00:00 ds4-server: context buffers 1739.75 MiB (ctx=65536, backend=metal, prefill_chunk=4096, raw_kv_rows=4352, compressed_kv_rows=16386)",
            f"0915 10:00:00 ds4-server: batched mode enabled resident_sessions={self.slots} prefill_quantum=2048 mixed_prefill_quantum=128 decode_coalesce_us=2000",
            "0915 10:00:00 ds4-server: listening on http://127.0.0.1:8000",
        ]
        end = max(self.lines)[0] + 1
        self.say(end, "shutdown requested, draining requests")
        for number, slot in enumerate(self.state):
            if size(slot.live) >= 512:
                self.say(
                    end,
                    f"persisting resident KV cache before shutdown slot={number} tokens={size(slot.live)}",
                )
        body = [f"{stamp(at)} ds4-server: {text}" for at, _, text in sorted(self.lines)]
        return "\n".join(start + body) + "\n"


def stamp(at: float) -> str:
    second = 36_000 + int(at)
    return f"{915 + second // 86_400:04d} {second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def size(text: Text) -> int:
    return sum(tokens for _, tokens in text)


def shared(one: Text, other: Text) -> int:
    """Common tokens of two texts from their start."""
    common = 0
    for (a, tokens), (b, others) in zip(one, other, strict=False):
        if a != b:
            break
        common += min(tokens, others)
        if tokens != others:
            break
    return common


def cut(text: Text, tokens: int) -> Text:
    left: Text = []
    for name, length in text:
        if tokens <= 0:
            break
        left.append((name, min(length, tokens)))
        tokens -= length
    return left


def simulate(seed: int, slots: int, talks: int, rule: str, pause: float, **faults: float) -> Server:
    rng = random.Random(seed)
    server = Server(slots, rule, rng, disk=rng.random() < 0.7, **faults)
    heads = [[(-1, 70), (-2 - n, rng.randint(5, 60))] for n in range(2)]
    server.serve([Talk(list(rng.choice(heads)), max(2, 300 // talks)) for _ in range(talks)], pause)
    return server


def compare(server: Server, rows) -> tuple[int, int, int, int]:
    """(placed right under the best renaming of labels, placed, ambiguous, requests)."""
    left = list(rows)
    pairs = []
    for cached, prompt, gen, slot in server.truth:
        row = next(
            r for r in left if (r.cached_tokens, r.prompt_tokens, r.generated_tokens) == (cached, prompt, gen)
        )
        left.remove(row)
        pairs.append((slot, row))
    sure = [(slot, row.slot) for slot, row in pairs if row.slot_confidence != "ambiguous"]
    counts: dict[tuple[int, int], int] = {}
    for pair in sure:
        counts[pair] = counts.get(pair, 0) + 1
    right = best_matching(counts, server.slots)
    return right, len(sure), len(pairs) - len(sure), len(pairs)


def best_matching(counts: dict[tuple[int, int], int], slots: int) -> int:
    if slots <= 6:
        return max(
            sum(counts.get((s, p[s]), 0) for s in range(slots)) for p in itertools.permutations(range(slots))
        )
    used: set[int] = set()
    total = 0
    for slot in range(slots):
        label = max((n for n in range(slots) if n not in used), key=lambda n: counts.get((slot, n), 0))
        used.add(label)
        total += counts.get((slot, label), 0)
    return total


CASES = [
    (seed, slots, talks, rule, pause)
    for seed, (slots, talks) in enumerate([(2, 2), (2, 5), (3, 3), (3, 6), (4, 9), (6, 8), (8, 14)])
    for rule in ("old", "new")
    for pause in (0.3, 8.0)
]


@pytest.mark.parametrize(("seed", "slots", "talks", "rule", "pause"), CASES)
def test_slots_of_a_simulated_server(tmp_path, seed, slots, talks, rule, pause):
    server = simulate(seed, slots, talks, rule, pause)
    path = tmp_path / "server.log"
    path.write_text(server.log())
    right, placed, ambiguous, requests = compare(server, read([str(path)]).requests)
    assert right >= 0.995 * placed
    assert ambiguous <= 0.1 * requests


@pytest.mark.parametrize("seed", range(4))
def test_slots_with_stop_sequences_and_failed_prefills(tmp_path, seed):
    server = simulate(seed, 3, 5, "old", 2.0, stop_sequences=0.04, failures=0.03)
    path = tmp_path / "server.log"
    path.write_text(server.log())
    right, placed, ambiguous, requests = compare(server, read([str(path)]).requests)
    assert right >= 0.98 * placed
    assert ambiguous <= 0.15 * requests


@pytest.mark.parametrize(("seed", "slots", "talks", "rule", "pause"), CASES[::3])
def test_a_log_that_begins_in_the_middle_and_tells_no_slot_count(tmp_path, seed, slots, talks, rule, pause):
    server = simulate(seed, slots, talks, rule, pause)
    lines = server.log().splitlines()
    path = tmp_path / "server.log"
    path.write_text(
        "\n".join(line for line in lines[len(lines) * 2 // 5 :] if "persisting" not in line) + "\n"
    )
    reading = read([str(path)])
    rows = [row for row in reading.requests if row.prompt_line is not None]
    server.truth = server.truth[-len(rows) :] if in_order(server.truth[-len(rows) :], rows) else server.truth
    right, placed, ambiguous, requests = compare(server, rows)
    assert reading.server.slots == slots
    assert right >= 0.995 * placed
    assert ambiguous <= 0.1 * requests


def in_order(truth, rows) -> bool:
    return sorted((c, p) for c, p, _, _ in truth) == sorted((r.cached_tokens, r.prompt_tokens) for r in rows)


def test_parallel_calls_with_one_prompt_are_told_apart_as_far_as_lengths_go(tmp_path):
    """Four equal cold calls at once; each next turn extends the reply that its length names."""
    lines = [
        "batched mode enabled resident_sessions=4 prefill_quantum=2048 mixed_prefill_quantum=128 decode_coalesce_us=2000",
        "listening on http://127.0.0.1:8000",
        *["chat ctx=0..900:900 prompt start"] * 4,
        *["chat ctx=0..900:900 prompt done 1.000s"] * 4,
        *[
            f"chat ctx=900..{900 + gen}:{gen} gen={gen} decoding chunk=9.00 t/s avg=9.00 t/s 1.000s"
            for gen in (11, 40, 90, 90)
        ],
        *[f"chat ctx=0..900:900 gen={gen} finish=stop 2.000s" for gen in (11, 40, 90, 90)],
        *[f"chat ctx={900 + gen}..1000:{100 - gen} prompt start" for gen in (90, 11, 40)],
    ]
    path = tmp_path / "server.log"
    path.write_text("".join(f"0915 10:00:00 ds4-server: {line}\n" for line in lines))
    first, turn = read([str(path)]).requests[:4], read([str(path)]).requests[4:]
    assert len({row.slot for row in first}) == 4
    by_reply = {row.generated_tokens: row for row in first[:2]}
    assert [row.slot_confidence == "ambiguous" for row in turn] == [True, False, False]
    assert turn[1].slot == by_reply[11].slot and turn[2].slot == by_reply[40].slot
    assert set(turn[0].slot_alternatives) | {turn[0].slot} == {row.slot for row in first[2:]}
