"""The documented plug-ins are loaded as a user would, and decide as the built-in policies they rebuild."""

import re
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds import COSTS, configs, workloads

from parser.errors import UsageError
from replay import plugins
from replay.server import replay

PAGE = Path(__file__).parents[2] / "docs/plugins.md"
#: class on the page -> (seam, the built-in it equals)
EQUALS = {
    "ReuseFirst": ("scheduler", "reuse-aware"),
    "CutAnywhere": ("reuse", "rewind-to-common"),
    "KeepWhatIsComing": ("store", "protect-incoming"),
}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page's examples in a file of the user's."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path_factory.mktemp("user") / "mine.py"
    file.write_text("\n".join(blocks))
    return file


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(workloads(), configs(), st.sampled_from(sorted(EQUALS)))
def test_examples_equal_built_in_policies(page, workload, config, name):
    seam, built_in = EQUALS[name]
    theirs, mine = [], []
    replay(workload, replace(config, **{seam: built_in}), COSTS, theirs)
    replay(workload, replace(config, **{seam: f"{page}:{name}"}), COSTS, mine)
    assert mine == theirs


def test_every_documented_name_is_there():
    named = {
        "scheduler": "common-prefix visible-key reuse-aware empty-first min-prefix min-prefix:64 lru clairvoyant",
        "reuse": "ladder rewind-to-common rewind-in-ring rewind-points",
        "store": "profile images-on-disk load-before-store protect-incoming clairvoyant",
    }
    for seam, names in named.items():
        for name in names.split():
            assert plugins._policy(seam, name)


def test_a_package_offers_a_policy_by_entry_point(monkeypatch):
    entry = EntryPoint("oldest", "replay.policies.schedulers:MinPrefix", "ds4scope.schedulers")
    found = {"ds4scope.schedulers": [entry]}
    monkeypatch.setattr(plugins, "entry_points", lambda group, name=None: found.get(group, []))
    assert plugins.scheduler_of("oldest:7").least == 7
    assert "oldest" in plugins.names("scheduler")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nobody", "no scheduler 'nobody'"),
        ("gone.py:Mine", "is not there"),
        ("min-prefix:few", "give a number of tokens"),
    ],
)
def test_a_wrong_name_says_what_to_do(name, says):
    with pytest.raises(UsageError, match=re.escape(says)):
        plugins.scheduler_of(name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("class Mine: pass", "has no method `score`"),
        ("import nothing_of_that_name", "nothing_of_that_name"),
        ("class Other: pass", "has no class 'Mine'"),
        ("class Mine:\n    def __init__(self): raise ValueError('no')", "cannot be made: no"),
    ],
)
def test_a_broken_file_is_an_error_not_a_traceback(tmp_path, text, says):
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(UsageError, match=re.escape(says)):
        plugins.scheduler_of(f"{file}:Mine")
