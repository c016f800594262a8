"""What could not be reconstructed, in plain words, and how much rests on each default
(`docs/workload.md`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from parser.request import Request
from replay.arrivals import Arrivals
from replay.asking import Parts
from replay.defaults import Defaults
from replay.evidence import Evidence
from replay.prefixes import Solution
from replay.workload import KnownFile


def opened_words(defaults: Defaults, guessed: Iterable[int], times: Arrivals) -> dict[int, tuple[str, ...]]:
    """Index -> what the log leaves open about the request: `prefix`, `shown`, `anchor`, `arrival`."""
    words: dict[int, list[str]] = defaultdict(list)
    for opened in defaults.opened:
        if opened.guess.way is not None:
            words[opened.index].append("prefix")
    for index in sorted(defaults.evidence.unsure):
        words[index].append("shown")
    for index in guessed:
        words[index].append("anchor")
    for index, queued in enumerate(times.queued):
        if queued:
            words[index].append("arrival")
    return {index: tuple(found) for index, found in words.items()}


def notes_of(evidence: Evidence, solution: Solution, defaults: Defaults, parts: Parts) -> tuple[str, ...]:
    """Sentences for people, most important first."""
    return tuple(_notes(evidence, solution, defaults, parts))


def _notes(evidence: Evidence, solution: Solution, defaults: Defaults, parts: Parts) -> Iterable[str]:
    total = sum(evidence.lengths[::3])
    resting = sum(
        max(0, opened.guess.way[1] - opened.certain)
        for opened in defaults.opened
        if opened.guess.way is not None
    )
    if resting:
        count = sum(opened.guess.way is not None for opened in defaults.opened)
        yield (
            f"{count} of {len(evidence.requests)} prompts share a prefix that no line shows; by default they "
            f"continue the likeliest conversation, and {resting} of {total} prompt tokens rest on that"
        )
    if evidence.unsure:
        turns = len(evidence.unsure)
        yield (
            f"what later prompts hold of the replies of {turns} thinking {_plural('turn', turns)} is told by the flags of "
            "decoding lines, to within 50 tokens each"
        )
    impossible = sum(_says_too_much(request) for request in evidence.requests)
    if impossible:
        yield (
            f"{impossible} requests share more tokens than they or what they met have, by their own lines: they are taken "
            "to share all"
        )
    if solution.contradictions:
        count = len(solution.contradictions)
        yield f"{count} {_plural('statement', count)} of the log about shared prefixes contradict others"
    guessed = [words for words in parts.open_to.values() if "anchor" in words]
    if guessed:
        yield (
            f"no cold checkpoint shows where the first user message of {len(guessed)} prompts begins; by default "
            "one token before the end of what two conversations share"
        )
    nowhere = len(evidence.requests) - len(parts.anchor)
    if nowhere:
        yield (
            f"where the first user message of {nowhere} {_plural('prompt', nowhere)} begins is nowhere in the log: a head "
            "that a disk cache would keep for others is not foreseen there"
        )
    queued = sum(parts.arrivals.queued)
    if queued:
        yield f"{queued} requests may have waited for a slot; their arrival is a default"


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def _says_too_much(request: Request) -> bool:
    """A miss line or a span that cannot be true."""
    live, prompt = request.live_before, request.canonical_prompt_tokens or request.prompt_tokens
    common, cached = request.common or 0, request.cached_tokens or 0
    beyond = prompt is not None and max(common, cached if request.prompt_tokens == prompt else 0) > prompt
    return beyond or (live is not None and common > live)


def notes_of_before(states: int, files: Sequence[KnownFile]) -> Iterable[str]:
    """Sentences about what was there before the first line."""
    if states:
        what = (
            "one conversation that sat in a slot before its first line is assumed to be an earlier request"
            if states == 1
            else f"{states} conversations that sat in slots before its first line are assumed to be earlier requests"
        )
        yield f"the log starts in the middle: {what}, counted nowhere"
    if files:
        known = sum(file.tokens for file in files if file.key is not None)
        yield (
            f"{len(files)} checkpoint {_plural('file', len(files))} from before the log are assumed, as old as its first line; {known} tokens "
            "of prompts are known to be in them"
        )
