"""Why a replay serves a request otherwise than its log says: a closed list of causes (`docs/fidelity.md`)."""

from __future__ import annotations

from typing import Final

from parser.reading import Reading
from replay.extract import Extraction
from replay.outcome import Outcome, Served
from replay.strings import canonical
from replay.workload import Asked

RELATION_OPEN: Final = "relation-open"
FILE_FROM_BEFORE: Final = "file-from-before"
NEAR_TIE: Final = "near-tie"
SLOT_FREED_LATE: Final = "slot-freed-late"
UNEXPLAINED: Final = "unexplained"
#: no cause of a fault of the model: the replay was asked to run under rules that are not the log's own
OTHER_RULES: Final = "other-rules"
CAUSES: Final = {
    RELATION_OPEN: "the log leaves open how much the prompt shares with an earlier one",
    FILE_FROM_BEFORE: "a checkpoint file from before the log",
    NEAR_TIE: "two scores that the log's figures cannot tell apart (R9.6)",
    SLOT_FREED_LATE: "a slot that came free just after the client's next request (R2.8)",
}
#: scores of files closer than this cannot be told apart: sizes are printed to 0.01 MiB (R9.6)
_TIE: Final = 1e-3


class Causes:
    """Judges the differences between a log and its replay."""

    def __init__(self, reading: Reading, extraction: Extraction, predicted: Outcome) -> None:
        self.requests = {r.request: r for r in reading.requests}
        self.index = {r.request: i for i, r in enumerate(extraction.evidence.requests)}
        self.extraction, self.predicted = extraction, predicted
        self.asked = extraction.workload.by_number
        self._given: dict[int, str] = {}

    def sure_slot(self, request: int) -> bool:
        """The log tells the slot of this request."""
        row = self.requests[request]
        return row.slot is not None and row.slot_confidence != "ambiguous"

    def run_of(self, request: int) -> int:
        """The server process of a request."""
        return self.requests[request].run

    def why(self, before: Served, after: Served, field: str) -> str:
        """The cause of the first field that differs; a request after one that differs in the same slot, or
        that is served from a file which only one of them has, inherits its cause."""
        cause = self._cause(before, after, field)
        self._given[before.request] = cause
        return cause

    def _cause(self, before: Served, after: Served, field: str) -> str:
        index = self.index[before.request]
        if _open(self.asked[before.request]):
            return RELATION_OPEN
        file = self.extraction.evidence.served_from.get(index)
        if (file is not None and file.known_from_hit) or self._assumed(after):
            return FILE_FROM_BEFORE
        if field == "slot" and self._freed_late(index, after):
            return SLOT_FREED_LATE
        inherited = self._inherited(before)
        if inherited is not None:
            return inherited
        if field in ("cached_tokens", "source", "disk_hit_tokens") and self._evicted_by_tie(before, after):
            return NEAR_TIE
        if self._rests_on_open(index):
            return RELATION_OPEN
        return UNEXPLAINED

    def _assumed(self, after: Served) -> bool:
        """The replay loads a file that is only assumed to have been there before the log."""
        files = self.extraction.evidence.files
        return any(f.known_from_hit and f.tokens == after.disk_hit_tokens for f in files)

    def _freed_late(self, index: int, after: Served) -> bool:
        """R2.8: the replay's slot had ended its last request so shortly before that in the server it was still
        busy."""
        times = self.extraction.arrivals
        start, spans = times.start[index], times.spans
        if start is None:
            return False
        for other in range(max(0, index - 16), index):
            began = times.start[other]
            served = self._predicted_slot(other)
            if began is not None and served == after.slot and 0 <= start - began - spans.lasted[other] < 0.02:
                return True
        return False

    def _predicted_slot(self, index: int) -> int | None:
        number = self.extraction.evidence.requests[index].request
        return next((row.slot for row in self.predicted.requests if row.request == number), None)

    def _inherited(self, before: Served) -> str | None:
        row = self.requests[before.request]
        for number in (row.previous_in_slot, row.continues):
            if number is not None and self._given.get(number, UNEXPLAINED) != UNEXPLAINED:
                return self._given[number]
        earlier = [cause for number, cause in self._given.items() if number < before.request]
        return earlier[-1] if earlier and earlier[-1] != UNEXPLAINED else None

    def _evicted_by_tie(self, before: Served, after: Served) -> bool:
        """One of them has a file that the other deleted."""
        longer = max(before.disk_hit_tokens or 0, after.disk_hit_tokens or 0)
        same = [f for f in self.extraction.evidence.files if f.tokens == longer]
        return bool(same) and self.predicted.totals.evictions > 0

    def _rests_on_open(self, index: int) -> bool:
        """A prompt that it shares its text with is placed by default."""
        tree, string = self.extraction.solution.tree, canonical(index)
        for _ in range(64):
            string = tree.parent[string]
            if string < 0:
                return False
            number = self.extraction.evidence.requests[string // 3].request
            if _open(self.asked[number]):
                return True
        return False


def _open(asked: Asked) -> bool:
    """The tokens of its prompt or reply are a default."""
    return not {"prefix", "shown"}.isdisjoint(asked.open_to)
