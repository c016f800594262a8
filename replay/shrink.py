"""Delta debugging of workloads: the smallest one that still shows a stated thing.

Requests are taken away (those that waited for one wait for what it waited for), then turns of a conversation,
then segments are halved, then what a reproduction does not need (images, tools, think times) is dropped. Each
step keeps the thing in view, so every workload on the way is one that shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from replay.rope import Piece, Rope, join
from replay.workload import Asked, Segment, Stop, Workload

Keeps = Callable[[Workload], bool]
#: what a reproduction may do without: fields of a workload, or of its requests
_PLAIN: tuple[dict[str, object], ...] = (
    {"stops": ()},
    {"files": ()},
    {"images": ()},
    {"tools": False, "calls": (), "results": (), "tool_tail": 0, "tool_block": ()},
    {"gives_up_s": None},
    {"open_to": ()},
)
#: no segment is halved below this
_LEAST_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest workload found, and how many were tried."""

    workload: Workload
    tried: int


class _Search:
    def __init__(self, workload: Workload, keeps: Keeps, most: int) -> None:
        self.best, self.keeps, self.left = workload, keeps, most
        self.most = most

    def take(self, candidate: Workload) -> bool:
        """Keep the candidate if it still shows the thing."""
        if self.left <= 0:
            return False
        self.left -= 1
        if not self.keeps(candidate):
            return False
        self.best = candidate
        return True


def shrink(workload: Workload, keeps: Keeps, *, most: int = 600) -> Shrunk:
    """The smallest workload for which `keeps` holds; it must hold for `workload`. At most `most` tries."""
    search = _Search(workload, keeps, most)
    while True:
        before = _size(search.best)
        _fewer_requests(search)
        _fewer_segments(search)
        _shorter_segments(search)
        _plainer(search)
        if _size(search.best) >= before or search.left <= 0:
            break
    # the notes count what was open in the whole workload; this one is what its file says
    search.best = replace(renumbered(fused(used_only(search.best))), notes=())
    return Shrunk(search.best, most - search.left)


def _size(workload: Workload) -> tuple[int, int]:
    return len(workload.requests), sum(asked.prompt_tokens for asked in workload.requests)


