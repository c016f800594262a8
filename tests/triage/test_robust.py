"""Whatever is pasted: a verdict, one finding a mechanism, valid JSON; lines cut, elided, reordered, renumbered."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parser.reading import read
from triage.reporters.json import document
from triage.triage import triage

FIXTURES = Path(__file__).parents[2] / "fixtures"
LINES = sorted(
    {
        line
        for path in (*FIXTURES.glob("cases/*/input.*"), *FIXTURES.glob("captures/[g-j]*/server.log"))
        for line in path.read_text(errors="replace").splitlines()
        if 10 < len(line) < 400
    }
)


@st.composite
def pasted(draw) -> str:
    """Lines of the fixtures, some cut, some with a field elided, some with another number."""
    out = []
    for line in draw(st.lists(st.sampled_from(LINES), min_size=1, max_size=25)):
        words = line.split(" ")
        where = draw(st.integers(0, len(words) - 1))
        match draw(st.sampled_from(["keep", "keep", "keep", "cut", "elide", "drop", "renumber", "fence"])):
            case "cut":
                line = line[: draw(st.integers(0, len(line)))]
            case "elide":
                line = " ".join([*words[:where], "...", *words[where + 1 :]])
            case "drop":
                line = " ".join([*words[:where], *words[where + 1 :]])
            case "renumber":
                number = str(draw(st.sampled_from([0, 1, 63, 2048, 30_000, 10**12])))
                line = "".join(number if c.isdigit() and draw(st.booleans()) else c for c in line)
            case "fence":
                out.append("```")
        out.append(line)
    return "\n".join(out)


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(pasted(), st.sampled_from(["paste.md", "server.log"]))
def test_every_paste_has_a_verdict(tmp_path_factory, text, name):
    path = tmp_path_factory.mktemp("paste") / name
    path.write_text(text)
    report = triage(read([str(path)]))
    answer = json.loads(json.dumps(document(report)))
    ids = [f["mechanism"] for f in answer["findings"]]
    assert ids
    assert len(ids) == len(set(ids))
    assert [f["rank"] for f in answer["findings"]] == list(range(1, len(ids) + 1))
    assert not set(ids) & {r["mechanism"] for r in answer["ruled_out"]}
