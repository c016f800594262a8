"""The range of avoidable seconds holds the figure itself."""

from types import SimpleNamespace

import pytest

from triage.figures import cost_figures


@pytest.mark.parametrize(
    ("tokens", "seconds", "span"),
    [
        (1000, 2.2, [2.0, 2.5]),  # at 400 to 500 tokens a second
        (0, 1.5, [1.5, 1.5]),  # saving and loading only
        (1000, 4.0, [3.5, 4.0]),  # both
        (1000, 1.0, [1.0, 2.5]),  # this one was quicker than the log's quickest
    ],
)
def test_range(tokens, seconds, span):
    assert (
        cost_figures(tokens, seconds, SimpleNamespace(rates=(400.0, 500.0)))["avoidable_seconds_range"]
        == span
    )