def _fewer_requests(search: _Search) -> None:
    """Zeller's ddmin: leave out ever smaller parts."""
    parts = 2
    while len(search.best.requests) > 1:
        requests = search.best.requests
        size = -(-len(requests) // parts)
        chunks = [requests[at : at + size] for at in range(0, len(requests), size)]
        gone = [{asked.request for asked in chunk} for chunk in chunks]
        if any(search.take(without(search.best, numbers)) for numbers in gone):
            parts = max(parts - 1, 2)
        elif size == 1:
            return
        else:
            parts = min(parts * 2, len(requests))


def without(workload: Workload, numbers: Collection[int]) -> Workload:
    """The workload less some requests; who waited for one of them waits for what it waited for."""
    left, seen = [], set[int]()
    for asked in workload.requests:
        if asked.request in numbers:
            continue
        left.append(_rewired(asked, workload, numbers))
        seen.add(asked.request)
    return replace(workload, requests=tuple(left), stops=tuple(_stops(workload, seen)))


def _rewired(asked: Asked, workload: Workload, numbers: Collection[int]) -> Asked:
    after, think = asked.after, asked.think_s
    while after is not None and after in numbers:
        before = workload.by_number[after]
        think += before.think_s
        if before.after is None:
            return replace(
                asked, after=None, think_s=0.0, arrival_s=round((before.arrival_s or 0.0) + think, 6)
            )
        after = before.after
    return replace(asked, after=after, think_s=think) if after != asked.after else asked


def _stops(workload: Workload, left: Collection[int]) -> Iterator[Stop]:
    for stop in workload.stops:
        named = stop.before if stop.before is not None else stop.after
        if named is None or named in left:
            yield stop


def _fewer_segments(search: _Search) -> None:
    """Leave segments out of all prompts and replies, the longest first."""
    for name in sorted(search.best.segments, key=lambda name: -search.best.segments[name].tokens):
        if name not in search.best.segments:
            continue
        candidate = used_only(_resized(search.best, name, 0))
        if all(asked.prompt for asked in candidate.requests):
            search.take(candidate)


def _shorter_segments(search: _Search) -> None:
    """Halve segments, the longest first, as long as the thing stays."""
    for name in sorted(search.best.segments, key=lambda name: -search.best.segments[name].tokens):
        while name in search.best.segments and search.best.segments[name].tokens >= 2 * _LEAST_TOKENS:
            if not search.take(_resized(search.best, name, search.best.segments[name].tokens // 2)):
                break


def _resized(workload: Workload, name: str, tokens: int) -> Workload:
    """One segment made shorter, with all that counts in its tokens."""
    old = workload.segments[name]
    segment = replace(
        old, tokens=tokens, bytes=None if old.bytes is None else old.bytes * tokens // old.tokens
    )
    twins = {n: s for n, s in workload.segments.items() if s.text is not None and s.text == old.text}
    changed: dict[str, Segment] = {**workload.segments, name: segment}
    if twins and old.text is not None:
        changed |= {n: replace(s, bytes=segment.bytes) for n, s in twins.items()}
    requests = tuple(_reclipped(asked, name, old.tokens, tokens) for asked in workload.requests)
    return replace(workload, segments=changed, requests=requests)


def _reclipped(asked: Asked, name: str, old: int, new: int) -> Asked:
    def clip(rope: Rope) -> Rope:
        return join(
            Piece(p.segment, min(p.start, new), min(p.end, new)) if p.segment == name else p
            for p in rope
            if p.segment != name or min(p.start, new) < min(p.end, new)
        )

    before = 0
    anchor = asked.anchor
    for piece in asked.prompt:
        if anchor is not None and piece.segment == name and before < anchor:
            anchor -= min(
                old - new, max(0, min(piece.end, piece.start + anchor - before) - max(piece.start, new))
            )
        before += piece.end - piece.start
    prompt, reply = clip(asked.prompt), clip(asked.reply)
    lost = sum(p.end - p.start for p in asked.reply) - sum(p.end - p.start for p in reply)
    shown = None if asked.shown is None else clip(asked.shown)
    return replace(
        asked,
        prompt=prompt,
        reply=reply,
        shown=shown,
        anchor=anchor,
        generated=max(0, asked.generated - lost),
    )


def _plainer(search: _Search) -> None:
    """Drop what the thing does not need."""
    for change in _PLAIN:
        best = search.best
        candidate = replace(best, **change) if set(change) <= {"stops", "files"} else _all(best, **change)  # type: ignore[arg-type]
        if candidate != best:
            search.take(candidate)


def _all(workload: Workload, **changes: object) -> Workload:
    return replace(workload, requests=tuple(replace(a, **changes) for a in workload.requests))  # type: ignore[arg-type]


def used_only(workload: Workload) -> Workload:
    """Without segments that no rope names."""
    used = {piece.segment for asked in workload.requests for rope in _ropes(asked) for piece in rope}
    used |= {piece.segment for file in workload.files for piece in file.key or ()}
    return replace(workload, segments={n: s for n, s in workload.segments.items() if n in used})


def fused(workload: Workload) -> Workload:
    """Segments that only ever stand side by side become one."""
    while (pair := _inseparable(workload)) is not None:
        first, second = (workload.segments[name] for name in pair)
        known = None if None in (first.bytes, second.bytes) else (first.bytes or 0) + (second.bytes or 0)
        one = replace(first, tokens=first.tokens + second.tokens, bytes=known)
        segments = {n: one if n == first.id else s for n, s in workload.segments.items() if n != second.id}
        requests = tuple(_fuse(asked, first, second) for asked in workload.requests)
        workload = replace(workload, segments=segments, requests=requests)
    return workload


def _inseparable(workload: Workload) -> tuple[str, str] | None:
    """Two plain segments, each always whole, one always right behind the other."""
    behind: dict[str, set[str]] = {}
    before: dict[str, set[str]] = {}
    for rope in (rope for asked in workload.requests for rope in _ropes(asked)):
        names = [p.segment if p.end - p.start == workload.segments[p.segment].tokens else "" for p in rope]
        for one, other in zip(["", *names], [*names, ""], strict=True):
            behind.setdefault(one, set()).add(other)
            before.setdefault(other, set()).add(one)
    for name, segment in workload.segments.items():
        (other, *more) = sorted(behind.get(name, {""}))
        plain = segment.text is None and not segment.tool_map and not workload.files
        if other and not more and before[other] == {name} and plain and workload.segments[other].text is None:
            return name, other
    return None


def _fuse(asked: Asked, first: Segment, second: Segment) -> Asked:
    def fuse(rope: Rope) -> Rope:
        whole = first.tokens + second.tokens
        kept = [piece for piece in rope if piece.segment != second.id]
        return join(Piece(p.segment, 0, whole) if p.segment == first.id else p for p in kept)

    shown = None if asked.shown is None else fuse(asked.shown)
    return replace(asked, prompt=fuse(asked.prompt), reply=fuse(asked.reply), shown=shown)


def _ropes(asked: Asked) -> Sequence[Rope]:
    return asked.prompt, asked.reply, asked.shown or ()


def renumbered(workload: Workload) -> Workload:
    """Requests numbered from 1 in their order."""
    number = {asked.request: place for place, asked in enumerate(workload.requests, 1)}
    requests = tuple(
        replace(
            asked,
            request=number[asked.request],
            after=None if asked.after is None else number[asked.after],
            think_s=round(asked.think_s, 6),
        )
        for asked in workload.requests
    )
    stops = tuple(
        replace(
            stop,
            before=None if stop.before is None else number[stop.before],
            after=None if stop.after is None else number[stop.after],
        )
        for stop in workload.stops
    )
    return replace(workload, requests=requests, stops=stops)
