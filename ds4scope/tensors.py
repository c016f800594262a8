"""`replay --backend mlx` on the command line: its options, its progress bar, its table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from parser.errors import UsageError
from replay.config import ServerConfig
from replay.decisions import Decision
from replay.outcome import Outcome
from replay.workload import Workload

if TYPE_CHECKING:
    from replay.backends.mlx import Progress
    from replay.backends.result import RewindView, TensorResult
    from replay.costs import FittedCosts
    from replay.study import Study


#: tokens that `--costs device` prefills to see how the cost grows with depth
MEASURED_DEPTH: Final = 16384


def register_costs(parser: argparse.ArgumentParser) -> None:
    """Where seconds come from: the log, or what this device takes."""
    parser.add_argument(
        "--costs",
        choices=("log", "device"),
        default="log",
        help="seconds from the log, or measured on --device",
    )
    parser.add_argument(
        "--device", choices=("auto", "metal", "cuda", "cpu"), default="auto", help="where MLX runs"
    )
    parser.add_argument("--work-dir", type=Path, metavar="DIR", help="where checkpoint files are written")


def register(parser: argparse.ArgumentParser) -> None:
    """Options of the tensor backend, and the costs it can measure."""
    register_costs(parser)
    group = parser.add_argument_group("tensors", "What --backend mlx takes.")
    group.add_argument("--scale", type=int, default=1, metavar="N", help="divide all token quantities by N")
    group.add_argument(
        "--checks", default="1", metavar="N|all", help="requests of each kind whose logits are compared"
    )
    group.add_argument("--model", type=Path, metavar="PATH", help="an mlx-lm model instead of the small one")


def carry_out(
    args: argparse.Namespace, workload: Workload, configs: Sequence[ServerConfig], log: Sequence[Decision],
    outcome: Outcome,
) -> TensorResult:  # fmt: skip
    """Carry a replay's decision log out with tensors, with a progress bar on stderr (a terminal only)."""
    from replay.backends.mlx import TensorOptions, carry_out

    options = TensorOptions(
        device=args.device,
        scale=args.scale,
        samples=_samples(args.checks),
        model=args.model,
        work_dir=args.work_dir,
    )
    with progress_bar() as progress:
        return carry_out(workload, configs, log, outcome, options, progress)


def set_costs(args: argparse.Namespace, made: Study, options: dict[str, Any]) -> None:
    """`--costs device`: the study's seconds are those of this device."""
    if args.costs == "device":
        made.costs = _device_costs(args, made.configs(**options)[0])


def _device_costs(args: argparse.Namespace, config: ServerConfig) -> FittedCosts:
    """What the small model of the server's family takes."""
    import tempfile

    from replay.backends.device import open_device

    device = open_device(args.device)
    from replay.backends.measure import costs, measure
    from replay.backends.small import SmallEngine
    from replay.models.scale import Scale

    engine = SmallEngine(config.family, device, Scale(1), config.ring)
    with tempfile.TemporaryDirectory(dir=args.work_dir) as folder:
        return costs(measure(engine, Path(folder), min(MEASURED_DEPTH, config.ctx)), config)


def _samples(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdigit():
        raise UsageError("E-CHECKS", f"--checks takes a number or `all`, not {text!r}")
    return int(text)


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """Tokens done, tokens a second and the time left, on stderr; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    rate = TextColumn("{task.fields[rate]} tokens/s")
    columns = (TextColumn("tensors"), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, rate="-")

        def advance(done: int, total: int) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, completed=done, total=total, rate="-" if speed is None else f"{speed:,.0f}")

        yield advance


def lines(result: TensorResult) -> list[str]:
    """The result in words, one statement a line."""
    return [
        f"tensors: {result.model} on {result.device} ({result.device_name}), "
        f"{result.decisions} decisions carried out in {result.wall_s:.1f} s",
        *_unsound_lines(result),
        *_check_lines(result),
        *(_rewind_line(view, result.scale) for view in result.rewinds),
        *_spent_lines(result),
        *(f"note: {note}" for note in result.notes),
    ]


def _unsound_lines(result: TensorResult) -> list[str]:
    if not result.unsound:
        return ["decisions: all borne out by the tensors"]
    head = f"decisions: {len(result.unsound)} NOT borne out by the tensors"
    return [head, *(f"  request {u.request}, {u.decision}: {u.why}" for u in result.unsound)]


def _check_lines(result: TensorResult) -> list[str]:
    kinds = ", ".join(sorted({check.kind for check in result.checks})) or "none"
    worst = max((check.difference for check in result.checks), default=0.0)
    head = f"logits: {len(result.checks)} comparisons ({kinds}), largest difference {worst:g}"
    differ = [check for check in result.checks if not check.holds]
    return [
        head,
        *(f"  request {c.request}, {c.kind}: {c.difference:g} from {c.against}" for c in differ),
        *(f"  not compared: {text}" for text in result.not_checked),
    ]


def _rewind_line(view: RewindView, scale: int) -> str:
    what = f"rewind of request {view.request}, back {view.back} tokens from {view.live}"
    cells = f" [positions and rows of {scale} tokens]" if scale > 1 else ""
    turns = f"; it turns sound with a ring of {view.ring_needed} rows" if view.ring_needed else ""
    return f"{what}: {'sound' if view.sound else f'refused, {view.reason}{cells}'}{turns}"


def _spent_lines(result: TensorResult) -> list[str]:
    s = result.spent
    return [
        f"evaluated: {s.prefill_tokens} tokens in {s.prefill_s:.1f} s, {s.decode_steps} decode steps in "
        f"{s.decode_s:.1f} s",
        f"files: {s.save_bytes >> 20} MiB written in {s.save_s:.1f} s, {s.load_bytes >> 20} MiB read in "
        f"{s.load_s:.1f} s, at most {result.disk_peak_bytes >> 20} MiB at once",
        f"memory: {result.memory_peak_bytes >> 20} MiB of at most {result.memory_bound_bytes >> 20} MiB",
    ]
