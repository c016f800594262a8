"""Words that all reports share: a figure with its unit, a cost in one line, evidence made safe to show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from parser.sanitise import sanitise
from triage.evidence import plural
from triage.finding import Finding
from triage.report import Report

UPSTREAM: Final = "https://github.com/antirez/ds4/issues/"
#: whose part a finding is; ids that are not named here are the server's own choice
_PARTS: Final = {
    "configuration": {
        "too-few-slots", "cold-max-below-prompts", "alignment-loss", "budget-eviction", "store-then-evict",
        "nested-continued-ladder", "small-hot-prefix-evicted", "incoming-prefix-evicted", "store-skipped",
        "foreign-checkpoint", "shallow-disk-checkpoint", "write-amplification", "disk-cache-unusable",
    },
    "client": {
        "side-calls-on-one-slot", "client-early-edit", "client-transient-tail", "client-history-rewrite",
        "client-gave-up", "retry-storm", "continuation-state-lost",
    },
    "client and server together": {
        "reasoning-retokenised", "tool-bytes-retokenised", "exact-retry-no-rewind", "tail-mismatch-no-rewind",
        "key-never-matches",
    },
    "machine or engine": {
        "prefill-stall", "host-suspended", "server-stopped", "engine-prefill-failure", "distributed-failure",
        "out-of-memory", "store-failed",
    },
    "nobody's": {"unrelated-prompt", "slow-but-right", "healthy", "nothing-to-judge"},
}  # fmt: skip
#: quantities that say how sure or how counted, or out of which the row of costs is made: for machines only
_ASIDE: Final = frozenset(
    {
        "episodes", "severity", "prefill_seconds_known_for", "replay_fidelity", "lost_to_cache_tokens",
        "changed_text_tokens", "cache_loss_tokens", "changed_tokens", "new_tokens", "sampled_not_replayed_tokens",
    }
)  # fmt: skip
_GRADES: Final = {
    "log": "from the log alone", "config": "with its configuration", "turns": "over several turns",
    "trace": "with the trace", "possible": "possible", "hearsay": "from what people say, not from log lines",
}  # fmt: skip
#: verdicts that nothing is wrong, or nothing to be told
_NO_FAULT: Final = frozenset({"healthy", "slow-but-right", "nothing-to-judge"})
#: less is not worth a word
_LEAST_S: Final = 0.05


def part(mechanism: str) -> str:
    """Whose part it is: server policy, configuration, client, machine or engine, nobody's."""
    return next((name for name, ids in _PARTS.items() if mechanism in ids), "server policy")


def role(finding: Finding) -> str:
    """`primary`, `contributing`, or that it explains no cost and only completes the picture."""
    aside = finding.rank > 1 and finding.mechanism in _NO_FAULT
    return "for information" if aside else finding.role


def how_sure(finding: Finding) -> str:
    """The confidence, and what it rests on."""
    return f"{finding.confidence:.0%} sure, {_GRADES.get(finding.grade, finding.grade)}"


def cost(report: Report) -> str:
    """What the input cost, with what no cache could have saved said apart; nothing where it holds no request."""
    totals = report.totals
    if not totals["requests"] and not totals["live_misses"]:
        return ""
    return (
        f"{plural(totals['requests'], 'request')}, {plural(totals['live_misses'], 'miss', 'misses')}; "
        f"{_prefilled(totals)}; {_told(totals['lost_to_cache_tokens'])} lost to the cache{_seconds(totals)}, "
        f"{_told(totals['changed_text_tokens'])} changed text (no cache can help)"
    )


def _prefilled(totals: Any) -> str:
    known, requests = totals["prefill_known_for"], totals["requests"]
    if requests and not known:
        return "the lines do not tell how many tokens were prefilled and reused"
    shown = f" in the {known:,} of {requests:,} requests that show it" if known < requests else ""
    return f"{totals['prefilled_tokens'] or 0:,} tokens prefilled, {totals['reused_tokens'] or 0:,} reused{shown}"


def _told(tokens: int | None) -> str:
    return "an unknown number" if tokens is None else f"{tokens:,}"


def _seconds(totals: Any) -> str:
    seconds, bounds = totals.get("seconds_lost"), totals.get("seconds_lost_range")
    if not seconds or seconds < _LEAST_S:
        return ""
    span = f", {bounds[0]:,.1f}-{bounds[1]:,.1f} s at the log's speeds" if bounds else ""
    return f" ({seconds:,.1f} s{span})"


