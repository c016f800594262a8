"""`ds4scope doctor LOG [--kv-dir DIR]`: which options hurt this workload, with the replayed gain of each change."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triage.doctor import Advice, Diagnosis


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("input", nargs="+", metavar="INPUT", help="log, report, directory, or -")
    parser.add_argument(
        "--kv-dir", action="append", default=[], metavar="DIR",
        help="the server's KV directory; only the 48-byte headers of its files are read (repeatable)",
    )  # fmt: skip
    parser.add_argument(
        "--trace", action="append", default=[], metavar="FILE", help="--trace file (repeatable)"
    )
    parser.add_argument("--format", choices=("table", "json"), help="default: a text for a person")
    parser.add_argument("--since", metavar="STAMP", help="from this stamp on")
    parser.add_argument("--until", metavar="STAMP", help="up to this stamp")


def run(args: argparse.Namespace) -> int:
    """Read, look, replay, print."""
    from parser.reading import read
    from parser.sources import nothing_found
    from triage.doctor import diagnose
    from triage.kvdir import read_directory

    reading = read(args.input, traces=args.trace, since=args.since, until=args.until)
    if not (reading.requests or reading.server.config or args.kv_dir):
        raise nothing_found(args.input)
    checkpoints = [c for path in args.kv_dir for c in read_directory(path)] if args.kv_dir else None
    diagnosis = diagnose(reading, checkpoints)
    sys.stdout.write(_json(diagnosis) if args.format == "json" else _text(diagnosis))
    return 0


def _json(diagnosis: Diagnosis) -> str:
    from ds4scope.tables import as_json

    document: dict[str, Any] = {"schema": 1, "config": dict(diagnosis.config), "fidelity": diagnosis.fidelity}
    document["advice"] = [asdict(a) for a in diagnosis.advice]
    document["no_gain"] = [asdict(a) for a in diagnosis.no_gain]
    document["kv_dir"] = diagnosis.directory
    document["defaults_assumed"] = list(diagnosis.unsaid)
    return as_json(document)


def _text(diagnosis: Diagnosis) -> str:
    from ds4scope.tables import table
    from parser.sanitise import sanitise

    lines = []
    for advice in diagnosis.advice:
        lines += _advice(advice)
    if not diagnosis.advice:
        lines.append("No option of this configuration hurts this workload, as far as the log shows.")
    lines += [_no_gain(advice) for advice in diagnosis.no_gain]
    if diagnosis.fidelity is not None:
        lines.append(
            f"The replay that these gains rest on reproduces {diagnosis.fidelity:.1%} of the requests."
        )
    if diagnosis.unsaid:
        lines.append(f"Not in the log, taken at the server's defaults: {', '.join(diagnosis.unsaid)}.")
    text = "".join(f"{sanitise(line)}\n" for line in lines)
    if diagnosis.directory is not None:
        text += "\n" + table(
            ("KV directory", "value"), [(k, _plain(v)) for k, v in diagnosis.directory.items()]
        )
    return text


def _plain(value: Any) -> Any:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value


def _advice(advice: Advice) -> list[str]:
    lines = [f"{advice.option}: {advice.now} -> {advice.tried}", f"  why   {advice.because}"]
    if advice.replayed:
        lines.append(f"  gain  {_saved(advice)} (replayed)")
    if advice.note:
        lines.append(f"  note  {advice.note}")
    return [*lines, ""]


def _no_gain(advice: Advice) -> str:
    """A change that suggests itself and that the replay says does not help."""
    return (
        f"{advice.option}: {advice.now} -> {advice.tried} would not help, "
        f"though {advice.because}: replayed, it saves {_saved(advice)}."
    )


def _saved(advice: Advice) -> str:
    from triage.evidence import plural

    seconds = "" if advice.seconds_saved is None else f", {advice.seconds_saved:,.1f} s of waiting"
    misses = plural(advice.misses_saved or 0, "miss", "misses")
    return f"{advice.tokens_saved:,} tokens of prefill, {misses}{seconds}"
