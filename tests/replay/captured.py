"""Captures of real servers, read once: their readings, traces and studies."""

from functools import cache
from pathlib import Path

from parser.reading import read
from replay.study import study_of

CAPTURES = Path(__file__).parents[2] / "fixtures/captures"
SEEDS = CAPTURES.parent / "seeds"
#: every capture with a whole log, those of the matrix as matrix/W1/…
NAMES = sorted(str(path.parent.relative_to(CAPTURES)) for path in CAPTURES.rglob("server.log"))
TRACED = [name for name in NAMES if list((CAPTURES / name).glob("trace*.txt"))]


@cache
def reading(name, traced=False):
    folder = CAPTURES / name
    traces = sorted(str(path) for path in folder.glob("trace*.txt")) if traced else ()
    return read([str(folder / "server.log")], traces=traces)


@cache
def study(name, traced=False):
    return study_of(reading(name, traced))


@cache
def seed(name):
    return study_of(read([str(SEEDS / f"{name}.md")]))
