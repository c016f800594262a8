"""`ds4scope verify BEFORE AFTER`, or `verify BEFORE --server P`: which misses went, which stayed, which are new."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ds4scope.annotations import Check
    from replay.matching import Pair, Verdict
    from replay.outcome import Outcome
    from replay.study import Study


@dataclass(frozen=True, slots=True)
class Verified:
    """Both sides and what became of the misses."""

    before: Outcome
    after: Outcome
    verdict: Verdict
    timed: bool


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    from ds4scope import server_options, studies

    parser.add_argument("before", metavar="BEFORE", help="log or workload file with the misses")
    parser.add_argument("after", nargs="?", metavar="AFTER", help="log of the same clients with the fix")
    studies.register(parser, many=False)
    server_options.register(parser)
    parser.add_argument(
        "--expect", action="append", default=[], metavar="'METRIC OP N'",
        help="a total of AFTER, or misses_gone, misses_stayed, misses_new (default: 'misses_new<=0')",
    )  # fmt: skip
    parser.add_argument(
        "--fail-on", action="append", default=[], metavar="MECHANISM", help="not to be in AFTER"
    )
    parser.add_argument("--format", choices=("table", "json", "junit", "github"), help="default: table")
    parser.add_argument("--no-color", action="store_true", help="no colours (as NO_COLOR)")


def run(args: argparse.Namespace) -> int:
    """Compares, prints, and exits with 1 where an expectation does not hold."""
    from ds4scope.server_options import declared, server_options
    from ds4scope.studies import study
    from ds4scope.tables import write
    from parser.errors import UsageError
    from triage.expectation import Expectation, known_mechanism

    expected = [Expectation.parse(text) for text in args.expect or ["misses_new<=0"]]
    forbidden = [known_mechanism(name) for name in args.fail_on]
    options = server_options(args)
    if args.after is None and not options:
        raise UsageError(
            "E-VERIFY", "nothing to verify against", hint="give AFTER, or --server, --scheduler, …"
        )
    before = study(args, [args.before], declared(args))
    after = study(args, [args.after], declared(args)) if args.after is not None else None
    verified = _verified(before, after, options)
    checks = _checks(args, verified, expected, forbidden, before, after, options)
    write(_RENDER[args.format or "table"](args, verified, checks))
    return 1 if any(check.failed for check in checks) else 0


def _verified(before: Study, after: Study | None, options: dict[str, Any]) -> Verified:
    from replay.matching import by_content, by_number, judge

    if after is None:
        one = before.observed or before.run()
        other = before.run(**options)
        return Verified(one, other, judge(by_number(one, other)), before.costs.known)
    one, other = _side(before), _side(after)
    known = before.reading is not None and after.reading is not None
    pairs = by_content((one, before.reading), (other, after.reading)) if known else by_number(one, other)  # type: ignore[arg-type]
    return Verified(one, other, judge(pairs), True)


def _side(study: Study) -> Outcome:
    return study.observed or study.run()


def _checks(
    args: argparse.Namespace, verified: Verified, expected: list[Any], forbidden: list[str],
    before: Study, after: Study | None, options: dict[str, Any],
) -> list[Check]:  # fmt: skip
    from ds4scope.annotations import Check
    from ds4scope.outcomes import totals_json

    totals = totals_json(verified.after, timed=verified.timed) | verified.verdict.metrics()
    checks = [Check(f"{e.metric} {e.comparison} {e.number:g}", e.broken_by(totals)) for e in expected]
    if forbidden:
        found = _found(before, after, options)
        checks += [Check(f"no {name}", f"{name} was found" if name in found else None) for name in forbidden]
    return checks + [_new_miss(args, pair, after) for pair in verified.verdict.new if not args.expect]


def _found(before: Study, after: Study | None, options: dict[str, Any]) -> frozenset[str]:
    """Mechanisms in AFTER: in its log, or in the log that the replay would have printed."""
    from ds4scope.triaged import mechanisms_of, reading_of

    if after is not None and after.reading is not None:
        return mechanisms_of(after.reading)
    return mechanisms_of(reading_of(after or before, {} if after is not None else options))


def _new_miss(args: argparse.Namespace, pair: Pair, after: Study | None) -> Check:
    from ds4scope.annotations import Check

    row = pair.after
    assert row is not None
    place = None
    if after is not None and after.reading is not None:
        line = next((r.line for r in after.reading.requests if r.request == row.request), 1)
        place = (args.after, line)
    return Check(f"request {row.request}", f"a new miss: {_words(row)}", place)


def _words(row: Any) -> str:
    return f"{row.evicted_live_tokens} live tokens replaced, {row.common} shared, {row.cached_tokens} reused"


def _json(args: argparse.Namespace, verified: Verified, checks: list[Check]) -> str:
    from ds4scope.outcomes import totals_json
    from ds4scope.tables import as_json

    verdict = verified.verdict
    return as_json(
        {
            "schema": 1,
            "holds": not any(check.failed for check in checks),
            "before": {"totals": totals_json(verified.before)},
            "after": {"totals": totals_json(verified.after, timed=verified.timed)},
            "misses": {
                name: [_pair_json(pair) for pair in getattr(verdict, name)]
                for name in ("gone", "stayed", "new")
            },
            "metrics": verdict.metrics(),
            "checks": [{"name": check.name, "failed": check.failed} for check in checks],
        }
    )


def _pair_json(pair: Pair) -> dict[str, Any]:
    sides = (("before", pair.before), ("after", pair.after))
    return {
        side: None
        if row is None
        else {
            "request": row.request,
            "source": row.source,
            "cached_tokens": row.cached_tokens,
            "prefilled_tokens": row.prefilled_tokens,
            "evicted_live_tokens": row.evicted_live_tokens,
        }
        for side, row in sides
    }


def _junit(args: argparse.Namespace, verified: Verified, checks: list[Check]) -> str:
    from ds4scope.annotations import junit

    return junit(f"ds4scope verify {args.before}", checks)


def _github(args: argparse.Namespace, verified: Verified, checks: list[Check]) -> str:
    from ds4scope.annotations import github

    return github(checks)


def _table(args: argparse.Namespace, verified: Verified, checks: list[Check]) -> str:
    from ds4scope.outcomes import totals_rows
    from ds4scope.tables import table

    rows = totals_rows([(verified.before, True), (verified.after, verified.timed)])
    verdict = verified.verdict
    lines = [table(["", "before", "after"], rows)]
    for name, pairs in (("gone", verdict.gone), ("stayed", verdict.stayed), ("new", verdict.new)):
        numbers = [str((pair.before or pair.after).request) for pair in pairs if pair.before or pair.after]  # type: ignore[union-attr]
        lines.append(
            f"misses {name}: {len(pairs)}"
            + (f" (requests {', '.join(numbers[:30])})" if pairs else "")
            + "\n"
        )
    if verdict.unmatched:
        lines.append(f"{verdict.unmatched} requests have no counterpart\n")
    lines += [f"{'not ok' if check.failed else 'ok'}: {check.failed or check.name}\n" for check in checks]
    return "".join(lines)


_RENDER = {"table": _table, "json": _json, "junit": _junit, "github": _github}
