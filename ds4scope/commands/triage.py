"""`ds4scope triage INPUT… [--format json|table]`: what happened, whose part it is, what it cost, what to do."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from parser.errors import InputError

if TYPE_CHECKING:
    from triage.report import Report


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from triage.reporters import FORMATS

    parser.add_argument(
        "input", nargs="+", metavar="INPUT", help="log, report (Markdown, pasted text), directory, or -"
    )
    parser.add_argument("--format", choices=tuple(FORMATS), help="default: a text for a person")
    parser.add_argument(
        "--trace", action="append", default=[], metavar="FILE", help="--trace file of the server (repeatable)"
    )
    parser.add_argument(
        "--client",
        action="append",
        default=[],
        metavar="FILE",
        help="the client's own usage records (JSON lines)",
    )
    parser.add_argument("--since", metavar="STAMP", help="from this stamp on ('1130 17:52' or '17:52:23')")
    parser.add_argument("--until", metavar="STAMP", help="up to this stamp")
    parser.add_argument(
        "--expect",
        action="append",
        default=[],
        metavar="'METRIC OP NUMBER'",
        help="a total to hold (repeatable)",
    )
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="MECHANISM",
        help="exit 1 if it is found (repeatable)",
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file with [tool.ds4scope] thresholds")
    parser.add_argument("--no-replay", action="store_true", help="do not replay counterfactuals")
    parser.add_argument("--no-color", action="store_true", help="no colour (also NO_COLOR)")
    parser.add_argument("--lane", choices=("auto", "fast", "lark"), default="auto", help=argparse.SUPPRESS)
    parser.add_argument("--max-bytes", type=int, metavar="N", help="bytes that packed input may unpack to")
    parser.add_argument("--year", type=int, metavar="YYYY", help="year of the stamps")


def run(args: argparse.Namespace) -> int:
    """Read, judge, print; 1 where an expectation does not hold, 3 where there is nothing to judge at all."""
    from triage.expectation import Expectation, broken, known_mechanism
    from triage.reporters import renderer

    expectations = [Expectation.parse(text) for text in args.expect]
    fail_on = [known_mechanism(name) for name in args.fail_on]
    report = _report(args)
    _refuse_empty(report, args.input)
    sys.stdout.write(renderer(args.format or "table")(report))
    reasons = broken(report, expectations, fail_on)
    for reason in reasons:
        print(f"ds4scope: {reason}", file=sys.stderr)
    return 1 if reasons else 0


def _reading_options(args: argparse.Namespace) -> dict[str, Any]:
    names = {"traces": "trace", "clients": "client"}
    keys = ("traces", "clients", "since", "until", "lane", "max_bytes", "year")
    return {key: getattr(args, names.get(key, key)) for key in keys}


def _report(args: argparse.Namespace) -> Report:
    from triage.long import triage_inputs
    from triage.thresholds import load

    limits = load(args.config)
    options = _reading_options(args)
    report = triage_inputs(args.input, thresholds=limits, counterfactuals=not args.no_replay, **options)
    return _for_posting(report, args) if args.format in ("markdown", "html") else report


def _for_posting(report: Report, args: argparse.Namespace) -> Report:
    """With what a posted report needs: hash of the input, fidelity of the replay, smallest reproduction."""
    from dataclasses import replace

    from ds4scope.reproduction import reproduction
    from parser.sources import find_sources, sha256

    added: dict[str, Any] = (
        {"sha256": [d for s in find_sources(args.input) if (d := sha256(s))]} if "-" not in args.input else {}
    )
    proved = next((f for f in report.findings if f.counterfactual is not None), None)
    if proved is not None:
        share = proved.quantities.get("replay_fidelity")
        added["fidelity"] = f"{share:.1%} of the requests reproduced" if isinstance(share, float) else None
        if args.format == "markdown":
            added["reproduction"] = reproduction(proved.mechanism, args.input, _reading_options(args))
    return replace(report, input={**report.input, **added})


def _refuse_empty(report: Report, inputs: list[str]) -> None:
    """Neither an event nor hearsay: nothing in the input that ds4-server prints (exit status 3)."""
    events = sum(n for kind, n in report.events.items() if kind != "foreign")
    if not events and not report.input.get("hearsay") and len(report.findings) <= 1:
        raise InputError(
            "E-NOTHING", f"nothing in {', '.join(inputs)} that ds4-server prints",
            hint="paste the lines from the cache miss (or `prompt start`) to `finish`",
        )  # fmt: skip
