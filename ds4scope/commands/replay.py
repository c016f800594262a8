"""`ds4scope replay INPUT`: the workload under the rules of a server, and how far that is what the log
says."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replay.backends.result import TensorResult
    from replay.compare import Comparison
    from replay.outcome import Outcome
    from replay.study import Study


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    from ds4scope import server_options, studies

    studies.register(parser)
    server_options.register(parser)
    parser.add_argument("--backend", choices=("counts", "mlx"), default="counts", help="what carries it out")
    parser.add_argument("--format", choices=("table", "json"), help="default: table")
    parser.add_argument(
        "--min-fidelity", type=_share, metavar="F", help="exit with 4 where fewer requests agree (0 to 1)"
    )
    parser.add_argument(
        "--expect", action="append", default=[], metavar="'METRIC OP N'", help="e.g. 'live_misses<=2'"
    )
    parser.add_argument(
        "--emit-log", metavar="FILE", help="write the log that such a server would have printed"
    )
    parser.add_argument("--no-color", action="store_true", help="no colours (as NO_COLOR)")
    _mlx_options(parser)


def _mlx_options(parser: argparse.ArgumentParser) -> None:
    """What `--backend mlx` takes."""
    from ds4scope import tensors

    tensors.register(parser)


def run(args: argparse.Namespace) -> int:
    """Replays, compares, prints; the exit status is that of `docs/outputs.md`."""
    from ds4scope.server_options import declared, server_options
    from ds4scope.studies import study
    from ds4scope.tensors import set_costs
    from triage.expectation import Expectation

    expected = [Expectation.parse(text) for text in args.expect]
    options = server_options(args)
    made = study(args, args.input, declared(args))
    set_costs(args, made, options)
    log: list[Any] = []
    predicted = made.run(log if args.emit_log or args.backend != "counts" else None, **options)
    extra = _carried_out(args, made, options, log, predicted)
    fidelity = made.fidelity(predicted, **options)
    if args.emit_log is not None:
        _emit(args, made, options, log)
    _print(args, made, options, predicted, fidelity, extra)
    status = _status(args, predicted, fidelity, expected)
    return status or int(not all(result.agree for result in extra.values()))


def _carried_out(
    args: argparse.Namespace, made: Study, options: dict[str, Any], log: list[Any], predicted: Outcome
) -> dict[str, TensorResult]:
    """The same decisions with tensors (`--backend mlx`), and what that says."""
    if args.backend == "counts":
        return {}
    from ds4scope.tensors import carry_out

    return {"tensors": carry_out(args, made.workload, made.configs(**options), log, predicted)}


def _emit(args: argparse.Namespace, made: Study, options: dict[str, Any], log: list[Any]) -> None:
    from ds4scope.output import opened
    from replay.emit import emit

    first = made.reading.stamps.first if made.reading is not None else None
    with opened(args.emit_log, args.input) as out:
        out.write(emit(made.workload, made.configs(**options), log, first))


def _print(
    args: argparse.Namespace, made: Study, options: dict[str, Any], predicted: Outcome,
    fidelity: Comparison | None, extra: dict[str, TensorResult],
) -> None:  # fmt: skip
    from ds4scope.tables import write

    text = _json if args.format == "json" else _table
    write(text(made, options, predicted, fidelity, extra))


def _json(
    made: Study,
    options: dict[str, Any],
    predicted: Outcome,
    fidelity: Comparison | None,
    extra: dict[str, TensorResult],
) -> str:
    from ds4scope.outcomes import outcome_json
    from ds4scope.rewinds import rewinds
    from ds4scope.tables import as_json
    from replay.configure import as_json as config_json

    configs = made.configs(**options)
    config = {**config_json(configs[0]), "server": profile_name(made, options)}
    config["costs"] = made.costs.as_json()
    if len(configs) > 1:
        config["runs"] = [config_json(one) for one in configs]
    document = {"schema": 1, "config": config, "outcome": outcome_json(predicted, timed=made.costs.known)}
    if made.observed is not None and fidelity is not None:
        document["observed"] = outcome_json(made.observed)
        document["fidelity"] = fidelity.as_json()
    document["hearsay"] = hearsay(made)
    document["rewinds"] = rewinds(made, options, predicted)
    tensors = {name: result.as_json() for name, result in extra.items()}
    return as_json({**document, "notes": list(made.workload.notes), **tensors})


def profile_name(made: Study, options: dict[str, Any]) -> str:
    """The profile that a replay runs under."""
    from replay.configure import DEFAULT_PROFILE

    detected = made.reading.server.profile if made.reading is not None else None
    return str(options.get("server") or detected or DEFAULT_PROFILE)


def _profile_lines(made: Study, options: dict[str, Any]) -> list[str]:
    """Why the log is believed to be of this build."""
    if options.get("server") or made.reading is None:
        return []
    shapes = [one for one in made.reading.server.evidence if one.what == "build"]
    if not shapes:
        return ["nothing in the log tells its build: the default is taken (--server names another)"]
    why = "; ".join(one.because if one.line is None else f"{one.because}, line {one.line}" for one in shapes)
    return [f"{profile_name(made, options)} by the shapes of lines: {why}"]


def hearsay(made: Study) -> list[dict[str, Any]]:
    """Figures that people state in their own words: they stand beside, nothing is computed from them."""
    from dataclasses import asdict

    said = made.reading.hearsay if made.reading is not None else []
    return [asdict(one) for one in said if one.kind == "figure" or "seconds" in one.fields]


def _said_seconds(made: Study) -> list[str]:
    """Seconds that people state, for people."""
    found = []
    for one in hearsay(made):
        fields = one["fields"]
        if fields.get("unit") == "s":
            high = f" to {fields['high']:g}" if "high" in fields else ""
            per = f" per {fields['per']}" if "per" in fields else ""
            words = str(fields.get("about", one["text"]))
            found.append(f'said in line {one["line"]}: {fields["value"]:g}{high} s{per} ("{words}")')
    return found


def _table(
    made: Study,
    options: dict[str, Any],
    predicted: Outcome,
    fidelity: Comparison | None,
    extra: dict[str, TensorResult],
) -> str:
    from ds4scope.outcomes import totals_rows
    from ds4scope.rewinds import lines as rewind_lines
    from ds4scope.rewinds import rewinds
    from ds4scope.tables import table
    from ds4scope.tensors import lines as tensor_lines
    from parser.sanitise import sanitise

    columns, outcomes = ["", "replayed"], [(predicted, made.costs.known)]
    if made.observed is not None:
        columns, outcomes = ["", "observed", "replayed"], [(made.observed, True), *outcomes]
    lines = [table(columns, totals_rows(outcomes), title=f"server {profile_name(made, options)}")]
    lines += [f"{sanitise(line)}\n" for line in _profile_lines(made, options)]
    if fidelity is not None:
        lines += _differences(fidelity)
    lines += [f"{sanitise(line)}\n" for line in rewind_lines(rewinds(made, options, predicted))]
    lines += [f"{sanitise(line)}\n" for line in _said_seconds(made)]
    if not made.costs.known:
        lines.append("Nothing says how fast this machine is: give --prefill-tps for seconds.\n")
    lines += [f"note: {sanitise(note)}\n" for note in made.workload.notes]
    lines += [f"{sanitise(line)}\n" for result in extra.values() for line in tensor_lines(result)]
    return "".join(lines)


#: requests that differ which are named one by one
_MOST_NAMED = 10


def _differences(fidelity: Comparison) -> list[str]:
    from parser.sanitise import sanitise
    from replay.causes import CAUSES, OTHER_RULES

    differing = fidelity.divergences
    other = bool(differing) and differing[0].why == OTHER_RULES
    head = f"{fidelity.agree} of {fidelity.requests} requests are served as in the log"
    lines = [f"{head}; these are not, under the other rules:\n" if other else f"{head}.\n"]
    for one in differing[:_MOST_NAMED]:
        cause = "" if other else f": {CAUSES.get(one.why, one.why)}"
        lines.append(
            f"  request {one.request}: {sanitise(f'{one.field} {one.observed} in the log, {one.predicted} here')}{cause}\n"
        )
    if len(differing) > _MOST_NAMED:
        lines.append(f"  {len(differing) - _MOST_NAMED} more (--format json)\n")
    return lines


def _status(
    args: argparse.Namespace, predicted: Outcome, fidelity: Comparison | None, expected: list[Any]
) -> int:
    from ds4scope.outcomes import totals_json

    totals = totals_json(predicted)
    broken = [why for one in expected if (why := one.broken_by(totals)) is not None]
    for why in broken:
        print(f"ds4scope: not as expected: {why}", file=sys.stderr)
    if broken:
        return 1
    if args.min_fidelity is not None and fidelity is not None and fidelity.fraction < args.min_fidelity:
        print(f"ds4scope: fidelity {fidelity.fraction:.4f} is below {args.min_fidelity}", file=sys.stderr)
        return 4
    return 0


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1")
    return share
