"""Misses whose prompt shares most of what sat in the slot: what a rewind would have kept, which cache shapes allow
it, and what disk reuse for image sessions would give instead (section 7 of the cache rules)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from replay.config import ServerConfig
    from replay.outcome import Outcome, Served
    from replay.study import Study

#: families by the shape of their cache, and what the shape is
_SHAPES: Final = (
    (
        "deepseek-v4",
        "a ring of {ring} raw rows a layer: back while the 128 rows behind the new end are in it",
    ),
    ("glm", "full rows: back to any token"),
    ("qwen-next", "recurrent state: back to no earlier token"),
)


def rewinds(made: Study, options: dict[str, Any], predicted: Outcome) -> list[dict[str, Any]]:
    """One row a miss that shares at least half of its prompt with the state it replaced."""
    missed = [row for row in predicted.requests if row.evicted_live_tokens and _most(row)]
    if not missed:
        return []
    config = made.configs(**options)[0]
    disk = _on_disk(made, options, config)
    return [_row(made, config, row, disk.get(row.request)) for row in missed]


def _most(row: Served) -> bool:
    return 0 < (row.prompt_tokens or 0) <= 2 * (row.common or 0)


def _on_disk(made: Study, options: dict[str, Any], config: ServerConfig) -> dict[int, Served]:
    """Requests with images, served by a store policy that lets them use the disk."""
    pictured = {asked.request for asked in made.workload.requests if asked.images}
    if not pictured or not config.kv_disk:
        return {}
    served = made.run(**{**options, "store": "images-on-disk"})
    return {row.request: row for row in served.requests if row.request in pictured}


def _row(made: Study, config: ServerConfig, row: Served, disk: Served | None) -> dict[str, Any]:
    from replay.policies.reuse import reachable

    live, common, prompt = row.live_before or 0, row.common or 0, row.prompt_tokens or 0
    kept, oldest = min(common, prompt - 1), max(0, live - config.ring)
    shapes = [
        {
            "family": family,
            "allows": reachable(family, oldest, live, kept),
            "because": why.format(ring=config.ring),
        }
        for family, why in _SHAPES
    ]
    instead = None
    if disk is not None:
        instead = {"cached_tokens": disk.cached_tokens, "prefilled_tokens": disk.prefilled_tokens}
    return {
        "request": row.request,
        "live": live,
        "common": common,
        "prompt_tokens": prompt,
        "prefilled_tokens": row.prefilled_tokens,
        "seconds_saved": _saved(made, row.cached_tokens or 0, kept),
        "shapes": shapes,
        "images_on_disk": instead,
    }


def _saved(made: Study, cached: int, kept: int) -> float | None:
    return made.costs.prefill_s(cached, kept) if made.costs.known and kept > cached else None


def lines(rows: list[dict[str, Any]]) -> list[str]:
    """The same for people: of many rows the first three, and shapes where they are not those of the row before."""
    text: list[str] = []
    shown = None
    for row in rows[:3]:
        text += _words(row, shapes=row["shapes"] != shown)
        shown = row["shapes"]
    if len(rows) > 3:
        text.append(
            f"{len(rows) - 3} more misses share most of their prompts with what they replaced (--format json)"
        )
    return text


def _words(row: dict[str, Any], *, shapes: bool) -> Iterator[str]:
    saved = "" if row["seconds_saved"] is None else f", {row['seconds_saved']:,.1f} s less"
    tokens = f"{row['common']:,} of {row['prompt_tokens']:,} tokens"
    yield f"request {row['request']}: a rewind would keep {tokens}{saved}"
    for shape in row["shapes"] if shapes else ():
        yield f"  {'yes' if shape['allows'] else 'no '} {shape['family']}: {shape['because']}"
    instead = row["images_on_disk"]
    if instead is not None:
        yield (
            f"  disk reuse for image sessions instead (--store images-on-disk): {instead['cached_tokens']:,} tokens "
            f"loaded, {instead['prefilled_tokens']:,} evaluated"
        )
