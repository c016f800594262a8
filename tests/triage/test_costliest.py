"""The costliest requests: by seconds, then those that say no seconds, by tokens."""

from parser.request import Request
from triage.history import History


def test_a_request_without_seconds_is_listed_by_what_it_had_to_prefill():
    history = History()
    for request in (
        Request(1, 10, prompt_tokens=500, prefilled_tokens=500, prefill_s=2.0),
        Request(2, 20, prompt_tokens=9_000, prefilled_tokens=9_000),
        Request(3, 30, common=100, canonical_prompt_tokens=340_551),
        Request(4, 40),
    ):
        history._request(request, {})
    (table,) = [one for one in history.tables() if one.title == "costliest requests"]
    assert [row[0] for row in table.rows] == ["line 10", "line 30", "line 20"]
    assert [row[-1] for row in table.rows] == [2.0, None, None]
