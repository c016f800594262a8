"""Images are rows of their own in the caches: what may be reused with them, and what must not."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from listed import carried, decided

from replay.backends.mlx import TensorOptions, carry_out
from replay.decisions import Prefilled
from replay.models.model import IMAGE_ROW
from replay.profiles import PROFILES
from replay.rope import Piece
from replay.workload import Asked, Image, Segment, Workload

VISION = replace(PROFILES["ds4-2026-09-vision"], slots=1, ctx=4096, kv_disk=False)


def test_a_changed_image_is_no_reuse_and_an_unchanged_one_is():
    """R3.10: the same text with another image in it; the tensors hold the rows of the first one."""
    segments = {name: Segment(name, 60) for name in ("ask", "say", "more")}
    cat, dog = (Image(20, 16, name) for name in ("cat", "dog"))
    first = Asked(1, (Piece("ask", 0, 60),), (Piece("say", 0, 60),), 60, images=(cat,), arrival_s=0.0)
    whole = (*first.prompt, *first.reply, Piece("more", 0, 60))
    again = Asked(2, whole, images=(cat,), after=1)
    other = Asked(3, whole, images=(dog,), after=2)
    config = VISION
    workload = Workload(segments, (first, again, other))
    log, outcome = decided(workload, config)
    assert [row.cached_tokens for row in outcome.requests] == [0, 120, 0]
    result = carry_out(workload, [config], log, outcome, TensorOptions(device="cpu", samples=None))
    assert result.agree
    begun = next(i for i, row in enumerate(log) if isinstance(row, Prefilled) and row.request == 3)
    log[begun] = replace(log[begun], start=120)  # a server that looks at the text only
    named = carry_out(workload, [config], log, outcome, TensorOptions(device="cpu", samples=0)).unsound
    assert "120 reused tokens are claimed, the cache holds 180, 20 of them the prompt's" in named[0].why


def test_a_rewind_ends_before_the_first_image_that_changed_and_never_within_one():
    segments = {name: Segment(name, 60) for name in ("ask", "say", "more", "else")}
    cat, bird, dog = Image(20, 16, "cat"), Image(40, 8, "bird"), Image(40, 8, "dog")
    first = Asked(1, (Piece("ask", 0, 60),), (Piece("say", 0, 60),), 60, images=(cat, bird), arrival_s=0.0)
    other = Asked(2, (Piece("ask", 0, 60), Piece("more", 0, 60)), images=(cat, dog), after=1)
    edited = Asked(3, (Piece("ask", 0, 45), Piece("else", 0, 60)), images=(cat,), after=2)
    config = replace(VISION, family="glm", reuse="rewind-to-common")
    workload = Workload(segments, (first, other, edited))
    log, outcome = decided(workload, config)
    assert [row.cached_tokens for row in outcome.requests] == [0, 40, 40]
    result = carry_out(workload, [config], log, outcome, TensorOptions(device="cpu", samples=None))
    assert result.agree and [c.difference for c in result.checks if c.kind == "rewind"] == [0.0, 0.0]


def tool_rounds(second, third=()):
    """Two rounds of tool output behind a reply that the client replays in other tokens; `second`, `third`: images
    of the later requests, where the canonical prompts have them."""
    sizes = {"ask": 60, "say": 50, "shown": 30, "out": 40, "call": 20, "brief": 10, "end": 25}
    ask, say, shown, out, call, brief, end = (Piece(name, 0, size) for name, size in sizes.items())
    common = {"api": "anthropic", "tools": True, "finish": "tool_calls"}
    requests = (
        Asked(1, (ask,), (say,), 50, images=(Image(20, 16, "cat"),), calls=("a",), shown=(shown,), arrival_s=0.0, **common),
        Asked(2, (ask, shown, out), (call,), 20, images=second, results=("a",), calls=("b",), shown=(brief,), tool_tail=40,
              after=1, **common),
        Asked(3, (ask, shown, out, brief, end), images=third, results=("b",), tool_tail=25, after=2, **common),
    )  # fmt: skip
    return Workload({name: Segment(name, size) for name, size in sizes.items()}, requests)


@pytest.mark.parametrize(
    "images",
    [
        pytest.param((Image(20, 16, "cat"),), id="the-same-image"),
        pytest.param((Image(20, 16, "cat"), Image(100, 12, "chart")), id="one-in-the-output"),
        pytest.param((Image(20, 16, "dog"),), id="another-image-which-the-ids-pass-over"),
        pytest.param((), id="an-image-that-the-client-left-out"),
    ],
)
def test_tool_output_goes_on_from_a_session_with_images(images):
    """R3.2: the ids decide, the live tokens stay as they are, and so do the rows of their images: those of the
    first request's, wherever the canonical prompt has others."""
    workload = tool_rounds(images, images)
    log, outcome = decided(workload, VISION)
    assert [row.source for row in outcome.requests] == [
        "cold",
        "anthropic-tool-output",
        "anthropic-tool-output",
    ]
    result = carry_out(workload, [VISION], log, outcome, TensorOptions(device="cpu", samples=None))
    assert result.agree and [c.difference for c in result.checks if c.kind == "reuse"] == [0.0, 0.0]
    assert [row.cached_tokens for row in outcome.requests] == [0, 110, 170]


def test_the_rows_of_an_image_behind_a_hidden_reply_lie_where_the_live_tokens_have_them():
    images = (Image(20, 16, "cat"), Image(100, 12, "chart"))
    workload = tool_rounds(images, images)
    log, outcome = decided(workload, VISION)
    carrier, differ = carried(workload, VISION, log, outcome)
    assert not carrier.unsound and not differ
    rows = np.flatnonzero(carrier.slots[0].resident.tokens >= IMAGE_ROW).tolist() if carrier.slots else None
    assert rows == [*range(20, 36), *range(120, 132)]  # 50 sampled tokens where the prompt shows 30
