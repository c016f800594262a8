"""`ds4scope sweep LOG…`: policies x slots x budgets x intervals over many logs, with the Pareto front."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

_AXES = (
    ("policy", "policies", "profiles and policies, e.g. common-prefix,reuse-aware,ds4-2026-09-reuse"),
    ("slots", "slot-counts", "e.g. single,2,3"),
    ("kv_disk_space_mb", "budgets-mb", "budgets of the disk cache in MiB"),
    ("kv_cache_continued_interval_tokens", "intervals", "spacings of continued checkpoints in tokens"),
    ("kv_cache_cold_max_tokens", "cold-maxima", "longest prompts of cold checkpoints in tokens"),
)


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    from ds4scope import server_options

    parser.add_argument("input", nargs="+", metavar="LOG", help="logs and workload files, each on its own")
    for _, name, text in _AXES:
        parser.add_argument(f"--{name}", metavar="A,B,…", type=_listed, help=text)
    server_options.register(parser)
    parser.add_argument("-j", "--workers", type=int, metavar="N", help="processes (default: one a core)")
    parser.add_argument(
        "--engine", choices=("processes", "dask"), default="processes", help="who does the work"
    )
    parser.add_argument("--dask-address", metavar="HOST:PORT", help="scheduler of an existing Dask cluster")
    parser.add_argument("-o", "--output", metavar="FILE", help="all rows, as Parquet")
    parser.add_argument("--format", choices=("table", "json"), help="default: table")
    parser.add_argument("--no-color", action="store_true", help="no colours (as NO_COLOR)")


def run(args: argparse.Namespace) -> int:
    """Runs all of it, writes Parquet, prints the table."""
    from ds4scope.server_options import declared, server_options
    from ds4scope.tables import write
    from replay import sweep

    axes = {axis: _values(args, axis, name) for axis, name, _ in _AXES if _values(args, axis, name)}
    chosen = sweep.variants(axes, server_options(args))
    tasks = sweep.jobs(args.input, chosen, declared(args))
    rows = sweep.run(tasks, _runner(args), _teller(len(tasks)))
    if args.output is not None:
        _parquet(rows, args.output, args.input)
    write((_json if args.format == "json" else _table)(rows))
    return 0


def _values(args: argparse.Namespace, axis: str, name: str) -> list[Any]:
    from parser.errors import UsageError

    texts = getattr(args, name.replace("-", "_")) or []
    if axis == "policy":
        return list(texts)
    bad = [
        text
        for text in texts
        if not (text.isdecimal() and len(text) <= 12) and not (axis == "slots" and text == "single")
    ]
    if bad:
        raise UsageError("E-SWEEP", f"--{name}: {bad[0]!r} is not a number")
    return [text if text == "single" else int(text) for text in texts]


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _runner(args: argparse.Namespace) -> Any:
    import os

    from parser.errors import UsageError
    from replay import sweep

    if args.engine == "dask":
        if not args.dask_address:
            raise UsageError("E-DASK", "--engine dask needs --dask-address", hint="tcp://host:8786")
        return sweep.dask(args.dask_address)
    return sweep.processes(args.workers or os.cpu_count() or 1)


def _teller(total: int) -> Callable[[int], None]:
    """Progress on standard error, only for a person."""
    if not sys.stderr.isatty():
        return lambda done: None

    def tell(done: int) -> None:
        end = "\n" if done == total else ""
        print(f"\r{done}/{total} tasks", end=end, file=sys.stderr, flush=True)

    return tell


def _parquet(rows: Sequence[dict[str, Any]], path: str, inputs: Sequence[str]) -> None:
    from io import BytesIO

    import polars

    from ds4scope.output import opened

    frame = polars.DataFrame(list(rows), infer_schema_length=None)
    with opened(path, inputs) as out:
        data = BytesIO()  # so that a full disk is the system's error, not one of Polars
        frame.drop("place", "number").write_parquet(data, compression="zstd", statistics=False)
        out.write(data.getvalue())


def _json(rows: Sequence[dict[str, Any]]) -> str:
    from ds4scope.tables import as_json
    from replay.sweep import pareto, summed

    together = summed(rows)
    front = pareto(together)
    hidden = ("place", "number")
    return as_json(
        {
            "schema": 1,
            "rows": [{k: v for k, v in row.items() if k not in hidden} for row in rows],
            "variants": [
                {**{k: v for k, v in row.items() if k not in (*hidden, "log")}, "pareto": place in front}
                for place, row in enumerate(together)
            ],
        }
    )


def _table(rows: Sequence[dict[str, Any]]) -> str:
    from ds4scope.tables import table
    from replay.sweep import pareto, summed

    together = summed(rows)
    front = pareto(together)
    columns = (
        "live_misses",
        "evict_stores",
        "disk_hits",
        "evictions",
        "prefilled_tokens",
        "wall_s",
        "latency_s_sum",
    )
    shown = [
        [("* " if place in front else "  ") + row["variant"], *(row[name] for name in columns)]
        for place, row in enumerate(together)
    ]
    note = "* nothing else has at most as many slots, disk, prefilled tokens and seconds of latency\n"
    return table(["variant", *columns], shown, title=f"{together[0]['logs'] if together else 0} logs") + note
