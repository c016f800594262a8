"""What can go wrong on a machine is said in plain words, and nothing half-written is taken for whole."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from parser.errors import UsageError
from replay.backends.device import DeviceError, open_device, out_of_memory
from replay.backends.mlx import TensorOptions, carry_out
from replay.backends.shelf import Shelf
from replay.config import ServerConfig
from replay.costs import FittedCosts
from replay.decisions import Decision
from replay.models.model import build
from replay.models.session import Session
from replay.models.snapshot import SnapshotError, load_session, save_session, write_arrays
from replay.models.weights import mix
from replay.rope import Piece
from replay.server import replay
from replay.workload import Asked, Segment, Workload

ROOT = Path(__file__).parents[2]
MODEL = build("deepseek-v4", tile=16)


@pytest.fixture
def saved(tmp_path):
    session = Session(MODEL)
    session.extend(mix(np.arange(300, dtype=np.uint64)) >> np.uint64(1))
    path = tmp_path / "one.safetensors"
    save_session(session, path)
    return path


# -- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 7, 200, -1])
def test_a_cut_file_is_refused(saved, cut):
    saved.write_bytes(saved.read_bytes()[:cut])
    with pytest.raises(SnapshotError, match="E-KV-DAMAGED"):
        load_session(MODEL, saved)


@pytest.mark.parametrize("where", [0.0001, 0.3, 0.9999])
def test_one_changed_bit_is_refused(saved, where):
    content = bytearray(saved.read_bytes())
    content[int(len(content) * where)] ^= 4
    saved.write_bytes(content)
    with pytest.raises(SnapshotError, match=r"E-KV-(DAMAGED|FOREIGN)"):
        load_session(MODEL, saved)


def test_files_of_others_are_refused(saved, tmp_path):
    arrays = load_file(saved)
    save_file(arrays, tmp_path / "plain.safetensors")
    with pytest.raises(SnapshotError, match="format is 'none'"):
        load_session(MODEL, tmp_path / "plain.safetensors")
    with pytest.raises(SnapshotError, match="model is"):
        load_session(build("glm", tile=16), saved)
    with pytest.raises(SnapshotError, match="model is"):  # another tile rounds otherwise
        load_session(build("deepseek-v4", tile=32), saved)
    (tmp_path / "text.safetensors").write_text("KVC")
    with pytest.raises(SnapshotError, match="E-KV-DAMAGED"):
        load_session(MODEL, tmp_path / "text.safetensors")
    with pytest.raises(SnapshotError, match="E-KV-DAMAGED"):
        load_session(MODEL, tmp_path / "missing.safetensors")


def test_a_later_version_is_refused(saved, monkeypatch):
    monkeypatch.setattr("replay.models.snapshot.VERSION", "2")
    with pytest.raises(SnapshotError, match="version is '1', not '2'"):
        load_session(MODEL, saved)


def test_a_full_disk_leaves_no_file_and_says_what_to_do(tmp_path):
    """RLIMIT_FSIZE fails a write in the middle, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(SnapshotError, match="checkpoint not written: File too large") as caught:
            write_arrays(tmp_path / "big.safetensors", "any", {"rows": np.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert "--work-dir" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_write_leaves_nothing_that_looks_whole(tmp_path):
    """The process is killed again and again while it writes the same checkpoint; what lies there loads or is absent."""
    script = (
        "import sys, numpy as np\nfrom pathlib import Path\nfrom replay.models.snapshot import write_arrays\n"
        "print('ready', flush=True)\n"
        "while True: write_arrays(Path(sys.argv[1]), 'any', {'rows': np.random.rand(300_000)})\n"
    )
    from replay.models.snapshot import read_arrays

    target = tmp_path / "one.safetensors"
    for delay in (0.0, 0.02, 0.05):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(target)], stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ}
        )
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        time.sleep(delay)
        process.kill()
        process.wait()
        process.stdout.close()
        if target.exists():
            assert read_arrays(target, "any")["rows"].shape == (300_000,)


def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no checkpoint folder"):
        Shelf(tmp_path / "missing")


def test_the_shelf_leaves_nothing_behind_and_takes_no_path_from_a_log(tmp_path):
    with Shelf(tmp_path) as shelf:
        shelf.keep("../../etc/passwd", 10, None)
        path = shelf.new_path()
        path.write_bytes(b"x" * 50)
        shelf.keep("/abs", 20, path)
        assert shelf.size == 30 and shelf.bytes_on_disk == 50 and path.parent == shelf.folder
        assert shelf.drop("/abs") and not path.exists() and not shelf.drop("/abs")
        assert shelf.drop("../../etc/passwd")
    assert list(tmp_path.iterdir()) == []