def figures(finding: Finding) -> list[tuple[str, str]]:
    """Named quantities in words: `stored_mib` -> ("stored", "12.5 MiB"); those of one name stand together."""
    found: dict[str, list[str]] = {}
    for key, value in finding.quantities.items():
        if named := _figure(key, value):
            found.setdefault(named[0], []).append(named[1])
    return [(name, ", ".join(texts)) for name, texts in found.items()]


def _figure(key: str, value: Any) -> tuple[str, str] | None:
    if key in _ASIDE or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    for ending, unit in (
        ("_tokens", " tokens"),
        ("_seconds", " s"),
        ("_mib", " MiB"),
        ("_ms", " ms"),
        ("_tps", " t/s"),
        ("_percent", " %"),
    ):
        if key.endswith(ending):
            unit = " token" if (unit, value) == (" tokens", 1) else unit
            return key.removesuffix(ending).replace("_", " "), f"{_number(value)}{unit}"
    return key.replace("_", " "), _number(value)


def _number(value: float) -> str:
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    return f"{value:,.3f}".rstrip("0") if abs(value) < 1000 else f"{value:,.1f}"


def proof(finding: Finding) -> str:
    """What a replay says a remedy saves, with the range of the seconds, or why none could say."""
    found = finding.counterfactual
    if found is None:
        why = finding.quantities.get("not_replayed")
        return f"not replayed: {why}" if why else ""
    tokens, seconds = found.tokens_saved, found.seconds_saved
    worse = (tokens or 0) < 0 and (seconds or 0.0) <= 0
    sign = -1 if worse else 1
    saved = "an unknown number of" if tokens is None else f"{sign * tokens:,}"
    waiting = "" if seconds is None else f", {sign * seconds:,.1f} s of waiting"
    if waiting and found.seconds_range is not None:
        low, high = (f"{bound:,.1f}" for bound in sorted(sign * bound for bound in found.seconds_range))
        waiting += f" ({low} to {high})" if low != high else ""
    verb = "does not help here, costs" if worse else "saves"
    return f"replayed ({found.profile}): {verb} {saved} tokens of prefill{waiting}"


def evidence(finding: Finding, report: Report, most: int, *, redacted: bool) -> list[tuple[int, str]]:
    """Line number and text of up to `most` evidence lines; `redacted` takes paths, ids and names out."""
    lines = [line for line in finding.lines if line in report.evidence_text][:most]
    texts = [report.evidence_text[line] for line in lines]
    return list(zip(lines, _shared(texts) if redacted else [sanitise(t) for t in texts], strict=True))


def _shared(texts: Iterable[str]) -> list[str]:
    """Each text as a line that can be posted: what names a person, a path or a call is replaced."""
    from parser.redact import redact

    head = "ds4-server: "
    made = []
    for text in texts:
        out = b"".join(redact([f"{head}{text}\n".encode("utf-8", "replace")], b"evidence")).decode(
            "utf-8", "replace"
        )
        made.append(sanitise(out.strip().removeprefix(head))[:400])
    return made


def flags_seen(report: Report) -> str:
    """Build and options as far as the input shows them; the directory is not named."""
    server = report.server
    parts = [f"profile {server.profile}" if server.profile else "profile unknown"]
    if server.slots is not None:
        parts.append(f"{server.slots} slots" if server.slots != 1 else "1 slot")
    if server.family:
        parts.append(server.family)
    shown = {k: v for k, v in server.config.items() if k not in ("kv_disk_dir", "trace", "scheduler")}
    said = {one.what.partition("=")[0] for one in server.evidence if one.grade == "option"}
    parts += [sanitise(f"{key}={value}") for key, value in shown.items() if key not in said]
    weaker = [sanitise(f"{key}={value}") for key, value in shown.items() if key in said]
    named = f"; people say, no log line does: {', '.join(weaker)}" if weaker else ""
    return ", ".join(parts) + named


def input_names(report: Report) -> str:
    """File names without their folders."""
    return (
        ", ".join(sanitise(str(name)).rsplit("/", 1)[-1] for name in report.input.get("sources", ()))
        or "standard input"
    )
