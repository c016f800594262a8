"""Counterfactuals: the replay that proves a finding, where the input allows it.

The workload of the log is replayed under the server that wrote it and under the change that the mechanism
names. What that saves is stated in tokens and seconds with a range: once against the replay of the unchanged
server, once against the log itself; seconds also at the log's slowest and fastest prefill.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from parser.errors import Ds4scopeError
from triage.finding import Counterfactual, Finding
from triage.mechanism import Mechanism, Replay
from triage.view import View

if TYPE_CHECKING:
    from replay.outcome import Outcome
    from replay.study import Study

#: larger logs are not replayed within a triage (`ds4scope replay` does that)
MOST_REQUESTS: Final = 300
FEWEST_REQUESTS: Final = 3
#: findings that get a replay of their own, from the top
PROVEN: Final = 4
#: below this share of reproduced requests a replay proves nothing about this log
MIN_FIDELITY: Final = 0.5
#: numbers, where "x4" or "+1" is relative to what the log shows (server defaults, cache-behaviour R4.2)
_DEFAULTS: Final = {"kv_disk_space_mb": 4096, "kv_cache_continued_interval_tokens": 10_000, "ctx": 32_768}


def proven(
    findings: tuple[Finding, ...], view: View, mechanisms: Mapping[str, Mechanism]
) -> tuple[Finding, ...]:
    """The findings, with what a replay says they would have saved; else `quantities["not_replayed"]` says why."""
    alarms = [f for f in findings if _replayable(mechanisms.get(f.mechanism))][:PROVEN]
    if not alarms:
        return findings
    why = _refusal(view)
    study = None
    if why is None:
        study, why = _study(view)
    done = {f.mechanism: _with(f, mechanisms[f.mechanism].replay, study, view, why) for f in alarms}
    return tuple(done.get(f.mechanism, f) for f in findings)


def _replayable(mechanism: Mechanism | None) -> bool:
    return mechanism is not None and mechanism.severity != "none" and mechanism.replay is not None


def _refusal(view: View) -> str | None:
    """Why this input cannot be replayed, or None."""
    complete = sum(r.prompt_tokens is not None for r in view.requests)
    if view.reading.kind != "log":
        return "an excerpt: a replay needs the log from the server's start on"
    if complete < FEWEST_REQUESTS or complete * 10 < len(view.requests) * 9:
        return "too few complete requests: a replay needs `prompt start` lines from the server's start on"
    if len(view.requests) > MOST_REQUESTS:
        return f"{len(view.requests)} requests: `ds4scope replay` replays a log of this length"
    return None


def _study(view: View) -> tuple[_Base | None, str | None]:
    """The study of the log with its unchanged replay, or why there is none."""
    from replay.study import study_of

    try:
        study = study_of(view.reading)
        base = study.run()
        compared = study.fidelity(base)
    except Ds4scopeError as error:
        return None, error.message
    fidelity = compared.fraction if compared is not None else 0.0
    if fidelity < MIN_FIDELITY:
        return None, f"the replay reproduces only {fidelity:.0%} of the requests"
    return _Base(study, base, fidelity), None


class _Base:
    """A study, its unchanged replay, and how far that agrees with the log."""

    def __init__(self, study: Study, outcome: Outcome, fidelity: float) -> None:
        self.study, self.outcome, self.fidelity = study, outcome, fidelity


def _with(finding: Finding, spec: Replay | None, base: _Base | None, view: View, why: str | None) -> Finding:
    assert spec is not None
    if not spec.options:
        return _not_replayed(finding, "no option of the replay stands for this remedy")
    if base is None:
        return _not_replayed(finding, why or "not replayed")
    try:
        options = resolved(spec.options, view, finding)
        changed = base.study.run(**options)
    except Ds4scopeError as error:
        return _not_replayed(finding, error.message)
    proof = _saved(spec, options, base, changed, view)
    return replace(
        finding, counterfactual=proof, quantities={**finding.quantities, "replay_fidelity": base.fidelity}
    )


def _not_replayed(finding: Finding, why: str) -> Finding:
    return replace(finding, quantities={**finding.quantities, "not_replayed": why})


def resolved(options: Mapping[str, str], view: View, finding: Finding) -> dict[str, Any]:
    """Options of a mechanism as the replay takes them: `+1`, `x4`, `ctx`, `conversations` worked out from the log."""
    named = {**options}
    if named.get("slots") == "conversations":
        found = finding.quantities.get("conversations")
        named["slots"] = str(found) if isinstance(found, int) else "+1"
    return {name: _value(name, text, view) for name, text in named.items() if name != "no_kv_disk"} | (
        {"kv_disk": False} if "no_kv_disk" in options else {}
    )


def _value(name: str, text: str, view: View) -> Any:
    now = view.server.slots if name == "slots" else view.config(None, name)
    now = now if isinstance(now, (int, float)) else _DEFAULTS.get(name, 1)
    if text.startswith("+"):
        return int(now) + int(text[1:])
    if text.startswith("x"):
        return int(now * float(text[1:]))
    if text == "ctx":
        return int(view.config(None, "ctx") or _DEFAULTS["ctx"])
    return int(text) if text.isdigit() else text


def _saved(
    spec: Replay, options: Mapping[str, Any], base: _Base, changed: Outcome, view: View
) -> Counterfactual:
    """Tokens and seconds saved: the middle is replay against replay, the range holds replay against log as well."""
    before, after = base.outcome.totals, changed.totals
    seen = base.study.observed.totals if base.study.observed is not None else None
    tokens = before.prefilled_tokens - after.prefilled_tokens
    spread = [tokens] + ([seen.prefilled_tokens - after.prefilled_tokens] if seen is not None else [])
    seconds = _less(before.latency_s_sum, after.latency_s_sum)
    spread_s = [
        s
        for s in (seconds, _less(seen.latency_s_sum if seen else None, after.latency_s_sum))
        if s is not None
    ]
    if view.rate and view.rates and view.rates[0] > 0:
        # the part that is prefill, at the log's slowest and fastest speed instead of its usual one
        spread_s += [
            (seconds or 0.0) + tokens / rate - tokens / view.rate * (seconds is not None)
            for rate in view.rates
        ]
    return Counterfactual(
        profile=spec.note + ": " + ", ".join(f"{name}={value}" for name, value in options.items()),
        tokens_saved=tokens,
        seconds_saved=seconds,
        tokens_range=(min(spread), max(spread)),
        seconds_range=(round(min(spread_s), 3), round(max(spread_s), 3)) if spread_s else None,
    )  # fmt: skip


def _less(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else round(before - after, 3)
