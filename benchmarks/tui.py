"""The timeline's figures: `python benchmarks/tui.py [--lines N] [--big BYTES] [--log FILE]`.

Each figure comes from a process of its own that runs the real application without a terminal and reports when a
frame with lanes was drawn: first useful screen and whole log since the process was started, keys to frame at
every zoom, memory at its highest. Beside it, as a peer in the same run: Textual's own empty application until
its first frame. `--big` also opens a log of that many bytes (say 3e9) and stops after its first screen.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

if Path(sys.path[0]) == Path(__file__).parent:
    del sys.path[0]  # this file has the name of the package that it measures

DATA = Path("bench-data")
SIZES = ((80, 24), (160, 48), (300, 80))
#: zoom, then keys whose frames are measured at that zoom
KEYS = ("right", "m", "e", "f", "shift+right", "plus", "right", "M", "down", "shift+left", "minus", "t", "t")


def child(path: str, began: float, only_first: bool) -> None:
    """Runs in a process of its own: opens `path`, prints the figures as JSON."""
    print(json.dumps(asyncio.run(_drive(path, began, only_first))))


async def _drive(path: str, began: float, only_first: bool) -> dict[str, object]:
    from tui.app import TimelineApp
    from tui.feed import Wanted

    app = TimelineApp(Wanted((path,)))
    frames: list[tuple[float, int]] = []
    draw = app._display

    def drawn(screen, renderable):
        draw(screen, renderable)
        frames.append((time.time(), len(app.session.scene.table)))

    app._display = drawn
    found: dict[str, object] = {}
    async with app.run_test(size=(160, 48)) as pilot:
        while not any(rows for _, rows in frames):
            await asyncio.sleep(0.01)
        found["first_s"] = next(at for at, rows in frames if rows) - began
        found["first_cpu_s"] = time.process_time()
        if only_first:
            found["busy_keys_ms"] = await _while_reading(app, pilot, frames)
        else:
            while app.reading:
                await asyncio.sleep(0.02)
            await pilot.pause()
            found |= {"whole_s": frames[-1][0] - began, "requests": len(app.session.scene.table)}
            found["whole_cpu_s"] = time.process_time()
            app.stop_work()
            found["keys_ms"] = await _keys(app, pilot, frames)
        found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        app.stop_work()
    return found


async def _while_reading(app, pilot, frames) -> list[float]:
    """Frames for keys while the log is still being read."""
    return [
        await _press(app, pilot, frames, key) for key in ("right", "m", "plus", "e", "right", "minus") * 3
    ]


async def _keys(app, pilot, frames) -> dict[str, list[float]]:
    """size x zoom -> milliseconds from key to frame."""
    found = {}
    cpu, pressed = time.process_time(), 0
    for size in SIZES:
        await pilot.resize_terminal(*size)
        await pilot.pause()
        for zoom in (0, 4, 8, 12):
            app.session.whole()
            for _ in range(zoom):
                app.session.zoom(0.5)
            app.main.timeline.changed()
            await pilot.pause()
            times = [await _press(app, pilot, frames, key) for key in KEYS]
            found[f"{size[0]}x{size[1]} zoom {2**zoom}"] = times
            pressed += len(times)
    found["cpu"] = [1000 * (time.process_time() - cpu) / pressed]
    return found


async def _press(app, pilot, frames, key: str) -> float:
    """Milliseconds from a key until the last frame that it caused."""
    count, began = len(frames), time.time()
    await pilot.press(key)
    for _ in range(100):
        if len(frames) > count:
            break
        await asyncio.sleep(0.001)
    return 1000 * (frames[-1][0] - began) if len(frames) > count else 0.0


def peer(began: float) -> None:
    """Textual alone: an empty application until its first frame."""
    from textual.app import App

    class Empty(App):
        def on_ready(self) -> None:
            print(json.dumps({"first_s": time.time() - began}))
            self.exit()

    Empty().run(headless=True)


def _run(*arguments: str) -> dict[str, object]:
    """The figures of a child process; its clock begins now."""
    began = time.time()
    command = [sys.executable, __file__, "--child", repr(began), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"COLUMNS": "160"}
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def _log(lines: int, size: float | None = None) -> str:
    """A generated log, made once."""
    DATA.mkdir(exist_ok=True)
    path = DATA / (f"{lines}-lines.log" if size is None else f"{int(size)}-bytes.log")
    if not path.exists():
        how = ["--lines", str(lines)] if size is None else ["--bytes", str(int(size))]
        script = Path(__file__).parent / "generate.py"
        subprocess.run([sys.executable, str(script), str(path), *how], check=True)
    return str(path)


def _report(lines: int, figures: dict[str, object], textual: dict[str, object]) -> None:
    (cpu_ms,) = figures["keys_ms"].pop("cpu")
    keys = {zoom: [ms for ms in times if ms] for zoom, times in figures["keys_ms"].items()}
    everything = sorted(ms for times in keys.values() for ms in times)
    print(f"log of {lines:,} lines, {figures['requests']:,} requests")
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    print(
        f"  {cores} cores, load {load:.1f} at the end: above {cores}.0 others were at work, and times are longer"
    )
    print(f"  Textual alone, first frame   {textual['first_s']:7.2f} s")
    print(
        f"  first useful screen          {figures['first_s']:7.2f} s   (below 1.5), {figures['first_cpu_s']:.2f} s CPU"
    )
    print(
        f"  whole log on the screen      {figures['whole_s']:7.2f} s   (below 5), {figures['whole_cpu_s']:.2f} s CPU"
    )
    worst = everything[int(len(everything) * 0.95)]
    print(
        f"  key to frame                 {median(everything):7.1f} ms median, {worst:.1f} ms p95   (below 50)"
    )
    print(f"  a key, with the waiting      {cpu_ms:7.1f} ms CPU on the mean")
    for zoom, times in keys.items():
        print(f"    {zoom:<24} {median(times):7.1f} ms median, {max(times):.1f} ms most")
    print(f"  memory at its highest        {figures['peak_mb']:7.0f} MB  (below 500)")


def main() -> None:
    """Run the children and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--log", help="measure this log instead of a generated one")
    parser.add_argument(
        "--big", type=float, help="also open a log of so many bytes and stop after its first screen"
    )
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        began, *rest = args.child
        peer(float(began)) if not rest else child(rest[0], float(began), len(rest) > 1)
        return
    _report(args.lines, _run(args.log or _log(args.lines)), _run())
    if args.big:
        big = _run(_log(0, args.big), "first")
        busy = [ms for ms in big["busy_keys_ms"] if ms]
        print(f"log of {args.big / 1e9:.1f} GB")
        print(f"  first useful screen          {big['first_s']:7.2f} s   (below 2)")
        print(f"  key to frame while reading   {median(busy):7.1f} ms median, {max(busy):.1f} ms most")


if __name__ == "__main__":
    main()
