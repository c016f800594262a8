"""History: the tables for long logs, folded request by request so that months fit in little memory.

The three tables that people's shell reports give (prompt runs, misses, stores), and per conversation, per day,
and the ten costliest requests. All are stable under `diff`: fixed columns, fixed order, no times of this run.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from parser.event import Event
from parser.reading import Reading
from parser.request import Request

LONG_RUN_S: Final = 60.0
#: upper bounds (exclusive) of the classes of `common`, in tokens
COMMON_BELOW: Final = (1_000, 10_000, 50_000)
COSTLIEST: Final = 10
KEPT_CONVERSATIONS: Final = 5_000


@dataclass(slots=True)
class Sums:
    """Counts and sums of one row of a table. Tokens, seconds, MiB; None where no request showed any."""

    count: int = 0
    misses: int = 0
    prefilled: int | None = None
    reused: int | None = None
    lost: int | None = None
    lost_known: int = 0
    seconds: float | None = None
    mib: float | None = None
    tokens: int = 0

    def add(
        self, missed: bool, prefilled: int | None, reused: int | None, lost: int | None, seconds: float | None
    ) -> None:
        """One more request."""
        self.count += 1
        self.misses += missed
        if prefilled is not None:
            self.prefilled = prefilled + (self.prefilled or 0)
        if reused is not None:
            self.reused = reused + (self.reused or 0)
        if lost is not None:
            self.lost = lost + (self.lost or 0)
            self.lost_known += 1
        if seconds is not None:
            self.seconds = seconds + (self.seconds or 0.0)


@dataclass(frozen=True, slots=True)
class TableData:
    """One table: title, column names, rows of values (None: not known)."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass
