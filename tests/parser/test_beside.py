"""The clients' own usage records beside a log: which request they are of, and what they add to it."""

import json

from parser.reading import read

LOG = """\
0915 10:00:05 ds4-server: chat ctx=5000..5050:50 gen=50 decoding chunk=25.00 t/s avg=25.00 t/s 2.000s
0915 10:00:06 ds4-server: chat ctx=0..1251:1251 gen=235 finish=stop 9.000s
"""


def usage(prompt, cached, generated):
    """A record as OpenAI's chat API has it."""
    details = {"cached_tokens": cached}
    return {
        "usage": {"prompt_tokens": prompt, "completion_tokens": generated, "prompt_tokens_details": details}
    }


def rows(tmp_path, *records):
    log, client = tmp_path / "server.log", tmp_path / "client.jsonl"
    log.write_text(LOG)
    client.write_text("".join(json.dumps(record) + "\n" for record in records))
    reading = read([str(log)], clients=[str(client)])
    return {row.prompt_tokens: row for row in reading.requests}, reading.clients


def test_a_record_tells_what_the_log_does_not(tmp_path):
    by_prompt, matched = rows(tmp_path, usage(1251, 0, 235), usage(5000, 4000, 77))
    cut = by_prompt[5000]
    assert (cut.cached_tokens, cut.prefilled_tokens, cut.generated_tokens) == (4000, 1000, 77)
    assert cut.why["cached_tokens"] == "the client's usage says so"
    assert len(matched) == 2


def test_records_that_differ_are_no_help(tmp_path):
    by_prompt, matched = rows(tmp_path, usage(5000, 4000, 77), usage(5000, 0, 77))
    assert by_prompt[5000].cached_tokens is None
    assert not matched


def test_a_record_of_other_numbers_is_of_another_request(tmp_path):
    by_prompt, matched = rows(tmp_path, usage(1251, 1000, 235))
    assert by_prompt[1251].cached_tokens == 0
    assert not matched
