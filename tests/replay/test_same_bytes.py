"""The same workload gives the same bytes: over launches, hash seeds and time zones, whatever else ran before."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
sys.path.insert(0, "tests/replay")
from matrix import configuration, machine, workload
from replay.server import replay
from replay.workload_file import dumps
load, log = workload("W4", "aug-1-disk"), []
print(dumps(load), replay(load, configuration("W4", "R-2-disk"), machine("W4"), log), log)
"""


def launch(**environment):
    told = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=told, capture_output=True, check=True
    )
    return done.stdout


def test_hash_seeds_and_time_zones():
    first = launch(PYTHONHASHSEED="1", TZ="UTC")
    assert len(first) > 10_000
    assert launch(PYTHONHASHSEED="2", TZ="Asia/Kathmandu", LC_ALL="C") == first
