"""How fast a log is read: `python benchmarks/parse.py [--lines N] [--gib G] [--data DIR] [--json]`.

Each figure is taken in a process of its own (best of a few runs), with its peak memory, on both cores. The
peers do comparable work on the same files in the same run, one after the other:

- mawk and GNU grep count misses and evictions (no types, no places);
- mawk and Python's `re` type the fields of chunk and decoding lines, by one hand-written expression each;
- Lark alone: the grammar's own parser on every line, without learning shapes.

The log is written by `benchmarks/generate.py` (it says how). A ratio above 1 means that ds4scope is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import generate

LINES, GIB = 1_000_000, 2.8
SYSLOG = "Aug 19 09:31:14 node7 ds4-server[4121]: "
KINDS = ("live_miss", "kv_evicted")


@dataclass(frozen=True)
class Figure:
    """One measurement. `seconds` is wall time of the best run, `cpu` its processor seconds (all threads)."""

    what: str
    who: str
    seconds: float
    cpu: float
    lines: int
    size: int
    peak_mib: int


# -- what runs in a process of its own -------------------------------------------------------------


def typed(path: str, lane: str) -> int:
    """Events of all kinds, typed, in columns."""
    from parser.events import read_events

    return sum(sum(log.counts.values()) for log in read_events([path], lane=lane))


def lark_alone(path: str) -> int:
    """The grammar's parser on every line."""
    from parser.event import KINDS
    from parser.grammar import grammar
    from parser.text_lane import TextLane
    from parser.textlines import clean_lines

    lane = TextLane(grammar(), printed=False)
    known = 0
    for line in clean_lines(Path(path).read_bytes(), 1, 0, 0):
        lane._shapes.clear()
        parsed = lane.parse(line.text)
        known += parsed is not None and parsed.rule.kind in KINDS
    return known


def with_re(path: str) -> int:
    """Chunk and decoding lines by a hand-written expression, fields as numbers."""
    import re

    number = r"(\d+)"
    seconds = r"chunk=([\d.]+) t/s avg=([\d.]+) t/s ([\d.]+)s$"
    flags = r"((?: [A-Z_]+)*)"
    span = rf"^\d{{4}} [\d:]{{8}} ds4-server: (chat|completion) ctx={number}\.\.{number}:{number}"
    chunk = re.compile(rf"{span}{flags} prefill chunk {number}/{number} \(([\d.]+)%\) {seconds}")
    decoding = re.compile(rf"{span} gen={number}{flags} decoding {seconds}")
    found = 0
    with Path(path).open(encoding="utf-8") as lines:
        for line in lines:
            match = chunk.match(line) or decoding.match(line)
            if match:
                found += sum(float(value) > 0 for value in match.groups()[-3:]) > 0
    return found


def a_few_kinds(path: str) -> int:
    """Misses and evictions only."""
    from parser.events import read_events

    return sum(sum(log.counts.values()) for log in read_events([path], kinds=KINDS))


WORK: dict[str, Callable[..., int]] = {
    work.__name__: work for work in (typed, lark_alone, with_re, a_few_kinds)
}

MAWK_COUNT = "/live kv cache miss/{m++} /kv cache evicted/{e++} END{print m+e}"
MAWK_TYPED = "/ prefill chunk | decoding chunk=/{n=split($0,a,/[ =:\\/().]+/); for(i=1;i<=n;i++) s+=a[i]+0; c++} END{print c}"


# -- measuring -------------------------------------------------------------------------------------


