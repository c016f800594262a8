"""The server's rules, one small scene each (`docs/spec/cache-behaviour.md`)."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from replay.config import Generation, ServerConfig
from replay.decisions import Discarded, Dispatched, EvictedFile, Missed, Refused, Restored, Stored
from replay.flat import FlatCosts
from replay.profiles import PROFILES, profile
from replay.rope import Piece, join
from replay.server import replay
from replay.sizes import DEEPSEEK_V4, GLM
from replay.workload import Asked, Fault, Image, Segment, Stop, Workload

CAPTURES = Path(__file__).parents[2] / "fixtures/captures"
HEAD, COSTS = 2000, FlatCosts()


class Scene:
    """Requests one after the other, an hour apart or at once; texts by name, 1000 tokens each."""

    def __init__(self, **kept):
        self.segments, self.requests, self.kept = {"head": Segment("head", HEAD)}, [], kept

    def text(self, *names, tokens=1000):
        pieces = [Piece("head", 0, HEAD)]
        for name in names:
            self.segments.setdefault(name, Segment(name, tokens))
            pieces.append(Piece(name, 0, self.segments[name].tokens))
        return join(pieces)

    def ask(self, *names, reply="r", at=None, **more):
        number = len(self.requests) + 1
        said = f"{reply}{number}"
        self.segments[said] = Segment(said, 50)
        asked = Asked(
            number, self.text(*names), reply=(Piece(said, 0, 50),), generated=50,
            arrival_s=60.0 * number if at is None else at, **{**self.kept, **more},
        )  # fmt: skip
        self.requests.append(asked)
        return said

    def run(self, config, *, stops=(), log=None):
        workload = Workload(self.segments, tuple(self.requests), stops=stops)
        return {row.request: row for row in replay(workload, config, COSTS, log).requests}


def server(name="ds4-2026-08", **options):
    return replace(profile(name), **{"slots": 2, "ctx": 100_000, **options})


# -- section 2: which slot -----------------------------------------------------------------------------


def two_chats(config):
    scene = Scene()
    a, b = scene.ask("a1"), scene.ask("b1")
    scene.ask("a1", a, "a2")
    scene.ask("b1", b, "b2")
    return scene.run(config)


def test_r2_11_a_shared_head_steals_the_slot_although_one_is_empty():
    rows = two_chats(server())
    assert [rows[n].slot for n in (1, 2, 3, 4)] == [0, 0, 0, 0]
    assert [rows[n].evicted_live_tokens for n in (2, 3, 4)] == [3050, 3050, 4100]
    assert rows[2].scores == (HEAD, 0)


@pytest.mark.parametrize("scheduler", ["reuse-aware", "empty-first", "lru", "clairvoyant", "min-prefix:2001"])
def test_r2_20_real_reuse_then_an_empty_slot(scheduler):
    rows = two_chats(server(scheduler=scheduler))
    assert [rows[n].slot for n in (1, 2, 3, 4)] == [0, 1, 0, 1]
    assert [rows[n].source for n in (3, 4)] == ["memory-token", "memory-token"]


def test_r2_21_stale_before_protected_and_the_shortest_of_the_protected():
    scene = Scene()
    scene.ask("long1", "long2")
    scene.ask("short", at=130)
    scene.ask("x", at=200)  # both protected: the shorter goes
    scene.ask("y", at=4000)  # slot 0 was idle an hour: stale goes first, though longer
    log = []
    rows = scene.run(server("ds4-2026-09-reuse"), log=log)
    assert [rows[n].slot for n in (1, 2, 3, 4)] == [0, 1, 1, 0]
    assert rows[3].scores == (-2 - 1048576 - 4050, -2 - 1048576 - 3050)
    assert rows[4].scores[0] == -1 - 1048576 + (4000 - 60 - 11)
    evicting = [(row.request, row.live) for row in log if isinstance(row, Dispatched) and row.evicting]
    assert evicting == [(3, 3050), (4, 4050)]


def test_r2_6_the_lowest_slot_on_a_tie():
    scene = Scene()
    for at in (0.0, 0.1):
        scene.ask("a", at=at)
    scene.ask("b", at=100)
    rows = scene.run(server())
    assert (rows[1].slot, rows[2].slot) == (0, 1)
    assert rows[3].scores == (HEAD, HEAD)
    assert rows[3].slot == 0


def test_r2_3_a_job_bound_to_a_busy_slot_is_passed_by():
    scene = Scene(api="anthropic", tools=True)
    said = scene.ask("a", calls=("c1",), finish="tool_calls", at=0.0)
    scene.ask("b", at=20.0)
    scene.ask("c", at=20.1)
    scene.ask("a", said, "result", results=("c1",), needs_live=True, tool_tail=1000, at=20.2)
    scene.ask("d", at=20.3)
    log = []
    rows = scene.run(server(scheduler="empty-first"), log=log)
    order = [row.request for row in log if isinstance(row, Dispatched)]
    assert order[:3] == [1, 2, 3]
    assert rows[4].slot is not None


def test_r2_5_the_required_slot_and_r3_1_the_tool_tail():
    scene = Scene(api="responses", tools=True)
    said = scene.ask("a", calls=("c1",), finish="tool_calls")
    scene.ask("b", at=125.0, api="chat")
    scene.ask("x", said, "result", results=("c1",), needs_live=True, tool_tail=1000)
    rows = scene.run(server(scheduler="empty-first"))
    assert (rows[1].slot, rows[2].slot, rows[3].slot) == (0, 1, 0)
    assert rows[3].source == "responses-tool-output"
    assert (rows[3].cached_tokens, rows[3].prompt_tokens) == (3050, 4050)


def test_step_4_conflict_leaves_the_slot_untouched():
    scene = Scene(api="responses", tools=True)
    said = scene.ask("a", calls=("c1", "c2"), finish="tool_calls")
    scene.ask("z", said, "result", results=("c1",), needs_live=True, tool_tail=1000)
    log = []
    rows = scene.run(server(), log=log)
    assert rows[2].source is None
    assert [row.why for row in log if isinstance(row, Refused)] == ["tool-state"]


# -- section 3: what is reused -------------------------------------------------------------------------


def test_r3_32_a_thinking_turn_answers_to_its_visible_text():
    scene = Scene(thinking=True)
    scene.segments["think"] = Segment("think", 1)
    scene.segments["shown"] = Segment("shown", 40)
    shown = (Piece("shown", 0, 40),)
    scene.ask("a", "think", shown=shown, drop=1)
    scene.ask("a", "shown", "b", "think", shown=shown, drop=1)
    rows = scene.run(server())
    assert rows[2].source == "thinking-visible"
    assert (rows[2].cached_tokens, rows[2].prompt_tokens) == (HEAD + 1001 + 50, HEAD + 1001 + 50 + 1001)
    assert rows[2].common == HEAD + 1000


def test_r3_33_tools_and_thinking_together_bind_nothing():
    scene = Scene(thinking=True, tools=True)
    scene.segments["shown"] = Segment("shown", 40)
    scene.ask("a", shown=(Piece("shown", 0, 40),))
    scene.ask("a", "shown", "b")
    assert scene.run(server(kv_disk=False))[2].source == "cold"


def test_r3_2_equal_bytes_keep_the_sampled_tokens():
    scene = Scene()
    said = scene.ask("a")
    scene.segments[said] = Segment(said, 50, bytes=200, text="same")
    scene.segments["anew"] = Segment("anew", 47, bytes=200, text="same")
    scene.ask("a", "anew", "b")
    row = scene.run(server())[2]
    assert (row.source, row.common) == ("memory-text", HEAD + 1000)
    assert (row.cached_tokens, row.prompt_tokens) == (HEAD + 1050, HEAD + 2050)


@pytest.mark.parametrize(
    ("family", "build", "source", "cached"),
    [
        ("deepseek-v4", "ds4-2026-08", "cold", 0),
        ("glm", "ds4-2026-07", "cold", 0),
        ("glm", "ds4-2026-08", "memory-rewind", HEAD + 999),
    ],
)
def test_r7_1_the_same_prompt_again(family, build, source, cached):
    scene = Scene()
    scene.ask("a")
    scene.ask("a")
    row = scene.run(server(build, family=family, kv_disk=False))[2]
    assert (row.source, row.cached_tokens, row.common) == (source, cached, HEAD + 1000)


@pytest.mark.parametrize(
    ("reuse", "family", "kept"),
    [
        ("ladder", "deepseek-v4", 0),
        ("rewind-to-common", "deepseek-v4", HEAD + 1000),
        ("rewind-in-ring", "deepseek-v4", HEAD + 1000),
        ("rewind-in-ring", "qwen-next", 0),
        ("rewind-points", "qwen-next", HEAD + 1000),
    ],
)
def test_rewind_policies_after_a_changed_reply(reuse, family, kept):
    scene = Scene()
    scene.ask("a")
    scene.ask("a", "other", "b")
    row = scene.run(server(reuse=reuse, family=family, kv_disk=False))[2]
    assert row.cached_tokens == kept


def test_section_7_the_ring_reaches_back_only_so_far():
    scene = Scene()
    scene.ask("a", "a2", "a3", "a4", "a5")
    scene.ask("a", "b")
    near = scene.run(server(reuse="rewind-in-ring", kv_disk=False, ring_rows=4050 + 128))[2]
    far = scene.run(server(reuse="rewind-in-ring", kv_disk=False, ring_rows=4050 + 127))[2]
    assert (near.cached_tokens, far.cached_tokens) == (HEAD + 1000, 0)


def test_r3_36_a_stop_sequence_empties_the_slot():
    scene = Scene()
    said = scene.ask("a", stop_sequence=True)
    scene.ask("a", said, "b")
    log = []
    row = scene.run(server(kv_disk=False), log=log)[2]
    assert (row.source, row.live_before) == ("cold", 0)
    assert not any(isinstance(entry, Missed) for entry in log)


# -- sections 4 and 5: the disk ------------------------------------------------------------------------


def stores(rows):
    return {number: [(made.tokens, made.reason) for made in row.stores] for number, row in rows.items()}


def test_r5_1_the_cold_anchor_and_r4_20_no_line_for_the_identical_file():
    scene = Scene(anchor=HEAD - 1)
    scene.ask("a")
    scene.ask("b")
    rows = scene.run(server(slots=None))
    assert stores(rows) == {1: [(HEAD - 1, "cold")], 2: [(3050, "evict")]}
    assert (rows[2].source, rows[2].cached_tokens) == ("disk-text", HEAD - 1)


@pytest.mark.parametrize(
    ("anchor", "prompt", "cold"),
    [
        (None, ("a",), 2048),  # aligned down
        (100, ("a",), 2048),  # an anchor below the minimum does not count
        (600, ("a",), 600),
        (None, (), 2000),  # too short to align: the whole prompt, after the prefill
        (None, tuple("abcdefghijklmnopqrstuvwxyz012"), None),  # 31000 > cold-max
    ],
)
def test_r5_1_cold_lengths(anchor, prompt, cold):
    scene = Scene(anchor=anchor)
    scene.ask(*prompt)
    made = [tokens for tokens, reason in stores(scene.run(server(slots=None)))[1] if reason == "cold"]
    assert made == ([] if cold is None else [cold])


@pytest.mark.parametrize(
    ("slots", "chunk", "met"),
    [
        (None, 4096, [20480]),  # lcm(4096, 10240)
        (2, 4096, [10240, 20480]),  # pieces of 2048 from an aligned start
        (None, 2048, [10240, 20480]),
    ],
)
def test_r5_3_which_multiples_are_met(slots, chunk, met):
    scene = Scene()
    scene.ask(*"abcdefghijklmnopqrst")
    config = server(slots=slots, prefill_chunk=chunk, kv_cache_cold_max_tokens=0)
    assert [tokens for tokens, _ in stores(scene.run(config))[1]] == met


def test_r5_2_c_while_decoding_but_not_in_a_tool_call():
    for block, met in (((), [10240]), ((0, 50), [])):
        scene = Scene(tools=True, tool_block=block)
        scene.text("fill", tokens=8220)
        scene.ask("fill")
        config = server(slots=None, kv_cache_cold_max_tokens=0)
        assert [tokens for tokens, _ in stores(scene.run(config))[1]] == met


def test_r3_4_the_evict_store_can_push_out_the_file_it_needs():
    def run(store):
        scene = Scene(anchor=HEAD - 1)
        scene.ask("a")
        scene.ask("b", "b2", "b3")
        size = server().file_bytes
        budget = size(HEAD - 1) + size(5050) + 20_000 >> 20
        return scene.run(server(slots=None, store=store, kv_disk_space_mb=budget))[2]

    lost, kept = run("profile"), run("protect-incoming")
    assert (lost.evicted_files, lost.disk_hit_tokens) == (0, HEAD - 1)
    assert kept.disk_hit_tokens == HEAD - 1


def test_the_clairvoyant_store_keeps_what_is_needed_next():
    def returns(store):
        scene = Scene()
        said = scene.ask("a")
        scene.ask("b", "b2", "b3")
        scene.ask("c", "c2", "c3")
        scene.ask("a", said, "a2")  # the store for c needs the room of one file; a's scores lowest
        size = server().file_bytes
        budget = size(3050) + size(5050) + 2_000_000 >> 20
        return scene.run(
            server(slots=None, store=store, kv_disk_space_mb=budget, kv_cache_cold_max_tokens=0)
        )[4]

    assert returns("profile").source == "cold"
    assert returns("clairvoyant").disk_hit_tokens == 3050


def test_r4_12_the_hit_deleted_a_long_file_until_august():
    def reads(build):
        scene = Scene()
        said = scene.ask("a")
        scene.ask("b")
        scene.ask("a", said, "a2")
        log = []
        scene.run(server(build, slots=None, kv_cache_cold_max_tokens=2500), log=log)
        return [row.consumed for row in log if isinstance(row, Restored) and row.tokens == 3050]

    assert reads("ds4-2026-07") == [True]
    assert reads("ds4-2026-08") == [False]


def test_r1_6_r5_5_a_restart_keeps_the_files_and_only_them():
    for clean, tokens in ((True, 3050), (False, 2048)):
        scene = Scene()
        said = scene.ask("a")
        scene.ask("a", said, "a2")
        row = scene.run(server(), stops=(Stop(before=2, clean=clean),))[2]
        assert (row.source, row.cached_tokens, row.live_before) == ("disk-text", tokens, 0)


def test_r4_14_a_failed_prefill_deletes_the_file_it_came_from():
    scene = Scene(anchor=HEAD - 1)
    scene.ask("a")
    scene.ask("b", fault=Fault("prefill", 100))
    log = []
    rows = scene.run(server(slots=None), log=log)
    assert rows[2].disk_hit_tokens == HEAD - 1
    assert len([row for row in log if isinstance(row, Discarded)]) == 1


def test_r4_4_sizes_are_those_of_the_captures():
    for folder, sizes in (("j-errors", DEEPSEEK_V4), ("f-regenerate-glm-2slots", GLM)):
        seen = [
            json.loads(line) for line in (CAPTURES / folder / "session-ops.jsonl").read_text().splitlines()
        ]
        saved = [row for row in seen if row.get("op") == "save"]
        assert saved
        assert all(sizes(row["tokens"]) - 52 == row["bytes"] for row in saved)


# -- images and clients (rules and cases only: no capture has images) ------------------------------------


def with_images(config):
    scene = Scene()
    image = Image(HEAD + 500, 100, "f1")
    said = scene.ask("a", images=(image,))
    scene.ask("b", at=61.0)
    scene.ask("a", said, "c", images=(image,))
    scene.ask("a", said, "other", images=(replace(image, fingerprint="f2"),))
    return scene.run(config)


def test_r3_10_r3_13_images_live_only_in_memory():
    rows = with_images(server("ds4-2026-09-vision", slots=1))
    assert not any(row.disk_hit_tokens for row in rows.values())
    assert {number: made for number, made in stores(rows).items() if made} == {2: [(2048, "cold")]}
    rows = with_images(server("ds4-2026-09-vision", slots=2))
    assert rows[3].source == "memory-token"
    assert rows[4].source == "cold"


def test_images_on_disk_lifts_the_gate():
    rows = with_images(server("ds4-2026-09-vision", slots=1, store="images-on-disk"))
    assert rows[3].disk_hit_tokens == 3050


def test_r2_15_an_image_mismatch_scores_below_an_empty_slot():
    scene = Scene()
    scene.ask("a", images=(Image(HEAD, 10, "f1"),))
    scene.ask("b")
    row = scene.run(server("ds4-2026-09-vision"))[2]
    assert (row.scores, row.slot) == ((-1, 0), 1)


def test_r3_16_a_client_that_leaves_stops_a_polling_server():
    def live_after(build, **more):
        scene = Scene()
        scene.ask("a", at=0.0, gives_up_s=3.0, **more)
        scene.ask("b", at=100.0)
        return scene.run(server(build, slots=1, kv_disk=False))[2].live_before

    assert live_after("ds4-2026-09-vision") == 2048  # the piece at hand is finished
    assert live_after("ds4-2026-08", stream=False) == HEAD + 1050
    assert live_after("ds4-2026-08", stream=True) == HEAD + 1000


# -- time ----------------------------------------------------------------------------------------------


def test_r6_7_decoders_get_a_step_after_every_piece():
    scene = Scene()
    scene.ask("a", at=0.0)
    scene.ask(*"bcdefgh", at=7.0)  # the first one begins to decode at 6.98
    config = server(kv_disk=False)
    alone, beside = Scene(), scene.run(config)
    alone.ask("a", at=0.0)
    assert beside[1].latency_s > alone.run(config)[1].latency_s + 40 * 128 / 430


def test_r4_31_nothing_is_deleted_while_there_is_room():
    scene = Scene(anchor=HEAD - 1)
    for name in "abcdef":
        scene.ask(name)
    log = []
    scene.run(server(slots=None, kv_disk_space_mb=100_000), log=log)
    assert not [row for row in log if isinstance(row, EvictedFile)]
    assert len([row for row in log if isinstance(row, Stored)]) == 6


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_every_profile_serves(name):
    rows = two_chats(profile(name))
    assert all(row.latency_s for row in rows.values())


def test_options_that_the_server_refuses_are_refused():
    from parser.errors import UsageError

    with pytest.raises(UsageError, match="cold-max-tokens must be 0 or >="):
        ServerConfig(kv_cache_cold_max_tokens=100)
    with pytest.raises(UsageError, match="slots must be"):
        ServerConfig(slots=0)
    assert ServerConfig(generation=Generation(), kv_cache_continued_interval_tokens=5000).step == 6144
