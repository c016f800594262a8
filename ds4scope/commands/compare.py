"""`ds4scope compare INPUT --with P1 --with P2`: policies side by side, with the bound that nobody can beat."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replay.outcome import Outcome
    from replay.study import Study


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    from ds4scope import server_options, studies, tensors

    studies.register(parser)
    parser.add_argument(
        "--with", dest="variants", action="append", default=[], metavar="P",
        help="a profile, a policy, or parts joined by + (reuse-aware+slots=3); repeatable",
    )  # fmt: skip
    server_options.register(parser)
    tensors.register_costs(parser)
    parser.add_argument("--format", choices=("table", "json"), help="default: table")
    parser.add_argument("--no-color", action="store_true", help="no colours (as NO_COLOR)")


def run(args: argparse.Namespace) -> int:
    """Replays the workload under each variant."""
    from ds4scope.server_options import declared, server_options
    from ds4scope.studies import study
    from ds4scope.tables import write
    from ds4scope.tensors import set_costs

    base = server_options(args)
    made = study(args, args.input, declared(args))
    set_costs(args, made, base)
    columns = [("as it is", base, made.run(**base))]
    columns += _variants(made, args.variants, base)
    write((_json if args.format == "json" else _table)(made, columns))
    return 0


def _variants(
    made: Study, variants: list[str], base: dict[str, Any]
) -> list[tuple[str, dict[str, Any], Outcome]]:
    from replay.variants import options_of

    found = []
    for name in variants:
        options = options_of(name, base)
        found.append((name, options, made.run(**options)))
    return found


def _bound(made: Study) -> Outcome:
    from replay.bound import bound
    from replay.prologue import without_assumed

    assumed = made.extraction.assumed if made.extraction is not None else frozenset[int]()
    return without_assumed(bound(made.workload, made.costs), assumed)


def _json(made: Study, columns: list[tuple[str, dict[str, Any], Outcome]]) -> str:
    from ds4scope.outcomes import outcome_json
    from ds4scope.tables import as_json
    from replay.configure import as_json as config_json

    timed = made.costs.known
    document: dict[str, Any] = {"schema": 1, "costs": made.costs.as_json(), "columns": []}
    for name, options, outcome in columns:
        config = config_json(made.configs(**options)[0])
        document["columns"].append(
            {"name": name, "config": config, "outcome": outcome_json(outcome, timed=timed)}
        )
    document["bound"] = {"outcome": outcome_json(_bound(made), timed=timed)}
    if made.observed is not None:
        document["observed"] = outcome_json(made.observed)
    return as_json({**document, "notes": list(made.workload.notes)})


def _table(made: Study, columns: list[tuple[str, dict[str, Any], Outcome]]) -> str:
    from ds4scope.outcomes import totals_rows
    from ds4scope.tables import table
    from parser.sanitise import sanitise

    timed = made.costs.known
    shown = [(name, outcome, timed) for name, _, outcome in columns] + [("bound", _bound(made), timed)]
    if made.observed is not None:
        shown.insert(0, ("observed", made.observed, True))
    rows = totals_rows([(outcome, known) for _, outcome, known in shown])
    text = table(["", *(name for name, _, _ in shown)], rows)
    if not timed:
        text += "Nothing says how fast this machine is: give --prefill-tps for seconds.\n"
    return text + "".join(f"note: {sanitise(note)}\n" for note in made.workload.notes)