# -- device ------------------------------------------------------------------------------------------------------


def test_a_device_that_is_not_there_is_a_usage_error():
    import mlx.core as mx

    absent = "metal" if not mx.metal.is_available() else "cuda"
    with pytest.raises(UsageError, match=f"finds no {absent} device") as caught:
        open_device(absent)
    assert "--device" in str(caught.value)
    with pytest.raises(UsageError):
        open_device("tpu")


def test_no_mlx_is_said_in_one_line():
    """As on a platform that MLX has no wheel for; the counts backend still works there."""
    code = (
        "import sys\nsys.modules['mlx'] = sys.modules['mlx.core'] = None\nfrom ds4scope.cli import main\n"
        "log = 'fixtures/captures/f-regenerate-glm-2slots/server.log'\n"
        "assert main(['replay', log]) == 0\nsys.exit(main(['replay', log, '--backend', 'mlx']))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 3 and "MLX cannot be loaded here" in run.stderr and "Traceback" not in run.stderr
    assert "--backend counts" in run.stderr


def small(tokens):
    segments = {"a": Segment("a", tokens)}
    workload = Workload(segments, (Asked(1, (Piece("a", 0, tokens),), arrival_s=0.0),))
    config, log = ServerConfig(ctx=10**9, kv_disk=False, family="qwen-next"), list[Decision]()
    return workload, config, log, replay(workload, config, FittedCosts(), log)


def test_a_replay_that_cannot_fit_is_refused_before_it_starts():
    workload, config, log, outcome = small(900_000_000)
    with pytest.raises(DeviceError, match=r"needs up to .* GiB of memory") as caught:
        carry_out(workload, [config], log, outcome, TensorOptions(device="cpu"))
    assert "--scale" in str(caught.value)


def test_the_process_own_limit_counts(monkeypatch):
    """`ulimit -v`: an address space that is nearly used up, however much memory the machine has."""
    workload, config, log, outcome = small(100)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 20, 1 << 20))
    with pytest.raises(DeviceError, match=r"0\.00 GiB are free"):
        carry_out(workload, [config], log, outcome, TensorOptions(device="cpu"))


def test_running_out_of_memory_on_the_way_is_said_in_plain_words(monkeypatch):
    workload, config, log, outcome = small(100)

    def fail(*_):
        raise RuntimeError("[malloc] Unable to allocate 1099511627776 bytes.")

    monkeypatch.setattr(Session, "extend", fail)
    with pytest.raises(DeviceError, match="out of memory"):
        carry_out(workload, [config], log, outcome, TensorOptions(device="cpu"))
    assert not out_of_memory(RuntimeError("shapes do not fit"))


# -- the command -------------------------------------------------------------------------------------------------


def test_the_json_fits_its_schema():
    log = "fixtures/captures/f-regenerate-glm-2slots/server.log"
    words = [
        sys.executable,
        "-m",
        "ds4scope",
        "replay",
        log,
        "--format",
        "json",
        "--backend",
        "mlx",
        "--scale",
        "64",
    ]
    run = subprocess.run([*words, "--device", "cpu"], capture_output=True, text=True, cwd=ROOT, check=False)
    document = json.loads(run.stdout)
    schema = json.loads((ROOT / "docs/schemas/replay.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    tensors = document["tensors"]
    assert tensors["agree"] and tensors["scale"] == 64 and tensors["family"] == "glm" and tensors["rewinds"]


def test_the_command_reports_and_its_exit_status_tells_whether_the_tensors_agree():
    log = "fixtures/captures/e-tail-mismatch-ds4/server.log"
    base = [
        sys.executable,
        "-m",
        "ds4scope",
        "replay",
        log,
        "--backend",
        "mlx",
        "--scale",
        "64",
        "--device",
        "cpu",
    ]
    good = subprocess.run(base, capture_output=True, text=True, cwd=ROOT, check=False)
    assert good.returncode == 0 and "all borne out by the tensors" in good.stdout
    assert "divided by 64" in good.stdout and "largest difference 0" in good.stdout
    assert "it turns sound with a ring of 247 rows" in good.stdout
    more = [*base, "--family", "qwen-next", "--reuse", "rewind-to-common"]
    bad = subprocess.run(more, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (
        bad.returncode == 1
        and "NOT borne out" in bad.stdout
        and "reuse policy rewind-to-common" in bad.stdout
    )
