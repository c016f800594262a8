"""How far the log of one server tells what another one would have done, by random days of one and of several clients.

    python benchmarks/cross.py [--days 100] [--first 0]

The truth is the server model with what the clients really asked (`tests/replay/chats.py`), so only what a log loses
counts. On a third of the days half of the conversations think, on a third half of them use tools; a third pass twenty times
as fast (`fast`), as those of the captures do, so that a stamp's second holds more. A cell is a day, the server whose log is
read, and another server; it is right if misses, evict stores, disk hits, evictions and prefilled tokens are all within 2 %
(or one event). A log that never shows where the first user message of some conversation begins (no shared tokens, no
checkpoint) cannot tell what a disk would keep of its head; such logs make the last row. Columns:

    read     as extracted from the log
    seconds  the same, share with the sum of latencies within 5 %
    prompts  extracted, with the true prompts: what is left is lost in times
    times    extracted, with the true times: what is left is lost in prompts
    open     the true day but for what no line shows: think times are off by 0.2 s (stamps are whole seconds), and who
             waited for a slot thinks as long as someone else did
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parent
sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != ROOT]
sys.path.insert(0, str(ROOT.parent / "tests/replay"))

from chats import Day, hurried, machine  # noqa: E402

from parser.reading import read  # noqa: E402
from replay.configure import configs_of  # noqa: E402
from replay.costs import FittedCosts  # noqa: E402
from replay.decisions import Arrived, Begun, Decision, Dispatched  # noqa: E402
from replay.emit import emit  # noqa: E402
from replay.outcome import Totals  # noqa: E402
from replay.server import replay  # noqa: E402
from replay.study import Study, study_of  # noqa: E402
from replay.workload import Stop, Workload  # noqa: E402

Options = dict[str, Any]
TOTALS = ("live_misses", "evict_stores", "disk_hits", "evictions", "prefilled_tokens")
DISKS: dict[str, Options] = {
    "no disk": {"kv_disk": False},
    "8 GB": {"kv_disk": True, "kv_disk_space_mb": 8192},
    "600 MB": {"kv_disk": True, "kv_disk_space_mb": 600},
}
SERVERS: list[tuple[str, Options]] = [
    (disk, {"server": server, "slots": slots, **options})
    for server in ("ds4-2026-08", "ds4-2026-09-reuse")
    for slots in ("single", 2, 3)
    for disk, options in DISKS.items()
    if (server, slots) != ("ds4-2026-09-reuse", "single")
]
UNSHOWN = "~ head not shown"
#: seconds by which two starts within their stamps' seconds are typically off
STAMPS_S = 0.2


def day(seed: int) -> tuple[Workload, int, int]:
    """A random day, its number of clients and its pace; of one client alone the server is restarted on some days."""
    random = Random(seed)
    clients = random.choice((1, 1, 2, 3))
    talks = [random.randint(1, 3) for _ in range(clients)]
    edits, helpers = random.choice((0, 0, 0.15)), random.choice((0, 0, 0.2))
    thinking, tools, pace = random.choice((0, 0, 0.5)), random.choice((0, 0, 0.5)), random.choice((1, 1, 20))
    made = Day(random, talks, random.choice((10, 20, 40)), edits, helpers, thinking, tools).workload()
    if clients == 1 and random.random() < 0.3:
        half = made.requests[len(made.requests) // 2].request
        made = replace(made, stops=(Stop(before=half), Stop()))
    return hurried(made, pace), clients, pace


def known(read_as: Workload, truth: Workload, order: list[int], *, prompts: bool, times: bool) -> Workload:
    """What was read, with the prompts or the times that were true; `order` has the true numbers by those read."""
    number = {true: place for place, true in enumerate(order, 1)}
    rows = []
    for asked in read_as.requests:
        real = truth.by_number[order[asked.request - 1]]
        if prompts:
            names = ("prompt", "reply", "generated", "anchor", "shown", "drop")
            asked = replace(asked, **{name: getattr(real, name) for name in names})
        if times:
            after = number[real.after] if real.after else None
            asked = replace(asked, after=after, think_s=real.think_s, arrival_s=real.arrival_s)
        rows.append(asked)
    segments = truth.segments if prompts else read_as.segments
    return replace(read_as, requests=tuple(rows), segments=segments, files=())


def open_to_all(truth: Workload, log: list[Decision], seed: int) -> Workload:
    """The true day but for what no line shows."""
    random = Random(seed)
    came = {row.request: row.at_s for row in log if isinstance(row, Arrived)}
    given = {row.request: row.at_s for row in log if isinstance(row, Dispatched)}
    waited = {number for number, at in given.items() if at - came[number] > 0.01}
    seen = [a.think_s for a in truth.requests if a.after and a.request not in waited] or [5.0]
    rows = []
    for asked in truth.requests:
        think = max(0.0, asked.think_s + random.gauss(0, STAMPS_S))
        if asked.request in waited:
            room = asked.think_s + given[asked.request] - came[asked.request]
            think = min(random.choice(seen), room)
        rows.append(replace(asked, think_s=think) if asked.after else asked)
    return replace(truth, requests=tuple(rows))


def within(found: Totals, truth: Totals) -> bool:
    """All totals within 2 %, or one event."""
    pairs = ((getattr(found, name), getattr(truth, name)) for name in TOTALS)
    return all(abs(one - other) <= max(1, 0.02 * other) for one, other in pairs)


def cells(seed: int) -> Iterator[tuple[str, list[bool]]]:
    """Kind of day and disk, and the columns, for two logs of a day and three servers each."""
    truth, clients, pace = day(seed)
    costs = machine(pace)
    random = Random(seed + 1_000_000)
    for disk, server in random.sample(SERVERS, 2):
        log: list[Decision] = []
        configs = configs_of(None, server, truth)
        shown = replay(truth, configs, costs, log).totals
        if not shown.live_misses and not shown.disk_hits:
            continue  # the shared head is nowhere in such a log
        begun = sorted((row for row in log if isinstance(row, Begun)), key=lambda row: row.at_s)
        order = [row.request for row in begun]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "server.log"
            text = emit(truth, configs, log, "1130 10:00:00")
            path.write_bytes(text)
            study = study_of(read([str(path)]))
        slots = 1 if server["slots"] == "single" else server["slots"]
        kind = "one client" if clients == 1 else "several" if clients <= slots else "several, some wait"
        kind += ", fast" if pace > 1 else ""
        row = f"{kind:26}{disk}" if _shows_heads(truth, text) else UNSHOWN
        for _, other in random.sample(SERVERS, 3):
            yield row, _columns(study, truth, order, other, open_to_all(truth, log, seed), costs)


def _shows_heads(truth: Workload, text: bytes) -> bool:
    """Somewhere in the log stands the length of each head: shared with a slot, reused, or stored."""
    heads = {asked.anchor for asked in truth.requests}
    return all(re.search(rb"common=%d |ctx=%d\.\.|tokens=%d " % (head, head, head), text) for head in heads)


def _columns(
    study: Study, truth: Workload, order: list[int], other: Options, opened: Workload, costs: FittedCosts
) -> list[bool]:
    real = replay(truth, configs_of(None, other, truth), costs).totals
    found = study.run(**other).totals
    columns = [within(found, real), abs((found.latency_s_sum or 0) / (real.latency_s_sum or 1) - 1) <= 0.05]
    for prompts in (True, False):
        workload = known(study.workload, truth, order, prompts=prompts, times=not prompts)
        columns.append(within(replay(workload, study.configs(**other), study.costs).totals, real))
    return [*columns, within(replay(opened, configs_of(None, other, truth), costs).totals, real)]


def main() -> None:
    """Print one line a kind of day."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--days", type=int, default=100)
    options.add_argument("--first", type=int, default=0)
    args = options.parse_args()
    found: dict[str, list[list[bool]]] = defaultdict(list)
    for seed in range(args.first, args.first + args.days):
        for kind, columns in cells(seed):
            found[kind].append(columns)
            found["all"].append(columns)
    print(
        f"{'log of':36}{'cells':>6}"
        + "".join(f"{name:>9}" for name in ("read", "seconds", "prompts", "times", "open"))
    )
    for kind, rows in sorted(found.items()):
        shares = "".join(f"{sum(column) / len(rows):9.2f}" for column in zip(*rows, strict=True))
        print(f"{kind:36}{len(rows):6}{shares}")


if __name__ == "__main__":
    main()
