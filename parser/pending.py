"""What the log says of a request before its `prompt start`: cache decision, evict store, disk load.

These lines carry no request id; they are held here until the `prompt start` whose numbers fit takes them
(log-formats section 6: LC3 `prompt` is canonical P, LC4-8 `cached`/`prompt` are C/P, DS9 `tokens` is C,
DS1 evict `tokens` is `live` of the miss, RT1 tokens are `live` of the miss).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from parser.event import Event
from parser.request import VISIBLE_KEYS

#: a text-keyed hit keeps sampled tokens: P may differ from the canonical prompt by this share of P
_RETOKENISED = 0.1


@dataclass(slots=True)
class Episode:
    """The lines of one request before its `prompt start`, as far as they are known to belong together."""

    events: list[Event] = field(default_factory=list)
    miss: Event | None = None
    evict: Event | None = None  # evict store (or what took its place: skipped, failed)
    hit: Event | None = None
    note: Event | None = None  # live continuation, rewind, multimodal hit: names C and P itself
    slot: int | None = None  # RT1

    @property
    def live(self) -> int | None:
        """Tokens in the slot before, as the miss line or the evict store says."""
        if self.miss is not None:
            return _number(self.miss.get("live"))
        return _number(self.evict.get("tokens")) if self.evict is not None else None

    @property
    def prompt(self) -> int | None:
        """Canonical prompt tokens of the miss line."""
        return _number(self.miss.get("prompt")) if self.miss is not None else None

    def add(self, event: Event) -> Event:
        """Take a line in, in file order."""
        self.events.append(event)
        return event


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


class Pending:
    """Episodes that wait for their `prompt start`, with disk hits and evictions not yet given to one."""

    def __init__(self) -> None:
        self.episodes: list[Episode] = []
        self.hits: list[Event] = []
        self.routed: list[Event] = []  # RT1, before their miss
        self.loose: list[Event] = []  # load failures and the like, for the next episode

    def __bool__(self) -> bool:
        return bool(self.episodes or self.hits)

    # -- lines come in -----------------------------------------------------------------------------

    def miss(self, event: Event) -> Episode:
        """LC3: a new episode; an RT1 line of the same live length names its slot."""
        episode = Episode(miss=event)
        for routed in self.routed:
            if routed.get("tokens") == event.get("live"):
                episode.slot = _number(routed.get("slot"))
                episode.add(routed)
                self.routed.remove(routed)
                break
        for rebuild in [e for e in self.episodes if e.note and e.miss is None and _rebuilds(e.note, event)]:
            episode.events.extend(rebuild.events)
            self.episodes.remove(rebuild)
        episode.add(event)
        self.episodes.append(episode)
        return episode

    def note(self, event: Event) -> None:
        """LC1, LC2, LC4-LC8: its own numbers will find the `prompt start` (LC2: the miss)."""
        episode = Episode(note=event)
        episode.add(event)
        self.episodes.append(episode)

    def evict_store(self, event: Event) -> Episode:
        """DS1-DS7 `reason=evict`: for the oldest miss of that live length that has none yet.

        Without such a miss (logs before 2026-05-14, cut excerpts) it begins an episode of its own.
        """
        tokens = event.get("tokens")
        for episode in self.episodes:
            if episode.miss is not None and episode.evict is None and tokens in (None, episode.live):
                break
        else:
            episode = Episode()
            self.episodes.append(episode)
        episode.evict = episode.add(event)
        return episode

    def hit(self, event: Event) -> None:
        """DS9: kept apart until its C is seen."""
        self.hits.append(event)

    # -- a prompt start takes them -----------------------------------------------------------------

    def claim(
        self, cached: int, prompt: int, *, serial: bool, near: bool = False, seq: int = 0
    ) -> Episode | None:
        """The episode of a `prompt start` with span `cached..prompt`, or None where nothing was printed.

        `serial`: one request at a time (single mode), so what waits can only be this one's. `near`: an
        excerpt in which the line of the disk hit may be missing. `seq` is the start's.
        """
        if not self.episodes and not self.hits:
            return None
        return self._by_note(cached, prompt) or self._by_numbers(cached, prompt, serial, near, seq)

    def claim_prompt(self, prompt: int) -> Episode | None:
        """The miss of exactly this prompt, with the load that follows it, for a request of which only P is known."""
        episode = next((e for e in self.episodes if e.note is None and e.prompt == prompt), None)
        if episode is None:
            return None
        self.episodes.remove(episode)
        later = min(
            (e.events[0].seq for e in self.episodes if e.events[0].seq > episode.events[0].seq), default=None
        )
        behind = [h for h in self.hits if h.seq > episode.events[0].seq and (later is None or h.seq < later)]
        if behind and episode.hit is None:
            episode.hit = episode.add(behind[0])
            self.hits.remove(behind[0])
        return episode

    def lone(self, prompt: int) -> bool:
        """Nothing waits but one load, and perhaps the miss of exactly this prompt."""
        return len(self.hits) <= 1 and [e.prompt for e in self.episodes] in ([], [prompt])

    def _by_note(self, cached: int, prompt: int) -> Episode | None:
        for episode in self.episodes:
            if episode.note is not None and episode.miss is None and _names(episode.note, cached, prompt):
                self.episodes.remove(episode)
                self._take_hit(episode, cached)
                self._join_second_note(episode, cached, prompt)
                self._join_miss(episode, cached, prompt)
                return episode
        return None

    def _join_second_note(self, episode: Episode, cached: int, prompt: int) -> None:
        """LC8 follows LC5; LC4 may stand beside either."""
        for other in [e for e in self.episodes if e.note and e.miss is None]:
            if other.note is not None and _names(other.note, cached, prompt) and _says_both(other.note):
                episode.events.extend(other.events)
                self.episodes.remove(other)

    def _join_miss(self, episode: Episode, cached: int, prompt: int) -> None:
        """LC8 alone says that the reasoning state was gone: the miss of that prompt stands before it."""
        alone = episode.note is not None and episode.note.rule == "replay"
        missed = self._best(cached, prompt, True, False) if alone else None
        if missed is None or missed.miss is None:
            return
        self.episodes.remove(missed)
        episode.miss, episode.evict, episode.slot = missed.miss, missed.evict, missed.slot
        episode.events = sorted([*missed.events, *episode.events], key=lambda event: event.seq)

    def _by_numbers(self, cached: int, prompt: int, serial: bool, near: bool, seq: int) -> Episode | None:
        hit = next((h for h in self.hits if h.get("tokens") == cached), None) if cached else None
        if hit is None and serial and not self.episodes:  # read, and then not used (or not to its end)
            hit = next((h for h in self.hits[-1:] if _is_unused(h, cached, prompt, near and seq)), None)
        hidden = hit is not None and hit.get("key") in VISIBLE_KEYS
        episode = self._best(cached, prompt, near or hit is not None, serial, hidden)
        if episode is None and hit is None:
            return None
        if episode is None:
            episode = Episode()
        else:
            self.episodes.remove(episode)
        self._take_hit(episode, cached, unused=serial)
        return episode

    def _best(
        self, cached: int, prompt: int, loaded: bool, serial: bool, hidden: bool = False
    ) -> Episode | None:
        """The waiting episode whose canonical prompt is nearest to P; the oldest of equals. `hidden`: the file that was
        loaded holds reasoning that the prompt does not."""
        fits = [
            (_misfit(e, prompt, loaded, cached, hidden), n) for n, e in enumerate(self.episodes) if not e.note
        ]
        fits = [fit for fit in fits if fit[0] is not None]
        if fits:
            return self.episodes[min(fits, key=lambda fit: (fit[0] or 0, fit[1]))[1]]
        waiting = [e for e in self.episodes if not e.note]
        return waiting[-1] if serial and waiting else None

    def _take_hit(self, episode: Episode, cached: int, *, unused: bool = False) -> None:
        """The load of exactly C tokens; where nothing else runs also one that was read and not used."""
        fitting = [h for h in self.hits if h.get("tokens") == cached]
        if not fitting and unused:
            fitting = self.hits[-1:]
        if fitting and episode.hit is None:
            episode.hit = episode.add(fitting[0])
            self.hits.remove(fitting[0])
        episode.events.sort(key=lambda event: event.seq)

    def take_hit(self, tokens: int | None) -> Event | None:
        """A load that belongs to a tool-checkpoint rebuild (TK2 `cached=`)."""
        for hit in self.hits:
            if tokens is not None and hit.get("tokens") == tokens:
                self.hits.remove(hit)
                return hit
        return None

    # -- nothing takes them --------------------------------------------------------------------------

    def flush(self) -> list[Episode]:
        """All that waits, each hit with the last miss before it; empties the table."""
        for hit in self.hits:
            before = [e for e in self.episodes if e.hit is None and e.events and e.events[0].seq < hit.seq]
            if before:
                episode = before[-1]
            else:
                episode = Episode()
                self.episodes.append(episode)
            episode.hit = episode.add(hit)
            episode.events.sort(key=lambda event: event.seq)
        left = self.episodes
        self.__init__()  # type: ignore[misc]
        return sorted((e for e in left if e.events), key=lambda e: e.events[0].seq)

    def drop_older(self, episode_limit: int) -> list[Episode]:
        """Episodes beyond the limit, oldest first (their `prompt start` never came)."""
        over = max(0, len(self.episodes) - episode_limit)
        left, self.episodes = self.episodes[:over], self.episodes[over:]
        del self.hits[: max(0, len(self.hits) - 4 * episode_limit)]
        del self.routed[: max(0, len(self.routed) - episode_limit)]
        return left


def _is_unused(hit: Event, cached: int, prompt: int, near: int) -> bool:
    """A load that a start left aside; one that used something else must follow at once in an excerpt (`near`)."""
    follows = not cached or not near or near == hit.seq + 1
    return follows and cached <= (_number(hit.get("tokens")) or 0) <= prompt


def _rebuilds(note: Event, miss: Event) -> bool:
    """LC2 `rewind from A to B requires rebuild`: the miss that follows still shows live = A."""
    return note.kind == "live_rewind" and note.get("from") == miss.get("live")


def _says_both(note: Event) -> bool:
    return note.kind in ("multimodal_hit", "live_continuation")


def _names(note: Event, cached: int, prompt: int) -> bool:
    """Does the line name this span? LC1 gives C (`to`), the others C and P."""
    if note.kind == "live_rewind":
        return cached in (note.get("to"), note.get("pos")) and cached < prompt
    said, whole = note.get("cached"), note.get("prompt")
    return said in (None, cached) and whole in (None, prompt) and (said, whole) != (None, None)


def _misfit(episode: Episode, prompt: int, loaded: bool, cached: int, hidden: bool) -> float | None:
    """How far an episode's numbers are from the span; None where it cannot be the span's.

    After a miss C is 0 or what the disk gave; a cold prompt is the canonical one, token for token. A state that was found
    by its visible text is longer than that by all the reasoning in it (R3.32).
    """
    said = episode.prompt
    if episode.miss is None:  # an evict store alone: no number links it, only that something was loaded
        return None if cached and not loaded and episode.hit is None else 1.0 * prompt
    if said is None:
        return 0.5 * prompt
    off = abs(said - prompt)
    if off == 0 and (loaded or not cached):
        return 0.0
    if loaded and (off <= max(64, _RETOKENISED * prompt) or (hidden and said < prompt)):
        return float(off)
    return None
