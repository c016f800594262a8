"""The options that describe a server, shared by all commands that replay. `docs/outputs.md`."""

from __future__ import annotations

import argparse
from typing import Any, Final

#: the server's own option names that carry a number, and what they are
_NUMBERS: Final = {
    "kv-disk-space-mb": "budget of the disk cache, MiB",
    "kv-cache-min-tokens": "shortest checkpoint",
    "kv-cache-cold-max-tokens": "longest prompt of a cold checkpoint; 0 for none",
    "kv-cache-continued-interval-tokens": "spacing of continued checkpoints; 0 for none",
    "kv-cache-boundary-trim-tokens": "tokens left out at the end of a cold checkpoint",
    "kv-cache-boundary-align-tokens": "alignment of checkpoints",
    "prefill-chunk": "tokens of a prefill chunk",
    "mixed-prefill-quantum": "tokens of a prefill piece beside decoders",
    "ctx": "context of a slot",
    "ring-rows": "raw rows a layer in a live DeepSeek session's ring (raw_kv_rows)",
}
_POLICIES: Final = ("scheduler", "reuse", "store")
_RATES: Final = {
    "prefill-tps": "prefill speed, tokens a second",
    "decode-tps": "decode speed of one sequence, tokens a second",
    "save-gbps": "writing a checkpoint, 10^9 bytes a second",
    "load-gbps": "reading a checkpoint, 10^9 bytes a second",
}
_OPTIONS: Final = (
    "server", "slots", "family", *_POLICIES, *(name.replace("-", "_") for name in _NUMBERS),
)  # fmt: skip


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a server and of the machine it runs on."""
    server = parser.add_argument_group(
        "server",
        "What is not given is taken from the log's start lines, then from the profile. With --server and an "
        "option of the disk cache, the disk cache's other options are the server's defaults.",
    )
    server.add_argument("--server", metavar="PROFILE", help="server profile (default: detected from the log)")
    server.add_argument("--slots", metavar="N|single", type=_slots, help="--batched-session N, or single")
    server.add_argument("--family", metavar="FAMILY", help="deepseek-v4, deepseek-v4-pro, glm or qwen-next")
    for seam in _POLICIES:
        server.add_argument(f"--{seam}", metavar="NAME", help=f"{seam} policy, or file.py:Class")
    server.add_argument("--no-kv-disk", action="store_true", help="no --kv-disk-dir")
    for name, text in _NUMBERS.items():
        server.add_argument(f"--{name}", metavar="N", type=_count, help=text)
    machine = parser.add_argument_group("machine", "Figures that replace those fitted to the log.")
    for name, text in _RATES.items():
        machine.add_argument(f"--{name}", metavar="X", type=_rate, help=text)


def server_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options that were given, for `replay.study.Study.run`."""
    given = {name: getattr(args, name) for name in _OPTIONS if getattr(args, name) is not None}
    if args.no_kv_disk:
        given["kv_disk"] = False
    elif "kv_disk_space_mb" in given:
        given["kv_disk"] = True
    return given


def declared(args: argparse.Namespace) -> dict[str, float]:
    """Figures of the machine that were given, for `replay.costs.declare`."""
    names = [name.replace("-", "_") for name in _RATES]
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def _slots(text: str) -> int | str:
    if text == "single":
        return text
    return _positive(text, "`single` or a number of slots from 1 on")


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def _positive(text: str, what: str) -> int:
    if not text.isdecimal() or len(text) > 12 or not 1 <= int(text) <= 4096:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return int(text)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a speed above 0")
    return rate
