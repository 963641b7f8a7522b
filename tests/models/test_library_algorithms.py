"""The model of the library's algorithms: its features, trees and file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diode_engine import paths
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.errors import ModelError
from diode_engine.models import library_algorithms as module
from diode_engine.models.library_algorithms import (
    AlgorithmModel,
    Config,
    Offer,
    describe,
    least_gain,
)

TILES = np.zeros((24, 2), np.int64)
TILES[20], TILES[23] = (128, 128), (128, 256)
PROBLEM = Problem.make("mm", 512, 1024, 512, "bfloat16", b_layout="col")
FIRST = Config(66, 20)


def model_that_prefers(config: Config) -> AlgorithmModel:
    """One tree of depth 2, by which this algorithm takes 0.9 times as long as the first, FIRST."""
    x = describe(PROBLEM, [Offer(FIRST, 0, 1.0, 0), Offer(config, 0, 1.0)], TILES, 132)
    differ = int(np.flatnonzero(x[0] != x[1])[0])
    split = np.array([[differ, differ, differ]])
    middle = (x[0, differ] + x[1, differ]) / 2
    faster = np.float32(np.log(0.9))
    right = x[1, differ] > middle
    leaf = [0, 0, faster, faster] if right else [faster, faster, 0, 0]
    return AlgorithmModel(
        split, np.array([[middle] * 3], np.float32), np.array([leaf], np.float32), 0.0, (config,),
        TILES, (16, 16, 16), (4096, 4096, 4096), 1.02, 130100, "some",
    )  # fmt: skip


def test_a_faster_algorithm_is_chosen_by_the_margin():
    other = Config(66, 23)
    model = model_that_prefers(other)
    offers = [Offer(FIRST, 0, 1.0, 0), Offer(other, 0, 1.0)]
    assert model.choose(PROBLEM, offers, H200) == 1
    assert replace(model, margin=1.04).choose(PROBLEM, offers, H200) == 0
    assert model.choose(PROBLEM, offers[:1], H200) == 0


def test_an_algorithm_must_gain_more_where_the_trees_err_and_where_a_product_takes_microseconds():
    large = Problem.make("mm", 8192, 8192, 8192, "bfloat16")
    assert least_gain(large, H200, 1.02) == pytest.approx(1.02, abs=1e-3)
    # 2.6 MB at 4.8 TB/s, and a launch
    assert least_gain(PROBLEM, H200, 1.02) == pytest.approx(1.02 + 0.2 / 2.55, abs=1e-3)
    batch = Problem.make("bmm", 8192, 8192, 8192, "bfloat16", B=8)
    assert least_gain(batch, H200, 1.02) == pytest.approx(1.07, abs=1e-3)
    vector, matrix = (
        Problem.make("addmm", 8192, 8192, 8192, "bfloat16", bias=bias)
        for bias in ("vector", "matrix")
    )
    assert least_gain(vector, H200, 1.02) == pytest.approx(1.02, abs=1e-3)
    assert least_gain(matrix, H200, 1.02) == pytest.approx(1.07, abs=1e-3)
    unknown = replace(H200, clock_mhz=0, memory_gb_s=0)
    assert least_gain(PROBLEM, unknown, 1.02) == pytest.approx(1.02, abs=1e-3)


def test_the_trees_answer_as_they_are_drawn():
    """A row goes right where its feature is the threshold or more."""
    model = replace(
        model_that_prefers(Config(66, 23)), split=np.array([[0, 1, 2]]), base=1.0,
        threshold=np.array([[5.0, 1.0, 2.0]], np.float32),
        leaf=np.array([[10.0, 20.0, 30.0, 40.0]], np.float32),
    )  # fmt: skip
    rows = np.array([[4, 0, 9], [4, 1, 0], [5, 0, 1], [9, 0, 2]], np.float32)
    assert model.predict(rows).tolist() == [11, 21, 31, 41]


def test_the_features_tell_how_the_tiles_fill_the_gpu():
    """1024 × 512 in tiles of N × M: 8 × 4 blocks of 128 × 128; 6 clusters of 2 × 1 of 3."""
    (row,) = describe(PROBLEM, [Offer(Config(66, 20, cluster=3), 0, 0.2, 0)], TILES, 16)
    assert {7.0, 14.0, 2.0, 1.0, 3.0}.issubset(row.tolist())  # log2 of the tile, cluster, blocks
    (shape,) = module._shape(PROBLEM, np.array([Config(66, 20, cluster=3)]), TILES, 20)
    assert shape[-3:] == pytest.approx([np.log2(32 / 20), 0.8, 0.8])
    odd = Problem.make("mm", 512, 1000, 512, "bfloat16")
    (shape,) = module._shape(odd, np.array([Config(66, 23, cluster=2)]), TILES, 16)
    assert shape[-1] == pytest.approx(1000 / 1024)


def test_a_size_or_type_beyond_those_that_were_timed_is_not_known():
    model = model_that_prefers(Config(66, 23))
    assert model.knows(PROBLEM)
    assert not model.knows(Problem.make("mm", 8192, 1024, 512, "bfloat16"))
    assert not model.knows(Problem.make("mm", 8, 1024, 512, "bfloat16"))
    assert model.knows(Problem.make("mm", 512, 1024, 512, "float16"))
    assert not model.knows(Problem.make("mm", 512, 1024, 512, "float32"))


def test_a_file_has_the_model(tmp_path, monkeypatch):
    model = model_that_prefers(Config(66, 23))
    monkeypatch.setattr(paths, "shipped_dir", lambda: tmp_path)
    assert module.model_for(H200) is None
    path = module.path_for(H200)
    path.parent.mkdir(parents=True)
    path.write_bytes(model.to_bytes())
    read = module.model_for(H200)
    assert read is not None
    x = describe(PROBLEM, [Offer(FIRST, 0, 1.0, 0), Offer(Config(66, 23), 0, 1.0)], TILES, 132)
    assert read.predict(x).tolist() == model.predict(x).tolist()
    for name in ("configs", "low", "high", "version"):
        assert getattr(read, name) == getattr(model, name)
    assert read.margin == pytest.approx(1.02)
    assert read.key != model.key


@pytest.mark.parametrize(
    "change",
    [
        {"split": np.array([[0, 1, 2000]])},
        {"split": np.array([[0, -1, 2]])},
        {"split": np.zeros((1, 2), int), "threshold": np.zeros((1, 2), np.float32),
         "leaf": np.zeros((1, 3), np.float32)},
        {"tiles": TILES[:0]},
        {"configs": (Config(-1, 20),)},
        {"low": (4097, 16, 16)},
        {"margin": 0.0},
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_is_refused(change):
    model = model_that_prefers(Config(66, 23))
    assert AlgorithmModel.from_bytes(model.to_bytes()).split.max() < module.FEATURES
    x = describe(PROBLEM, [Offer(FIRST, 0, 1.0, 0)], TILES, 132)
    assert x.shape == (1, module.FEATURES)
    with pytest.raises(ModelError, match="library's algorithms"):
        AlgorithmModel.from_bytes(replace(model, **change).to_bytes())
