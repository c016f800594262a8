"""Sweeps: many logs under many servers. A task is one log and a few servers; results do not depend on who ran it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
from typing import Any, Final

from parser.errors import UsageError
from replay.study import Study, study_of, study_of_workload

#: servers a task: enough to make reading the log worth it, few enough to share the work
_A_TASK: Final = 8
#: what a variant is judged by: less of each is better
OBJECTIVES: Final = ("slots", "kv_disk_space_mb", "prefilled_tokens", "latency_s_sum")

#: totals that add up over logs, and what says something of one log only
_COUNTS: Final = (
    "requests", "live_misses", "evict_stores", "disk_hits", "evictions", "prefilled_tokens", "loaded_tokens",
)  # fmt: skip
_OF_ONE_LOG: Final = ("log", "place", "latency_s_p50", "latency_s_p95")


@dataclass(frozen=True, slots=True)
class Variant:
    """One server: a name for people and the options of `replay.study.Study.run`."""

    name: str
    options: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Job:
    """One log (its place in the list and its path) under some variants."""

    place: int
    path: str
    variants: tuple[tuple[int, Variant], ...]
    declared: tuple[tuple[str, float], ...] = ()


Row = dict[str, Any]
Runner = Callable[[Sequence[Job]], Iterable[list[Row]]]


def variants(axes: Mapping[str, Sequence[Any]], base: dict[str, Any]) -> list[Variant]:
    """The product of all axes, in the order given; `axes` maps an option to its values."""
    from replay.variants import options_of

    found = []
    for values in product(*axes.values()):
        options: dict[str, Any] = dict(base)
        parts = []
        for axis, value in zip(axes, values, strict=True):
            if axis == "policy":
                options |= options_of(value, {})
                parts.append(str(value))
            else:
                options[axis] = value
                parts.append(f"{axis}={value}")
        found.append(Variant(" ".join(parts) or "as it is", tuple(options.items())))
    return found


def jobs(paths: Sequence[str], chosen: Sequence[Variant], declared: dict[str, float]) -> list[Job]:
    """Tasks in a fixed order."""
    numbered = list(enumerate(chosen))
    cuts = [tuple(numbered[at : at + _A_TASK]) for at in range(0, len(numbered), _A_TASK)]
    return [
        Job(place, path, cut, tuple(declared.items())) for place, path in enumerate(paths) for cut in cuts
    ]


def work(job: Job) -> list[Row]:
    """One task, in any process."""
    study = _study(job.path, job.declared)
    return [_row(job, number, variant, study) for number, variant in job.variants]


@lru_cache(maxsize=4)
def _study(path: str, declared: tuple[tuple[str, float], ...]) -> Study:
    from pathlib import Path

    if path.endswith(".json"):
        from replay.workload_file import load

        return study_of_workload(load(Path(path)), dict(declared))
    from parser.reading import read

    return study_of(read([path]), dict(declared))


def _row(job: Job, number: int, variant: Variant, study: Study) -> Row:
    options = dict(variant.options)
    config = study.configs(**options)[0]
    totals = asdict(study.run(**options).totals)
    if not study.costs.known:
        totals = {
            name: None if name.startswith(("wall", "latency")) else value for name, value in totals.items()
        }
    return {
        "log": job.path, "place": job.place, "number": number, "variant": variant.name,
        "scheduler": config.scheduler, "reuse": config.reuse, "store": config.store,
        "slots": config.slot_count, "batched": config.batched, "kv_disk": config.kv_disk,
        "kv_disk_space_mb": config.kv_disk_space_mb if config.kv_disk else 0,
        "kv_cache_continued_interval_tokens": config.kv_cache_continued_interval_tokens,
        "kv_cache_cold_max_tokens": config.kv_cache_cold_max_tokens, **totals,
    }  # fmt: skip


def run(tasks: Sequence[Job], runner: Runner, tell: Callable[[int], None] = lambda done: None) -> list[Row]:
    """All rows, by log and variant, whoever was first."""
    rows: list[Row] = []
    for done, part in enumerate(runner(tasks), 1):
        rows += part
        tell(done)
    rows.sort(key=lambda row: (row["place"], row["number"]))
    return rows


def processes(workers: int) -> Runner:
    """Tasks in `workers` processes of this machine (1: in this one)."""

    def serial(tasks: Sequence[Job]) -> Iterator[list[Row]]:
        yield from map(work, tasks)

    def parallel(tasks: Sequence[Job]) -> Iterator[list[Row]]:
        with ProcessPoolExecutor(workers) as pool:
            yield from pool.map(work, tasks)

    return serial if workers <= 1 else parallel


def dask(address: str) -> Runner:
    """Tasks on an existing Dask cluster (extra `cluster`); its workers need the same paths and this package."""
    try:
        from distributed import Client

        connect: Any = Client
    except ImportError as error:
        hint = 'pip install "ds4scope[cluster]"'
        raise UsageError("E-DASK", f"Dask is not installed ({error})", hint=hint) from None

    def remote(tasks: Sequence[Job]) -> Iterator[list[Row]]:
        """Rows of each job, in order, by the workers of the cluster. Raises UsageError where none is reached."""
        try:
            client: Any = connect(address, timeout="5s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise UsageError("E-DASK", f"no Dask scheduler at {address}: {error}") from None
        try:
            for future in client.map(work, list(tasks), pure=False):
                yield future.result()
        finally:
            client.close()

    return remote


def pareto(rows: Sequence[Row]) -> set[int]:
    """Places of the rows that no other row beats in all objectives (what is not known is not compared)."""
    points = [tuple(row[name] for name in OBJECTIVES if row[name] is not None) for row in rows]
    return {
        place
        for place, point in enumerate(points)
        if not any(len(other) == len(point) and _beats(other, point) for other in points)
    }


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def summed(rows: Sequence[Row]) -> list[Row]:
    """One row a variant: its totals over all logs."""
    by_variant: dict[int, Row] = {}
    for row in rows:
        known = by_variant.get(row["number"])
        if known is None:
            whole = {name: value for name, value in row.items() if name not in _OF_ONE_LOG}
            by_variant[row["number"]] = {**whole, "logs": 1}
            continue
        known["logs"] += 1
        for name in _COUNTS:
            known[name] += row[name]
        for name in ("wall_s", "latency_s_sum"):
            known[name] = None if None in (known[name], row[name]) else known[name] + row[name]
    return [by_variant[number] for number in sorted(by_variant)]
