"""What stands for what on the timeline: one character a meaning, so that the picture reads without colour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One character set. Every meaning has its own shape; colour only repeats it."""

    recomputed: str  # prefill: tokens computed for this request
    cached: str  # prefill: the share of the prompt that was reused
    unknown: str  # prefill: how much of it was reused is not known
    decode: str
    evict: str  # live state written to disk, then overwritten
    lost: str  # live state overwritten and not on disk
    restore: str  # live state read back from disk
    swap: str  # one evicted and one restored within the same cell
    rewind: str  # live state cut back and reused
    failed: str  # the request ended in an error or its client went away
    older: str  # came back, but only an older checkpoint was read
    disk: str  # waiting for the disk: a save or a load
    store: str  # a checkpoint written while the conversation stays (cold, continued)
    delete: str  # a checkpoint deleted from disk
    hold: str  # somebody sits in the slot
    unsure: str  # somebody sits in the slot, but which slot it was is not certain
    mixed: str  # several conversations within one cell
    empty: str  # nobody sits in the slot
    hidden: str  # does not pass the filter
    unread: str  # this part of the log is not read yet
    different: str  # went another way in the other timeline
    parked: str  # a conversation waits on disk
    rule: str
    restart: str
    tick: str
    cursor: str
    blocks: tuple[str, ...]  # nothing, then eight rising heights

    def height(self, share: float) -> str:
        """The block for `share` (0..1); whatever is above nothing shows at least the lowest block."""
        if share <= 0:
            return self.blocks[0]
        return self.blocks[min(8, max(1, round(share * 8)))]


UNICODE: Final = Glyphs(
    recomputed="█",
    cached="▒",
    unknown="░",
    decode="═",
    evict="▼",
    lost="✕",
    restore="▲",
    swap="⇅",
    rewind="«",
    failed="!",
    older="△",
    disk="⋮",
    store="▾",
    delete="✕",
    hold="─",
    unsure="┄",
    mixed="*",
    empty="·",
    hidden=" ",
    unread="╱",
    different="≠",
    parked="─",
    rule="─",
    restart="║",
    tick="╷",
    cursor="▾",
    blocks=(" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"),
)

ASCII: Final = Glyphs(
    recomputed="#",
    cached=":",
    unknown="?",
    decode="=",
    evict="v",
    lost="x",
    restore="^",
    swap="%",
    rewind="<",
    failed="!",
    older="/",
    disk='"',
    store=",",
    delete="x",
    hold="-",
    unsure="~",
    mixed="*",
    empty=".",
    hidden=" ",
    unread="/",
    different="!",
    parked="-",
    rule="-",
    restart="|",
    tick="'",
    cursor="v",
    blocks=(" ", "_", "_", ".", ".", "o", "o", "O", "#"),
)

_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwyz"  # no x: it marks a loss
UNKNOWN_LETTER: Final = "?"


def letter(label: str | None, index: int) -> str:
    """The one character of a conversation: its label if that is one letter, else by order of appearance."""
    if label is None or index < 0:
        return UNKNOWN_LETTER
    if len(label) == 1 and label in _LETTERS:
        return label
    return _LETTERS[index % len(_LETTERS)]


def many(count: int) -> str:
    """A count within one cell: a digit, `+` from ten on."""
    return str(count) if count < 10 else "+"
