"""Speed of the tensor backend on this device: prefill by depth, decode, save, load.

    python benchmarks/mlx.py [--device cpu|cuda|metal] [--family deepseek-v4] [--depth 131072] [--json FILE]
    python benchmarks/mlx.py --logs LOG... [--scale 32]     replay each log with tensors, one line each

The peer in the same run is the choice of rows by a plain top-k over all of them (`--plain 0` leaves it out);
candidate blocks must beat it at depth. Figures in docs/mlx.md come from this command.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

if sys.path[0] == str(Path(__file__).parent):
    del sys.path[0]  # files here are named like the packages they measure


def main() -> None:
    from replay.backends.device import open_device

    args = options()
    device = open_device(args.device)
    if args.logs:
        replays(args)
        return
    from replay.backends.measure import measure
    from replay.backends.small import SmallEngine
    from replay.models.scale import Scale

    engine = SmallEngine(args.family, device, Scale(1))
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(engine, Path(folder), args.depth)
    show(engine.name, device.name, args.depth, measured)
    if args.plain:
        plain(device, args.plain)
    if args.json:
        Path(args.json).write_text(json.dumps(asdict(measured)))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--family", default="deepseek-v4")
    parser.add_argument("--depth", type=int, default=131072)
    parser.add_argument("--plain", type=int, default=32768, help="depth of the peer")
    parser.add_argument("--json")
    parser.add_argument("--logs", nargs="+", type=Path)
    parser.add_argument("--scale", type=int, default=1)
    return parser.parse_args()


def replays(args) -> None:
    """What each log's replay moved, whether every decision held, and how long it took."""
    from parser.reading import read
    from replay.backends.mlx import TensorOptions, carry_out
    from replay.study import study_of

    print(
        "| log | family | requests | misses | prefilled | evicted files | as in the log | unsound | logits | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for path in args.logs:
        study, log = study_of(read([path])), []
        outcome = study.run(log=log)
        options = TensorOptions(device=args.device, scale=args.scale)
        result = carry_out(study.workload, study.configs(), log, outcome, options)
        worst = max((check.difference for check in result.checks), default=0.0)
        fidelity, totals = study.fidelity(outcome), outcome.totals
        agree = "-" if fidelity is None else f"{fidelity.agree}/{fidelity.requests}"
        cells = (
            path.parent.name if path.name == "server.log" else path.stem, result.family, totals.requests, totals.live_misses, totals.prefilled_tokens,
            totals.evictions, agree, len(result.unsound), f"{len(result.checks)} x {worst:g}", f"{result.wall_s:.1f}",
        )  # fmt: skip
        print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def show(model, device, depth, measured) -> None:
    print(f"{model} on {device}")
    load = f"load {os.getloadavg()[0]:.1f}"
    cpu = depth / measured.prefill_cpu_s
    print(
        f"prefill {depth} tokens: {measured.prefill_tps:,.0f} tokens/s on average ({load}), {cpu:,.0f} a CPU second"
    )
    for at, tokens, seconds in measured.prefill[:: max(1, len(measured.prefill) // 8)]:
        print(f"  at {at:>7}: {tokens / seconds:>9,.0f} tokens/s")
    for at, batch, seconds in measured.decode:
        print(f"decode at {at:>7}, batch {batch}: {seconds * 1e3:.2f} ms a step")
    for what in ("save", "load"):
        for tokens, size, seconds in getattr(measured, what):
            print(f"{what} {tokens:>7} tokens: {size / 2**20:.1f} MiB in {seconds * 1e3:.1f} ms")


def plain(device, depth) -> None:
    """Tokens a second of one indexed layer, blocks against a plain top-k over all rows, in turn."""
    from time import perf_counter

    import mlx.core as mx

    from replay.models import attention
    from replay.models.model import TILE_CPU, TILE_GPU
    from replay.models.tile import Tile

    size = TILE_CPU if device.kind == "cpu" else TILE_GPU
    shape = attention.LayerShape(window=128, ratio=4, top_k=64)
    memory = attention.Memory(shape, 4352, 4352)
    tile = Tile(depth, size, depth, depth + size)
    rows = depth // 4
    for name, width in (("rows", shape.row), ("keys", shape.index)):
        getattr(memory, name).write(0, mx.random.normal((rows, width)))
    memory.blocks.write(0, mx.random.normal((rows // shape.block, shape.index)))
    query, wanted = mx.random.normal((size, 1, shape.row)), mx.random.normal((size, shape.index))
    mx.eval(query, wanted, memory.arrays())

    def blocks():
        return attention.chosen_rows(shape, query, wanted, tile, memory)

    def everything():
        scores = wanted @ memory.keys.read(0, rows).T
        pick = mx.argpartition(scores, -64, axis=-1)[:, -64:]
        values = memory.rows.data[pick]
        return attention.score(query, values), values

    mx.eval(blocks(), everything())  # first use of every kernel
    taken = {blocks: 0.0, everything: 0.0}
    for _ in range(10):
        for way in taken:
            began = perf_counter()
            mx.eval(way())
            taken[way] += perf_counter() - began
    print(
        f"choice of rows at {depth}: {taken[everything] / taken[blocks]:.1f} times as fast as a plain top-k"
    )


if __name__ == "__main__":
    main()
