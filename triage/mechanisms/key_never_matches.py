"""key-never-matches: a checkpoint was written that no later prompt can find (4.5)."""

from __future__ import annotations

from collections.abc import Iterator

from parser.event import Event
from triage.episodes import total, total_s
from triage.evidence import event_sign, fallback_sign, fallen
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def _found_in_trace(view: View) -> list[Event]:
    """Stores by shutdown or evict under a token-text key, where a trace shows the next start as cold.

    A trace record (or a piece of one) says `cache_source: none` and `disk_cached_tokens: 0`.
    """
    if not any(h == "cold-start" for h in view.memo.get("trace_notes", ())):
        return []
    stored = [e for e in view.of("kv_stored") if e.get("key") == "token-text"]
    shutdown = [e for e in stored if e.get("reason") == "shutdown"]
    return shutdown or [e for e in stored if e.get("reason") == "evict"]


def detect(view: View) -> Iterator[Sign]:
    """The same conversation begins cold although it was stored, without a hit, skip or failure line (3.2.6)."""
    found = fallen(view, "key-never-matches")
    stores = {f.events[0].seq: f.events[0] for _, f in found if f.events}
    yield from fallback_sign(
        view,
        "key-never-matches",
        "{count} cold start{s} of conversations whose state lies on the disk under a key that the client's text never gives",
        stored_never_found_tokens=total(e.get("tokens") for e in stores.values()),
        stored_in_vain_mib=total_s(e.get("size_mib") for e in stores.values()),
    )
    if found:
        return
    traced = _found_in_trace(view)
    if traced:
        tokens = total(e.get("tokens") for e in traced)
        yield event_sign(
            f"a state of {tokens} tokens was written under key=token-text, and the trace shows that the next start did not find it",
            traced,
            {
                "stored_never_found_tokens": tokens,
                "stored_in_vain_mib": total_s(e.get("size_mib") for e in traced) or 0.0,
            },
            tokens=tokens,
            seconds=view.seconds_for(tokens),
            grade="trace",
            confidence=0.8,
        )


MECHANISM = Mechanism(
    id="key-never-matches",
    title="The stored file can never be found",
    family="disk",
    grades=("turns", "trace"),
    severity="high",
    evidence="a store by evict or shutdown with key=token-text of a conversation with reasoning or tools; later the same "
    "conversation begins cold, with no hit, skip or failure line; after a restart this is the typical form",
    not_if="the file was evicted or consumed in between; the later prompt is another conversation; a skip line explains it",
    user="endpoints with visible keys (Responses, Messages)",
    server="key by the client-visible transcript",
    detect=detect,
    upstream=(1053, 1058),
    replay=Replay("visible key: S = stored tokens", {}),
    fallback=True,
    repeats=True,
)
