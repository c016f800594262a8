"""Requests a second of the server model: 3 slots, a disk tier of 200 files, a miss on every second request.

    python benchmarks/replay.py [--requests 20000] [--lanes 1]

Each conversation sends two turns in a row (the first misses and comes back from the disk or from nothing, the
second extends the live state), then the next one has its turn; after ten turns a conversation starts anew. One line
is printed a size, so that linearity can be read off; the last two have prompts ten times as long, once with the
continued stores that these bring and once without: a request costs what it stores, not what it is long.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

# this file's name is that of the package it measures
sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != Path(__file__).resolve().parent]

from replay.flat import FlatCosts  # noqa: E402
from replay.profiles import profile  # noqa: E402
from replay.rope import Piece, join  # noqa: E402
from replay.server import replay  # noqa: E402
from replay.workload import Asked, Segment, Workload  # noqa: E402

CONVERSATIONS, TURNS = 40, 10
#: mean length of a file, in new tokens of a turn: what makes the budget hold about 200 of them
FILE = 11


def workload(requests: int, lanes: int, tokens: int) -> Workload:
    """`requests` requests in `lanes` closed loops; about `tokens` new tokens a turn behind a shared head."""
    segments = {"head": Segment("head", 2000)}
    head, rows = Piece("head", 0, 2000), []
    history: dict[tuple[int, int], tuple[Piece, ...]] = {}
    last: dict[int, int] = {}
    for number in range(1, requests + 1):
        lane = number % lanes
        turn = (number - 1) // lanes
        talk = (lane, turn // 2 % CONVERSATIONS)
        epoch, step = divmod(turn // 2 // CONVERSATIONS * 2 + turn % 2, TURNS)
        new = Segment(f"u{number}", tokens + (number * 7919) % 97)
        reply = Segment(f"r{number}", 60 + number % 41)
        segments[new.id], segments[reply.id] = new, reply
        past = history.get(talk, ()) if step else ()
        prompt = join(past or (head,), [Piece(new.id, 0, new.tokens)])
        said = Piece(reply.id, 0, reply.tokens)
        history[talk] = join(prompt, [said])
        after = last.get(lane)
        arrival = None if after else lane * 0.5
        rows.append(
            Asked(
                number, prompt, reply=(said,), generated=reply.tokens, conversation=f"c{talk}-{epoch}",
                anchor=1999, after=after, arrival_s=arrival, think_s=2.0,
            )
        )  # fmt: skip
        last[lane] = number
    return Workload(segments, tuple(rows), ctx=200_000)


def main() -> None:
    """Print requests a second for growing workloads and for longer prompts."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--requests", type=int, default=20_000)
    options.add_argument("--lanes", type=int, default=1)
    args = options.parse_args()
    config = replace(profile("ds4-2026-08"), slots=3, ctx=200_000)
    sizes = ((args.requests // 4, 1000, 10_000), (args.requests, 1000, 10_000))
    longer = ((args.requests, 10_000, 10_000), (args.requests, 10_000, 0))
    for requests, tokens, interval in sizes + longer:
        load = workload(requests, args.lanes, tokens)
        budget = config.file_bytes(FILE * tokens) * 200 // (1 << 20)
        server = replace(config, kv_disk_space_mb=budget, kv_cache_continued_interval_tokens=interval)
        began = time.process_time()
        outcome = replay(load, server, FlatCosts())
        spent = time.process_time() - began
        totals, stores = outcome.totals, sum(len(row.stores) for row in outcome.requests)
        print(
            f"{requests} requests of {tokens}+ new tokens: {requests / spent:,.0f} requests/s a core; "
            f"misses {totals.live_misses}, disk hits {totals.disk_hits}, stores {stores}, "
            f"files {stores - totals.evictions}, evictions {totals.evictions}, prefilled {totals.prefilled_tokens}"
        )


if __name__ == "__main__":
    main()
