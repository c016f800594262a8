"""incoming-prefix-evicted: making room deleted the very file that the request was about to load (4.6)."""

from __future__ import annotations

from collections.abc import Iterator

from triage.episodes import total
from triage.evidence import fallback_sign, fallen
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def detect(view: View) -> Iterator[Sign]:
    """Between miss and `prompt start` a file with E <= C + 16 and hits=0 is deleted, and S < E (3.2.2)."""
    found = fallen(view, "incoming-prefix-evicted")
    yield from fallback_sign(
        view,
        "incoming-prefix-evicted",
        "{count} time{s} the store of the old state pushed out the prefix that the request needed: {share} tokens",
        evicted_needed_tokens=total(int(f.events[0].get("tokens")) for _, f in found if f.events),
    )


MECHANISM = Mechanism(
    id="incoming-prefix-evicted",
    title="Making room deleted the file about to be loaded",
    family="budget",
    grades=("log",),
    severity="high",
    evidence="between miss and prompt start an evicted file with E <= C+16 and hits=0, and S < E",
    not_if="E > C+16 (another branch); S >= E; a newer server that says it protects the next request's prefix",
    user="a larger --kv-disk-space-mb",
    server="load before the store, or protect the prefix",
    detect=detect,
    upstream=(447, 448),
    replay=Replay("look-up first", {"store": "load-before-store"}),
    fallback=True,
)
