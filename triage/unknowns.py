"""What an input cannot tell, and which lines, flag or trace would; and the look-alikes that were ruled out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from triage.evidence import plural
from triage.ranking import Judged
from triage.report import RuledOut
from triage.trigger import triggers
from triage.view import View


def not_knowable(view: View, ranked: Sequence[Judged]) -> tuple[str, ...]:
    """Sentences, the most useful first."""
    return tuple(dict.fromkeys(text for rule in _UNKNOWN for text in rule(view, ranked)))


def _slots(view: View, ranked: Sequence[Judged]) -> Iterator[str]:
    if view.slots() is None and any(j.mechanism.family == "slots" for j in ranked):
        yield "how many slots the server has: the start line `batched mode enabled resident_sessions=…` or the flag --batched-session would tell"


def _starts(view: View, ranked: Sequence[Judged]) -> Iterator[str]:
    blind = [e for e in view.misses if e.start is None]
    if blind:
        yield (
            f"where the prefill started after {len(blind)} of {plural(len(view.misses), 'miss', 'misses')} (S; the re-prefill is an upper bound): "
            "the `prompt start` line behind each miss would tell"
        )
    unfinished = [e for e in view.misses if e.start is not None and e.seconds is None]
    if unfinished and view.rate is None:
        yield "what it cost in seconds: the `prompt done` line or one `prefill chunk` line would tell"


def _turns(view: View, ranked: Sequence[Judged]) -> Iterator[str]:
    named = triggers(view)
    lonely = [
        e for e in view.misses if e.previous is None and named.get(id(e)) and named[id(e)].grade == "possible"
    ]
    if lonely:
        yield "whether the reply was sent back as it was sampled: several turns are needed, with the `finish` line before the miss"
    if len(view.misses) == 1 and len(view.requests) < 3:
        yield "whether it repeats: several turns of the conversation are needed to tell"


def _texts(view: View, ranked: Sequence[Judged]) -> Iterator[str]:
    asks = {
        "reasoning-retokenised",
        "tool-bytes-retokenised",
        "tail-mismatch-no-rewind",
        "client-early-edit",
        "client-history-rewrite",
    }
    if not view.reading.trace and any(j.id in asks for j in ranked):
        yield "which text differed: a --trace file shows the first mismatching tokens"


def _disk(view: View, ranked: Sequence[Judged]) -> Iterator[str]:
    cold = [e for e in view.misses if e.start == 0]
    tried = view.of("kv_failed") or view.of("kv_skipped")
    if cold and not tried and not view.disk_in_use and not view.disk_configured():
        yield "no line shows a disk cache in use: the start line `KV disk cache … (budget=…)` would tell"


def _stamps(view: View, ranked: Sequence[Judged]) -> Iterator[str]:
    if view.requests and view.reading.stamps.first is None:
        yield "when it happened and how long the pauses were: the lines have lost their stamps"


def _clients(view: View, ranked: Sequence[Judged]) -> Iterator[str]:
    if any(j.id == "continuation-state-lost" for j in ranked):
        yield "whether the call belongs to this server process: the client's own log with its requests would tell"


_Rule = Callable[[View, Sequence[Judged]], Iterator[str]]
_UNKNOWN: Final[tuple[_Rule, ...]] = (_slots, _turns, _starts, _texts, _disk, _stamps, _clients)


# -- look-alikes -----------------------------------------------------------------------------------------


def ruled_out(view: View, ranked: Sequence[Judged]) -> tuple[RuledOut, ...]:
    """Look-alikes by name with the reason; never one that was found."""
    found = {j.id for j in ranked}
    named = {name: because for rule in _LOOK_ALIKES for name, because in rule(view, found)}
    return tuple(RuledOut(name, because) for name, because in named.items() if name not in found)


def _slot_alikes(view: View, found: set[str]) -> Iterator[tuple[str, str]]:
    slots = view.server.slots
    if slots == 1 and view.misses:
        yield "slot-steal-shared-prefix", "the server has one slot: nothing else could have been chosen"
        yield "slot-steal-trivial-prefix", "the server has one slot"
    if "slot-steal-shared-prefix" in found:
        yield (
            "client-transient-tail",
            "the misses with the same common length belong to different conversations",
        )
        if slots and slots > 1:
            yield "too-few-slots", "a slot was free while conversations pushed each other out"
    if "too-few-slots" in found:
        yield "slot-steal-shared-prefix", "every slot was held by a conversation that returns"
    if "client-transient-tail" in found:
        yield "slot-steal-shared-prefix", "no earlier live length comes back: it is one growing conversation"


def _reply_alikes(view: View, found: set[str]) -> Iterator[tuple[str, str]]:
    for episode in view.misses:
        before, common = episode.previous, episode.common
        if before is None or common is None or not common or before.how == "excerpt":
            continue
        if abs(common - before.prompt) > view.limits.reply_slack_tokens:
            where = "before" if common < before.prompt else "behind"
            yield (
                "reasoning-retokenised",
                f"the prompt parts {abs(common - before.prompt)} tokens {where} the end of the last prompt (P' = {before.prompt}, C = {common})",
            )
    if "exact-retry-no-rewind" in found and "reasoning-retokenised" not in found:
        yield "reasoning-retokenised", "C = P: the whole prompt was live, nothing in it differed"
    if view.of("live_continuation"):
        yield "tool-bytes-retokenised", "a live continuation line shows that tool turns are bound"


def _image_alikes(view: View, found: set[str]) -> Iterator[tuple[str, str]]:
    if (
        any(e.miss is not None and e.miss.get("vision") for e in view.misses)
        and "multimodal-all-or-nothing" not in found
    ):
        known = view.of("vision_cache") or view.of("multimodal_hit")
        if not known:
            yield (
                "multimodal-all-or-nothing",
                "`vision=` alone proves no images: every newer server prints it for text, too",
            )


def _disk_alikes(view: View, found: set[str]) -> Iterator[tuple[str, str]]:
    healed = [
        e for e in view.misses if e.common and e.depth and e.common - e.depth < max(1024, e.common // 20)
    ]
    if healed:
        yield (
            "shallow-disk-checkpoint",
            f"the disk answered within max(1024, 5 %) of the common text in {plural(len(healed), 'miss', 'misses')}",
        )
    hits = [e for e in view.of("kv_hit") if not e.get("consumed")]
    if hits:
        yield "consumed-on-hit", "no hit line says `consumed`: the files stay"
        used = [
            e for e in view.episodes if e.hit is not None and e.start is not None and e.start == e.hit_tokens
        ]
        if used:
            yield "hit-not-used", "the prefill starts where the hit ends (S = H)"
    if any(e.get("reason") == "cold" for e in view.of("kv_stored")):
        yield "cold-max-below-prompts", "a cold checkpoint was written"


def _stop_alikes(view: View, found: set[str]) -> Iterator[tuple[str, str]]:
    if view.of("shutdown") and "server-stopped" not in found and view.requests:
        yield "server-stopped", "the stop came after all requests had ended: an ordinary restart"
    if "server-stopped" in found and any(e.get("error") for e in view.of("finish")):
        yield "client-gave-up", "the shutdown stands before the failed write"
    if "host-suspended" in found:
        yield "prefill-stall", "the printed seconds did not grow with the stamps"
    if "prefill-stall" in found:
        yield "host-suspended", "the printed seconds grew by the same amount as the stamps"


def _retry_alikes(view: View, found: set[str]) -> Iterator[tuple[str, str]]:
    if "exact-retry-no-rewind" in found:
        yield "retry-storm", "the repeats are too few, or each of them delivered its answer"
    if any(e.common == 0 for e in view.misses):
        yield "unrelated-prompt", "C = 0: even another conversation shares the start token"


_Alike = Callable[[View, set[str]], Iterator[tuple[str, str]]]
_LOOK_ALIKES: Final[tuple[_Alike, ...]] = (
    _slot_alikes, _reply_alikes, _image_alikes, _disk_alikes, _stop_alikes, _retry_alikes,
)  # fmt: skip
