"""`--model PATH`: an mlx-lm model and its own prompt cache in place of the small ones. Tiny, made here, random."""

from __future__ import annotations

import json
import sys

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models import llama, mamba

from parser.errors import UsageError
from replay.backends.lm import LmEngine
from replay.backends.mlx import TensorOptions, carry_out
from replay.config import ServerConfig
from replay.costs import FittedCosts
from replay.decisions import Decision
from replay.models.cache import RewindRefused
from replay.models.snapshot import SnapshotError
from replay.rope import Piece
from replay.server import replay
from replay.workload import Asked, Segment, Workload

LLAMA = {
    "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 128,
    "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip
MAMBA = {
    "model_type": "mamba", "hidden_size": 32, "intermediate_size": 64, "state_size": 8, "num_hidden_layers": 2,
    "conv_kernel": 4, "vocab_size": 128, "use_bias": False, "use_conv_bias": True, "time_step_rank": 2,
}  # fmt: skip


def directory(path, module, config):
    mx.random.seed(7)
    model = module.Model(module.ModelArgs.from_dict(config))
    mx.save_safetensors(str(path / "model.safetensors"), dict(tree_flatten(model.parameters())))
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.fixture
def lm(tmp_path):
    return LmEngine(directory(tmp_path, llama, LLAMA))


TEXT = np.arange(1, 400, dtype=np.uint64) * np.uint64(7919)


def test_a_checkpoint_comes_back_as_it_was(lm, tmp_path):
    session = lm.new()
    session.extend(TEXT[:90])
    lm.save(session, tmp_path / "one.safetensors")
    back = lm.load(tmp_path / "one.safetensors")
    assert back.length == 90 and np.array_equal(back.logits(), session.logits())
    for each in (session, back):
        each.extend(TEXT[90:95])
    assert np.array_equal(back.logits(), session.logits())


def test_a_prompt_cache_that_was_altered_or_lost_is_refused(lm, tmp_path):
    session = lm.new()
    session.extend(TEXT[:90])
    lm.save(session, tmp_path / "one.safetensors")
    cache = tmp_path / "one.cache.safetensors"
    content = bytearray(cache.read_bytes())
    content[-3] ^= 1
    cache.write_bytes(content)
    with pytest.raises(SnapshotError, match="cache is"):
        lm.load(tmp_path / "one.safetensors")
    cache.unlink()
    with pytest.raises(SnapshotError, match="missing"):
        lm.load(tmp_path / "one.safetensors")


def test_rows_are_trimmed_and_recurrent_state_is_not(lm, tmp_path):
    session = lm.new()
    session.extend(TEXT[:90])
    session.rewind(60)
    session.extend(TEXT[60:90])
    cold = lm.new()
    cold.extend(TEXT[:90])
    assert np.abs(session.logits() - cold.logits()).max() <= lm.tolerance * np.abs(cold.logits()).max()
    (tmp_path / "m").mkdir()
    recurrent = LmEngine(directory(tmp_path / "m", mamba, MAMBA)).new()
    recurrent.extend(TEXT[:50])
    recurrent.save_point()
    recurrent.extend(TEXT[50:90])
    with pytest.raises(RewindRefused, match="cannot trim"):
        recurrent.rewind(60)
    recurrent.rewind(50)
    assert recurrent.length == 50


def test_a_replay_moves_its_caches(lm, tmp_path):
    segments = {name: Segment(name, 40) for name in ("head", "a", "b", "x", "y")}
    prompts = [("head", "a"), ("head", "b"), ("head", "a", "x"), ("head", "b", "y")]
    asked = [
        Asked(
            n,
            tuple(Piece(name, 0, 40) for name in names),
            after=n - 1 or None,
            arrival_s=None if n > 1 else 0.0,
        )
        for n, names in enumerate(prompts, 1)
    ]
    config = ServerConfig(ctx=512, kv_cache_min_tokens=8, kv_cache_cold_max_tokens=0, prefill_chunk=32)
    workload, log = Workload(segments, tuple(asked)), list[Decision]()
    outcome = replay(workload, config, FittedCosts(), log)
    assert outcome.totals.disk_hits == 2
    options = TensorOptions(device="cpu", model=tmp_path, samples=None)
    result = carry_out(workload, [config], log, outcome, options)
    assert result.agree and "mlx-lm llama" in result.model
    assert {check.kind for check in result.checks} >= {"chunking", "restore", "rewind-instead"}


def test_without_mlx_lm_or_a_model_the_message_says_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"no config\.json"):
        LmEngine(tmp_path)
    monkeypatch.setitem(sys.modules, "mlx_lm", None)
    monkeypatch.setitem(sys.modules, "mlx_lm.models", None)
    with pytest.raises(UsageError, match="needs mlx-lm") as caught:
        LmEngine(tmp_path)
    assert "ds4scope[lm]" in str(caught.value)