def measure(what: str, who: str, command: list[str], path: Path, lines: int, runs: int) -> Figure:
    """The best of `runs` runs of a command, end to end."""
    best: tuple[float, float, int] | None = None
    for _ in range(runs):
        with tempfile.TemporaryFile() as out:  # grep stops at its first match where it writes to /dev/null
            started = time.perf_counter()
            process = subprocess.Popen(command, stdout=out)
            _, status, usage = os.wait4(process.pid, 0)
        spent = time.perf_counter() - started
        if status:
            raise SystemExit(f"{' '.join(command)} ended with status {status}")
        now = (
            spent,
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss // (1 if sys.platform != "darwin" else 1024),
        )
        best = min(best, now) if best else now
    assert best is not None
    return Figure(what, who, best[0], best[1], lines, path.stat().st_size, best[2] // 1024)


def own(work: str, *words: object) -> list[str]:
    return [sys.executable, __file__, "--work", work, *map(str, words)]


def command_line(path: Path) -> list[str]:
    kinds = [word for kind in KINDS for word in ("--kind", kind)]
    return [sys.executable, "-m", "ds4scope", "events", str(path), *kinds, "--count", "--format", "ndjson"]


def head(path: Path, lines: int, target: Path) -> Path:
    with path.open("rb") as source, target.open("wb") as out:
        for _, line in zip(range(lines), source, strict=False):
            out.write(line)
    return target


def on_a_month(data: Path, lines: int, runs: int) -> list[Figure]:
    """Everything that needs no more than a log of `lines` lines."""
    month, syslog = data / "month.log", data / "month.syslog"
    generate.write(month, count=lines)
    with month.open() as source, syslog.open("w") as out:
        out.writelines(SYSLOG + line for line in source)
    part = head(month, 20_000, data / "part.log")
    figures = [
        measure("all kinds typed", "ds4scope", own("typed", month, "fast"), month, lines, runs),
        measure(
            "all kinds typed, behind syslog", "ds4scope", own("typed", syslog, "fast"), syslog, lines, runs
        ),
        measure(
            "all kinds typed",
            "ds4scope --lane lark (shapes learned)",
            own("typed", month, "lark"),
            month,
            lines,
            1,
        ),
        measure("all kinds typed", "Lark alone, every line", own("lark_alone", part), part, 20_000, 1),
        measure("chunk and decoding typed", "Python re", own("with_re", month), month, lines, 1),
        measure("misses and evictions", "ds4scope events --kind", command_line(month), month, lines, runs),
    ]
    if shutil.which("mawk"):
        figures.append(
            measure("chunk and decoding typed", "mawk", ["mawk", MAWK_TYPED, str(month)], month, lines, runs)
        )
    return figures


def on_long(data: Path, size: int, runs: int) -> list[Figure]:
    """The search for a few kinds in a long log, end to end."""
    long = data / "long.log"
    lines = generate.write(long, size=size)
    figures = [
        measure(
            "misses and evictions, long log", "ds4scope events --kind", command_line(long), long, lines, runs
        )
    ]
    if shutil.which("mawk"):
        figures.append(
            measure(
                "misses and evictions, long log", "mawk", ["mawk", MAWK_COUNT, str(long)], long, lines, runs
            )
        )
    if shutil.which("grep"):
        count = ["grep", "-cE", "live kv cache miss|kv cache evicted", str(long)]
        figures.append(measure("misses and evictions, long log", "grep -cE", count, long, lines, runs))
    long.unlink()
    return figures


def table(figures: list[Figure]) -> str:
    rows = [
        "| what | who | wall s | CPU s | lines/s | GB/s | peak MiB | ds4scope is faster by |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    ours = {figure.what: figure for figure in reversed(figures) if figure.who.startswith("ds4scope")}
    ours["chunk and decoding typed"] = ours["all kinds typed"]
    for one in figures:
        us = ours.get(one.what)
        ratio = f"{(one.seconds / one.lines) / (us.seconds / us.lines):.1f}×" if us and us is not one else ""
        rows.append(
            f"| {one.what} | {one.who} | {one.seconds:.2f} | {one.cpu:.2f} | {one.lines / one.seconds:,.0f} | "
            f"{one.size / one.seconds / 1e9:.2f} | {one.peak_mib} | {ratio} |"
        )
    return "\n".join(rows)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--lines", type=int, default=LINES)
    arguments.add_argument("--gib", type=float, default=GIB, help="size of the long log, 0 to leave it out")
    arguments.add_argument(
        "--data",
        type=Path,
        default=Path("bench-data"),
        help="folder for the logs (kept but for the long one)",
    )
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--work", nargs="+", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.work:
        WORK[given.work[0]](*given.work[1:])
        return
    given.data.mkdir(exist_ok=True)
    figures = on_a_month(given.data, given.lines, given.runs)
    if given.gib:
        figures += on_long(given.data, int(given.gib * (1 << 30)), given.runs)
    load = os.getloadavg()[0]
    if given.json:
        print(
            json.dumps(
                {"load": load, "cores": os.cpu_count(), "figures": [asdict(figure) for figure in figures]}
            )
        )
    else:
        print(
            f"{given.lines:,} lines; {os.cpu_count()} cores, load {load:.1f} (figures mean little on a busy machine)\n\n{table(figures)}"
        )


if __name__ == "__main__":
    main()
