"""Reading -> Workload: what the clients asked, from the log alone (`docs/workload.md`).

Nothing that the server decided goes into it: which slot, what was reused, what was stored is only evidence
here for which prompts share how much, and when they came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from parser.errors import InputError
from parser.reading import Reading
from replay.anchors import anchors
from replay.arrivals import Arrivals, arrivals
from replay.asking import Parts, asked
from replay.before import from_before
from replay.calibrate import Order, calibrated
from replay.configure import configs_of
from replay.costs import FittedCosts
from replay.defaults import Defaults
from replay.evidence import Evidence, gather
from replay.fitting import fit
from replay.marks import Marks, marks
from replay.notes import notes_of, notes_of_before, opened_words
from replay.operator import cut_off, stops
from replay.passed import passed_over
from replay.pictures import pictures
from replay.prefixes import Agree, Solution, grow, solve
from replay.prologue import assumed_first, with_prologue
from replay.strings import canonical, effective_tokens, live, visible
from replay.texts import bytes_of, bytes_per_token
from replay.weave import Woven, as_segments, weave
from replay.workload import Workload

#: times that defaults are chosen anew
_ROUNDS = 6
#: that a log has one kind of side calls more must make its account cheaper by so much
_KIND = 4.0
#: requests so far back may still run when one comes
_NEAR = 8


@dataclass(slots=True)
class Extraction:
    """A workload and how it was made. `assumed` are requests that stand before those of the log."""

    workload: Workload
    costs: FittedCosts
    evidence: Evidence
    solution: Solution
    arrivals: Arrivals
    assumed: frozenset[int]


def extract(reading: Reading) -> Extraction:
    """What the clients asked; InputError where no request of the log can be reconstructed."""
    if not any(r.prompt_tokens or r.canonical_prompt_tokens for r in reading.requests):
        raise InputError(
            "E-WORKLOAD-EMPTY",
            "no request whose prompt length is known",
            hint="give a log with `prompt start` or `live kv cache miss` lines",
        )
    reading, assumed = with_prologue(reading)
    found = marks(reading)
    evidence, solution, defaults = _told(reading, found, {})
    costs = fit(reading)
    times = arrivals(reading, defaults.talks, costs)
    if (
        times.waited
    ):  # who waited while which conversation was served tells conversations of several clients apart
        evidence, solution, defaults = _told(reading, found, times.waited)
        times = arrivals(reading, defaults.talks, costs)
    woven = weave(solution.tree, _names(evidence), _spliced(evidence))
    parts = _parts(reading, evidence, solution, defaults, times, woven, found)
    ratio = bytes_per_token(evidence)
    workload = Workload(
        segments=as_segments(woven.segments | _unsaid_segments(parts), bytes_of(evidence, woven, ratio)),
        requests=tuple(asked(parts, index) for index in range(len(evidence.requests))),
        stops=stops(reading, times, costs),
        family=reading.server.family,
        ctx=reading.server.config.get("ctx"),
        bytes_per_token=ratio,
        notes=notes_of(evidence, solution, defaults, parts),
    )
    workload, later = assumed_first(workload, assumed, costs)
    config = configs_of(reading, {}, workload)[0]
    files = from_before(evidence, woven, config, workload)
    notes = (*workload.notes, *notes_of_before(len(assumed), files))
    workload = replace(workload, files=files, notes=notes)
    if any(times.spans.overlap(i - 1, i) for i in range(1, len(times.start))) or any(times.queued):
        came, order = _came(evidence, times, later), _order(evidence, times)
        workload = calibrated(workload, configs_of(reading, {}, workload), costs, came, order)
    return Extraction(workload, costs, evidence, solution, times, assumed)


def _told(reading: Reading, found: Marks, waited: dict[int, int]) -> tuple[Evidence, Solution, Defaults]:
    """What the log says, and the rest by default; `waited`: index -> index of the request whose slot it had waited for."""
    evidence = gather(reading, found.reasoning)
    evidence.parted += passed_over(reading, evidence)
    evidence.waited = waited
    return evidence, *_solved(evidence)


def _came(evidence: Evidence, times: Arrivals, later: float) -> dict[int, float]:
    """When each request came, in seconds after the first one, which came at `later`."""
    known = {r.request: at for r, at in zip(evidence.requests, times.arrival, strict=True) if at is not None}
    first = min(known.values(), default=0.0)
    return {number: later + at - first for number, at in known.items()}


def _order(evidence: Evidence, times: Arrivals) -> Order:
    """Which of the requests shortly before had ended when each came; nothing of one that queued."""
    number = [request.request for request in evidence.requests]
    first, last = times.spans.first, times.spans.last
    over: dict[int, list[int]] = {}
    beside: dict[int, list[int]] = {}
    for index, queued in enumerate(times.queued):
        near = () if queued else range(max(0, index - _NEAR), index)
        over[number[index]] = [number[i] for i in near if last[i] < first[index]]
        beside[number[index]] = [number[i] for i in near if last[i] > first[index] > first[i]]
    return Order(over, beside)


def _solved(evidence: Evidence) -> tuple[Solution, Defaults]:
    """Which of several files was read is decided first, by what is certain. Then defaults that contradict the log are
    refuted and the rest chosen anew, until they fit together."""
    read = [replace(guess, taken=0) for guess in evidence.guesses]
    solve(evidence.lengths, evidence.agreed, evidence.parted, read)
    known = [*evidence.agreed, *(Agree(guess.about, *guess.way) for guess in read if guess.way is not None)]
    refuted: set[tuple[int, int, int]] = set()
    side: tuple[frozenset[int], ...] = ()
    defaults = Defaults(evidence, grow(evidence.lengths, known))
    growth = None if defaults.candidates.usual else defaults.usual_growth()
    if growth:
        defaults = Defaults(evidence, grow(evidence.lengths, known), usual=growth)
    for group in defaults.side_calls():
        other = Defaults(evidence, grow(evidence.lengths, known), refuted, (*side, group), growth)
        if other.told.cost < defaults.told.cost - _KIND:
            defaults, side = other, (*side, group)
    for number in range(_ROUNDS):
        if number:
            defaults = Defaults(evidence, grow(evidence.lengths, known), refuted, side, growth)
        # of two about one request that of the file comes last, and is blamed first: it has another way
        guesses = defaults.told.guesses + [replace(guess) for guess in read]
        solution = solve(evidence.lengths, evidence.agreed, evidence.parted, guesses)
        wrong = {(g.about, *way) for g in guesses for way in g.ways[: g.taken]} - refuted
        if not wrong:
            break
        refuted |= wrong
    return solution, defaults


def _names(evidence: Evidence) -> list[str]:
    """Names of the own parts of all strings: p for prompts, r for replies, v for replies as sent back."""
    return [f"{kind}{request.request}" for request in evidence.requests for kind in "prv"]


def _spliced(evidence: Evidence) -> dict[int, tuple[int, int]]:
    """What a continuation by text adds is the rest of its prompt; a visible key holds the reply."""
    spliced = {}
    for index, before in (evidence.hidden | evidence.loaded).items():
        behind = evidence.lengths[visible(before)] or evidence.lengths[live(before)]
        spliced[live(index)] = (canonical(index), behind)
    for index, request in enumerate(evidence.requests):
        effective = effective_tokens(request)
        whole = evidence.lengths[canonical(index)] + evidence.lengths[live(index)] - effective
        if evidence.lengths[visible(index)] > whole and index not in evidence.dropped:
            spliced[visible(index)] = (live(index), effective)
    return spliced


def _parts(
    reading: Reading,
    evidence: Evidence,
    solution: Solution,
    defaults: Defaults,
    times: Arrivals,
    woven: Woven,
    found: Marks,
) -> Parts:
    config = reading.server.config
    anchor, guessed = anchors(
        evidence,
        solution.tree,
        defaults.talks,
        trim=config.get("kv_cache_boundary_trim_tokens", 32),
        align=config.get("kv_cache_boundary_align_tokens", 2048),
    )
    talk = {turn: number for number, talk in enumerate(defaults.talks) for turn in talk}
    return Parts(
        reading, evidence, woven, times, talk, anchor, _calls(reading, evidence), found.block,
        pictures(evidence, talk),
        _unsaid(reading),
        opened_words(defaults, guessed, times),
    )  # fmt: skip


def _unsaid(reading: Reading) -> dict[int, int]:
    """Index -> tokens that a stop of the server kept unsaid: by default as many as a usual answer has."""
    known = [r.generated_tokens for r in reading.requests if r.finish in ("stop", "tool_calls", "length")]
    usual = max(1, round(median([tokens for tokens in known if tokens] or [1])))
    return dict.fromkeys(cut_off(reading), usual)


def _unsaid_segments(parts: Parts) -> dict[str, int]:
    return {f"x{parts.evidence.requests[index].request}": tokens for index, tokens in parts.unsaid.items()}


def _calls(reading: Reading, evidence: Evidence) -> Mapping[int, tuple[tuple[str, ...], bool]]:
    """Index -> ids of its tool calls, and whether their sampled text was kept (R3.34)."""
    log = reading.events
    of_event = {seq: i for i, r in enumerate(evidence.requests) for seq in r.events}
    found: dict[int, tuple[tuple[str, ...], bool]] = {}
    for event in log.rows("tool_calls") if log is not None else ():
        index = of_event.get(event.seq)
        if index is None:
            continue
        raw = event.get("raw_tool_text")
        raw = event.get("raw_dsml") if raw is None else raw
        ids: Sequence[str] = event.get("ids") or [f"{event.seq}.{n}" for n in range(event.get("n") or 0)]
        found[index] = (tuple(ids), raw != 0)
    return found
