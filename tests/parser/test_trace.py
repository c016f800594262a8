"""`--trace` files: by state and ids, whatever the texts contain."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parser.errors import InputError
from parser.prefixes import PrefixTree, common_prefix
from parser.trace import read_traces
from parser.tracebody import window_row

CAPTURES = Path(__file__).parents[2] / "fixtures" / "captures"

KEYS = """kind: chat
model: deepseek-v4-flash
stream: 1
tools: 0
think_mode: none
prompt_tokens: {canonical}
effective_prompt_tokens: {prompt}
cached_tokens: {cached}
max_tokens: 393216
temperature: 1.000
top_k: 0
top_p: 1.000
min_p: 0.050
seed: 0
stream_include_usage: 1
"""
DECISION = """
--- cache decision ---
live_tokens_before: {live}
prompt_tokens: {canonical}
live_prompt_common: {common}
memory_token_reusable: 0
memory_miss_reason: token-mismatch
tool_replay: mem=0 disk=0 canonical=0 missing_ids=0
cache_source: {source}
cached_tokens: {cached}
disk_cached_tokens: 0
"""


def header(
    number,
    *,
    prompt=100,
    canonical=None,
    cached=0,
    live=0,
    common=0,
    source="none",
    text="Hello",
    body='{"messages": []}',
):
    said = {"prompt": prompt, "canonical": canonical or prompt, "cached": cached}
    said |= {"live": live, "common": common, "source": source}
    return (
        f"\n===== request {number} 2026-11-30 17:52:2{number % 10} =====\n"
        + (KEYS + DECISION).format(**said)
        + f"\n--- raw request json ---\n{body}\n\n--- rendered prompt ---\n{text}\n\n--- generated text ---\n"
    )


def end(number, *, generated=5, content="fine", finish="stop"):
    return (
        f"\n\n--- parsed message ---\nfinish: {finish}\ngenerated_tokens: {generated}\ndsml_start: 0\ndsml_end: 0\n"
        f"elapsed_sec: 0.500\n\ncontent:\n{content}\n\n===== end request {number} =====\n"
    )


def records(tmp_path, *texts):
    paths = []
    for number, text in enumerate(texts):
        path = tmp_path / f"trace-{number}.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        paths.append(str(path))
    return read_traces(paths)


def test_a_record_says_all_that_it_holds(tmp_path):
    text = header(1, prompt=1286, canonical=1290, cached=1086, live=1338, common=1087, source="disk-text")
    (one,) = records(
        tmp_path, text + "\n\n--- trace: prefill done; decode_max=5 ctx_room=5 ---\n\nword" + end(1)
    )
    assert (one.id, one.when, one.kind, one.stream) == (1, "2026-11-30 17:52:21", "chat", True)
    assert (one.prompt_tokens, one.effective_prompt_tokens, one.cached_tokens) == (1290, 1286, 1086)
    assert (one.live_before, one.common, one.source) == (1338, 1087, "disk-text")
    assert (one.finish, one.generated_tokens, one.elapsed_s, one.ended) == ("stop", 5, 0.5, True)
    assert one.events == ["prefill done; decode_max=5 ctx_room=5"]
    assert (one.prompt_known, one.prompt_cut, one.prompt_bytes) == (5, False, 5)


def test_texts_of_parallel_requests_mix_and_ends_find_their_records(tmp_path):
    text = (
        header(1)
        + "one "
        + header(2, prompt=200)
        + "two"
        + end(2, generated=7)
        + " rest of one"
        + end(1, generated=9)
    )
    one, two = records(tmp_path, text)
    assert (one.generated_tokens, two.generated_tokens) == (9, 7)


def test_a_header_inside_a_prompt_begins_nothing(tmp_path):
    forged = header(2, prompt=7) + "text" + end(1, generated=999)
    body = '{"messages": [{"content": ' + repr(forged).replace("'", '"') + "}]}"
    (one, two) = records(
        tmp_path, header(1, text=forged, body=body) + "real" + end(1) + header(2, prompt=300) + end(2)
    )
    assert (one.generated_tokens, two.effective_prompt_tokens) == (5, 300)


@pytest.mark.parametrize(
    "line",
    [
        "===== request 2 2026-11-30 17:52:23 =====",  # the right id, but no keys follow
        "===== request 7 2026-11-30 17:52:23 =====\nkind: chat",  # not the next id
        "===== end request 5 =====",
        "--- parsed message ---\nfinish maybe",
        "--- rendered prompt ---",
    ],
)
def test_look_alikes_in_generated_text_change_nothing(tmp_path, line):
    one, two = records(tmp_path, header(1) + f"\n{line}\n" + end(1) + header(2) + end(2, generated=6))
    assert (one.generated_tokens, two.generated_tokens) == (5, 6)


def test_an_end_of_the_same_id_inside_the_content_is_the_end(tmp_path):
    text = header(1) + end(1, content="said\n\n===== end request 9 =====\nmore") + header(2) + end(2)
    assert [record.ended for record in records(tmp_path, text)] == [True, True]


def test_a_record_without_end_is_kept_as_unfinished(tmp_path):
    one, two = records(tmp_path, header(1) + "and then nothing" + header(2) + end(2))
    assert (one.ended, one.generated_tokens, two.ended) == (False, None, True)


def test_a_file_that_breaks_off_in_a_prompt_keeps_the_decision(tmp_path):
    cut = header(1, prompt=500).split("--- generated")[0]
    (one,) = records(tmp_path, cut)
    assert (one.effective_prompt_tokens, one.source) == (500, "cold")


def test_a_cut_body_is_unknown_not_empty(tmp_path):
    (one,) = records(
        tmp_path,
        header(
            1,
            text="begin[... 900 characters cut by the test harness ...]end",
            body='{"messages": [{"role": "user", [... 90 characters cut by the test harness ...]}]}',
        )
        + end(1),
    )
    assert one.prompt_cut and one.prompt_bytes is None and one.prompt_known == len("begin")
    assert one.json_cut and one.hints["messages"] is None and one.hints["images"] is None


def test_files_of_several_processes_count_from_one_each(tmp_path):
    assert [(r.file, r.id) for r in records(tmp_path, header(1) + header(2), header(1))] == [
        (0, 1),
        (0, 2),
        (1, 1),
    ]


def test_a_file_that_begins_in_the_middle(tmp_path):
    text = "of some text\n" + end(41) + header(42) + end(42)
    assert [r.id for r in records(tmp_path, text)] == [42]


def test_the_trace_of_may_names_reuse_in_its_own_words(tmp_path):
    old = (
        header(1, source="disk")
        .replace("memory_token_reusable", "memory_reusable")
        .replace("effective_prompt_tokens: 100\n", "")
    )
    (one,) = records(tmp_path, old)
    assert (one.source, one.reusable, one.effective_prompt_tokens, one.prompt_tokens) == (
        "disk-text",
        False,
        None,
        100,
    )


def test_prompts_that_extend_one_another_are_found_to_the_byte(tmp_path):
    head = "system " * 2000
    _, b, c = records(
        tmp_path,
        header(1, text=head + "A1") + header(2, text=head + "B1") + header(3, text=head + "A1 reply A2"),
    )
    assert (b.parent, b.shared_bytes, b.extends) == (0, len(head), False)
    assert (c.parent, c.shared_bytes, c.extends) == (0, len(head) + 2, True)


def test_whole_traces_tell_whose_turn_each_request_is():
    found = read_traces([str(CAPTURES / "a-steal-sequential-1k" / "trace.txt")])
    assert [record.parent for record in found][2:] == list(range(len(found) - 2))
    assert all(record.extends for record in found[2:])


def test_window_rows_keep_tokens_of_both_sides():
    assert window_row(b'  10700 !=          live 346 " mess\\n" | prompt - <none>') == (
        10700,
        "!=",
        346,
        " mess\\n",
        None,
        "",
    )


def test_bytes_that_are_no_text_do_no_harm(tmp_path):
    (one,) = records(tmp_path, header(1).encode() + b"\xff\xfe\x00\xc3" + end(1).encode())
    assert one.ended


def test_an_empty_trace_is_an_error_that_says_so(tmp_path):
    with pytest.raises(InputError):
        records(tmp_path, "")


@given(st.lists(st.text(alphabet="ab\n=-", max_size=40), min_size=1, max_size=12), st.randoms())
def test_no_text_hides_or_forges_a_record(tmp_path_factory, texts, random):
    """Whatever is generated between them, as many records come out as went in, each with its own end."""
    lines = [
        "===== request 3 2026-01-01 00:00:00 =====",
        "--- generated text ---",
        "kind: chat",
        "--- cache decision ---",
    ]
    made = ""
    for number, text in enumerate(texts, 1):
        noise = "\n".join([text, random.choice(lines), ""])
        made += header(number, prompt=100 + number) + noise + end(number, generated=number)
    folder = tmp_path_factory.mktemp("trace")
    found = records(folder, made)
    assert [r.effective_prompt_tokens for r in found] == [100 + n for n in range(1, len(texts) + 1)]
    assert [r.generated_tokens for r in found] == list(range(1, len(texts) + 1))


@given(st.binary(max_size=9000), st.binary(max_size=9000), st.integers(0, 9000))
def test_common_prefix_by_digests_is_the_common_prefix(one, other, at):
    other = one[:at] + other
    tree = PrefixTree()
    assert tree.add(0, one) is None
    shared = tree.add(1, other)
    naive = next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    assert common_prefix(one, other) == naive
    assert (shared.shared if shared else 0) == naive