class History:
    """Add readings (or the segments of one) in order; ask for tables at the end."""

    runs: dict[bool, Sums] = field(default_factory=lambda: {False: Sums(), True: Sums()})
    reasons: dict[str, Sums] = field(default_factory=dict)
    commons: dict[str, Sums] = field(default_factory=dict)
    stores: dict[str, Sums] = field(default_factory=dict)
    days: dict[str, Sums] = field(default_factory=dict)
    conversations: dict[str, Sums] = field(default_factory=dict)
    costly: list[tuple[float, int, int, Request]] = field(default_factory=list)
    requests: int = 0
    first: datetime | None = None

    def add(self, reading: Reading, misses: Sequence[Event] | None = None) -> None:
        """Fold in one reading; `misses` are the miss lines of its requests, where others hold them than its events."""
        if self.first is None:
            self.first = _moment(reading.stamps.first, reading.stamps.year)
        if misses is None:
            misses = list(reading.events.rows("live_miss")) if reading.events is not None else []
        reasons = {event.seq: str(event.get("reason") or "not said") for event in misses}
        self._stores(reading)
        for request in reading.requests:
            self._request(request, reasons)

    def _request(self, request: Request, reasons: dict[int, str]) -> None:
        self.requests += 1
        missed = request.common is not None and request.source != "memory-rewind"
        row = (
            missed, request.prefilled_tokens, request.cached_tokens, request.lost_to_cache_tokens, request.prefill_s,
        )  # fmt: skip
        self._sums(self.days, self._day(request)).add(*row)
        self._conversation(request).add(*row)
        if request.prefill_s is not None:
            self.runs[request.prefill_s >= LONG_RUN_S].add(*row)
        self._keep_costly(request)
        if missed:
            reason = next((reasons[seq] for seq in request.events if seq in reasons), "not said")
            self._sums(self.reasons, reason).add(*row)
            self._sums(self.commons, common_class(request.common or 0)).add(*row)

    def _sums(self, table: dict[str, Sums], name: str) -> Sums:
        found = table.get(name)
        if found is None:
            found = table[name] = Sums()
        return found

    def _stores(self, reading: Reading) -> None:
        """Every checkpoint written, those of a shutdown too, which belong to no request."""
        for event in reading.events.rows("kv_stored") if reading.events else ():
            sums = self.stores.setdefault(str(event.get("reason") or "not said"), Sums())
            sums.count += 1
            sums.tokens += event.get("tokens") or 0
            if event.get("size_mib") is not None:
                sums.mib = event.get("size_mib") + (sums.mib or 0.0)

    def _conversation(self, request: Request) -> Sums:
        if len(self.conversations) > 2 * KEPT_CONVERSATIONS:
            kept = sorted(self.conversations.items(), key=lambda item: -(item[1].seconds or 0.0))[
                :KEPT_CONVERSATIONS
            ]
            self.conversations = dict(kept)
        return self._sums(self.conversations, request.conversation or "not known")

    def _keep_costly(self, request: Request) -> None:
        """By seconds; those that say no seconds come after, by the tokens that they had to prefill."""
        tokens = request.prefilled_tokens
        if tokens is None and request.common is not None:
            tokens = request.canonical_prompt_tokens  # a miss: at most that
        seconds = request.prefill_s or 0.0
        if not seconds and not tokens:
            return
        item = (seconds, tokens or 0, -request.request, request)
        if len(self.costly) < COSTLIEST:
            heapq.heappush(self.costly, item)
        elif item[:3] > self.costly[0][:3]:
            heapq.heapreplace(self.costly, item)

    def _day(self, request: Request) -> str:
        if self.first is None or request.start_s is None:
            return "not known"
        day = int((self.first - self.first.min).total_seconds() + request.start_s) // 86_400
        return _day_name(day)

    def tables(self) -> Iterator[TableData]:
        """The tables that have rows, in a fixed order."""
        made = (
            self._runs_table(), self._misses_table("misses by reason", "reason", sorted(self.reasons.items())),
            self._misses_table("misses by common prefix", "common", sorted(self.commons.items(), key=_class_order)),
            self._stores_table(), self._groups_table("by day", "day", sorted(self.days.items())),
            self._groups_table("by conversation", "conversation", self._costly_conversations()), self._costly_table(),
        )  # fmt: skip
        return (table for table in made if table.rows)

    def _runs_table(self) -> TableData:
        seconds = {over: sums.seconds or 0.0 for over, sums in self.runs.items()}
        total = sum(seconds.values())
        rows = [
            (name, self.runs[over].count, _round(seconds[over] / 3600, 3), _share(seconds[over], total))
            for name, over in (("under 60 s", False), ("60 s and over", True))
        ]
        return TableData(
            "prompt runs", ("prefill", "count", "hours", "share %"), tuple(rows if total else ())
        )

    def _misses_table(self, title: str, name: str, items: Iterable[tuple[str, Sums]]) -> TableData:
        rows = list(items)
        total = sum(s.count for _, s in rows)
        return TableData(
            title,
            (name, "count", "share %", "mean lost tokens"),
            tuple((label, s.count, _share(s.count, total), _mean(s.lost, s.lost_known)) for label, s in rows),
        )

    def _stores_table(self) -> TableData:
        total = sum(s.mib or 0.0 for s in self.stores.values())
        rows = [
            (reason, s.count, _rounded(s.mib, 1), _share(s.mib or 0.0, total), round(s.tokens / s.count))
            for reason, s in sorted(self.stores.items())
        ]
        return TableData(
            "stores by reason", ("reason", "count", "MiB", "share %", "mean tokens"), tuple(rows)
        )

    def _groups_table(self, title: str, name: str, items: Iterable[tuple[str, Sums]]) -> TableData:
        columns = (name, "requests", "misses", "prefilled", "reused", "lost", "prefill s")
        rows = [
            (label, s.count, s.misses, s.prefilled, s.reused, s.lost, _rounded(s.seconds, 1))
            for label, s in items
        ]
        return TableData(title, columns, tuple(rows))

    def _costly_conversations(self) -> list[tuple[str, Sums]]:
        return sorted(self.conversations.items(), key=_costliest_first)[:COSTLIEST]

    def _costly_table(self) -> TableData:
        rows = [
            (
                f"line {r.line}",
                r.canonical_prompt_tokens if r.prompt_tokens is None else r.prompt_tokens,
                r.cached_tokens,
                r.lost_to_cache_tokens,
                r.source,
                _rounded(r.prefill_s, 1),
            )
            for *_, r in sorted(self.costly, key=lambda item: item[:3], reverse=True)
        ]
        return TableData(
            "costliest requests", ("request", "prompt", "reused", "lost", "source", "prefill s"), tuple(rows)
        )


def common_class(common: int) -> str:
    """The class of a miss by the length of the prefix it shared with the live state."""
    bound = next((b for b in COMMON_BELOW if common < b), None)
    return f"< {bound:,}" if bound else f">= {COMMON_BELOW[-1]:,}"


def _class_order(item: tuple[str, Sums]) -> int:
    names = [*(f"< {b:,}" for b in COMMON_BELOW), f">= {COMMON_BELOW[-1]:,}"]
    return names.index(item[0])


def _moment(stamp: str | None, year: int | None) -> datetime | None:
    """`MMDD HH:MM:SS` as a date; a leap year stands in where the year is unknown, since only month and day show."""
    if stamp is None or len(stamp) < 13:
        return None
    try:
        return datetime.strptime(f"{year or 2000} {stamp[-13:]}", "%Y %m%d %H:%M:%S")
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def _day_name(day: int) -> str:
    """`MM-DD` of a day counted from the first of the calendar."""
    return f"{datetime.min + timedelta(days=day):%m-%d}"


def _costliest_first(item: tuple[str, Sums]) -> tuple[float, int, str]:
    name, sums = item
    return -(sums.seconds or 0.0), -(sums.prefilled or 0), name


def _mean(total: int | None, count: int) -> int | None:
    return None if total is None else round(total / count)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else _round(value, digits)


def _share(part: float, whole: float) -> float | None:
    return _round(100 * part / whole, 1) if whole else None


def _round(value: float, digits: int) -> float:
    return round(value, digits) + 0.0
