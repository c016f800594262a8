"""The slots over time as SVG: one lane a slot, one group a request (`id="r12"`), a mark at each miss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from parser.sanitise import sanitise
from triage.details import Bar, Details

_LANE: Final = 34
_TOP: Final = 14
_LEFT: Final = 64
_WIDE: Final = 1100
_LEAST: Final = 1.5  # a bar stays visible however short
#: told apart on light and dark ground and in the common colour deficiencies; the letter says it without colour
_COLOURS: Final = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999", "#dd8833")


def drawing(details: Details) -> str:
    """The `<svg>` element; all text in it is sanitised and escaped."""
    bars = details.bars
    slots = _slots(bars)
    width = max(_WIDE, min(20_000, 7 * len(bars)))
    height = _TOP + _LANE * len(slots) + 22
    parts = [f'<svg width="{width + _LEFT + 8}" height="{height}" role="img" aria-label="slots over time">']
    parts += [*_axis(details, slots, width, height), *_requests(bars, slots, width), "</svg>"]
    return "".join(parts)


def _slots(bars: Sequence[Bar]) -> list[int | None]:
    known = sorted({bar.slot for bar in bars if bar.slot is not None})
    return [*known, None] if any(bar.slot is None for bar in bars) else list(known)


def _axis(details: Details, slots: Sequence[int | None], width: int, height: int) -> Iterator[str]:
    for row, slot in enumerate(slots):
        y = _TOP + row * _LANE
        yield f'<text x="6" y="{y + 19}">{"slot ?" if slot is None else f"slot {slot}"}</text>'
        yield f'<line class="axis" x1="{_LEFT}" y1="{y + 27}" x2="{_LEFT + width}" y2="{y + 27}"/>'
    first, last = details.bars[0].start, max(bar.end for bar in details.bars)
    for tick in range(6):
        at = first + (last - first) * tick / 5
        said = f"{at:,.0f} s" if details.timed else f"request {int(at) + 1}"
        yield f'<text x="{_LEFT + width * tick / 5 * 0.97:.0f}" y="{height - 6}">{said}</text>'


def _requests(bars: Sequence[Bar], slots: Sequence[int | None], width: int) -> Iterator[str]:
    first, last = bars[0].start, max(bar.end for bar in bars)
    scale = width / (last - first) if last > first else 1.0
    names = {name: n for n, name in enumerate(dict.fromkeys(bar.conversation for bar in bars))}
    following = _following(bars)
    for bar in bars:
        x, turn, end = (_LEFT + (at - first) * scale for at in (bar.start, bar.turn, bar.end))
        until = _LEFT + (following.get(bar.request, last) - first) * scale
        y = _TOP + slots.index(bar.slot) * _LANE
        yield _group(
            bar,
            (x, max(turn, x + _LEAST), max(end, x + _LEAST), until),
            y,
            _COLOURS[names[bar.conversation] % 8],
        )


def _following(bars: Sequence[Bar]) -> dict[int, float]:
    """request -> start of the next one in its slot (so that the kept state can be drawn)."""
    found: dict[int, float] = {}
    latest: dict[int | None, Bar] = {}
    for bar in bars:
        if bar.slot is not None and bar.slot in latest:
            found[latest[bar.slot].request] = bar.start
        latest[bar.slot] = bar
    return found


def _group(bar: Bar, xs: tuple[float, float, float, float], y: int, colour: str) -> str:
    x, turn, end, until = xs
    edge = "" if bar.certain else " unsure"
    out = [f'<g id="r{bar.request}"><title>{escape(sanitise(bar.title), quote=True)}</title>']
    if until > end and bar.slot is not None:
        out.append(_rect(end, until - end, y, colour, "kept"))
    if end > turn:
        out.append(_rect(turn, end - turn, y, colour, f"decode{edge}"))
    out.append(_rect(x, turn - x, y, colour, f"prefill{edge}"))
    if end - x > 9:
        out.append(f'<text x="{x + 2:.1f}" y="{y + 19}">{escape(sanitise(bar.conversation)[:3])}</text>')
    if bar.miss:
        out.append(f'<path class="{bar.miss}" d="M{x:.1f} {y + 5}l-4 -6h8z"/>')
    return "".join([*out, "</g>"])


def _rect(x: float, wide: float, y: int, colour: str, kind: str) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y + 6}" width="{wide:.1f}" height="18" fill="{colour}"/>'
