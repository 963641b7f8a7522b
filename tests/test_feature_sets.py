"""Sets of features side by side: each as it was, and a model of either loads and answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diode_engine import features
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, KNOWN, Hardware
from diode_engine.core.operand import DType
from diode_engine.core.problem import MAX_DIM, Problem
from diode_engine.core.resources import spills_erratically
from diode_engine.core.table import TimingTable
from diode_engine.models.artifact import Artifact, save_artifact
from diode_engine.models.coverage import Coverage
from diode_engine.models.distilled import quantized
from diode_engine.models.fit_network import NetworkSettings, fit_network
from diode_engine.models.fit_trees import TreesSettings, fit_trees
from diode_engine.models.fitting import Examples
from diode_engine.models.manifest import Data, Manifest
from diode_engine.models.predictor import Predictor

OLD, NEW = features.SETS[2], features.SETS[3]
UNKNOWN = Hardware("cuda", "Unknown", "9.0", 1, 0, 0, 0, 0, 0, 0)
NO_GPU = Hardware("cpu", "x", "y", 0, 0, 0, 0, 0, 0, 0)


def triton(m: int, n: int, k: int, stages: int = 3, warps: int = 4) -> Candidate:
    return Candidate.make(
        "triton::mm", BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, num_stages=stages, num_warps=warps, GROUP_M=8
    )


CANDIDATES = (
    Candidate.make("aten::mm"), Candidate.make("decompose_k", k_split=8), triton(64, 64, 32),
    triton(128, 128, 64, 4, 8), triton(16, 32, 128, 2, 2), triton(128, 64, 128, 3, 4),
)  # fmt: skip
PROBLEMS = (
    Problem.make("mm", 64, 768, 64, "float32"), Problem.make("mm", 8, 4096, 4096, "bfloat16"),
    Problem.make("addmm", 333, 512, 100, "float32", allow_tf32=True),
    Problem.make("bmm", 128, 64, 128, "float16", B=96, b_layout="col"),
)  # fmt: skip


def rows(
    of: features.FeatureSet,
    problem: Problem,
    candidates: tuple[Candidate, ...] = CANDIDATES,
    hardware: Hardware = H200,
) -> np.ndarray:
    n = len(candidates)
    return of.matrix((problem,), candidates, np.zeros(n, np.intp), np.arange(n), hardware)


def value(problem: Problem, candidate: Candidate, name: str, hardware: Hardware = H200) -> float:
    return float(rows(NEW, problem, (candidate,), hardware)[0, NEW.names.index(name)])


def test_the_sets_are_those_of_their_versions() -> None:
    """As test_features has it for version 2: whoever changes version 3 after a model was made with
    it makes another version."""
    assert {version: each.names_hash for version, each in features.SETS.items()} == {
        2: "b40f270557019d2b", 3: "3b72627d19f23815",
    }  # fmt: skip
    x = np.concatenate([rows(NEW, problem) for problem in PROBLEMS])
    total = float(np.sum(x.astype(np.float64) * np.linspace(1, 2, x.size).reshape(x.shape)))
    assert total == pytest.approx(7802.356716619238, rel=1e-7)


def test_version_3_has_the_columns_of_version_2_bit_for_bit() -> None:
    places = [NEW.names.index(name) for name in OLD.names]
    for problem in PROBLEMS:
        np.testing.assert_array_equal(
            rows(NEW, problem)[:, places].view(np.int32), rows(OLD, problem).view(np.int32)
        )
    assert OLD.names[OLD.base] == NEW.names[NEW.base]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_space_is_the_matrix_bit_for_bit(problem: Problem) -> None:
    space = NEW.space(problem, CANDIDATES, H200)
    x = rows(NEW, problem)
    np.testing.assert_array_equal(space.rows().view(np.int32), x.view(np.int32))
    np.testing.assert_array_equal(space.base, x[:, NEW.base])


dims = st.integers(1, MAX_DIM) | st.integers(1, 5000)
small = st.integers(1, 1 << 20) | st.sampled_from([16, 64, 128])


@settings(deadline=None, max_examples=60)
@given(dims, dims, dims, dims, st.sampled_from(list(DType)), small, small, small, small, small)
def test_no_row_is_nan_or_infinite(
    B: int, M: int, N: int, K: int, dtype: DType, m: int, n: int, k: int, s: int, w: int
) -> None:
    problem = Problem.make("bmm", M, N, K, dtype, B=B)
    tile = triton(m, n, k, s, w)
    tma = replace(tile, template="triton::mm_persistent_tma")
    asked = (tile, tma, Candidate.make("decompose_k", k_split=s), *CANDIDATES)
    for hardware in (H200, UNKNOWN, NO_GPU):
        for of in (OLD, NEW):
            assert np.isfinite(rows(of, problem, asked, hardware)).all()


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_may_spill_without_a_loop_is_what_the_rule_says(problem: Problem) -> None:
    column = rows(NEW, problem)[:, NEW.names.index("erratic")]
    np.testing.assert_array_equal(column > 0, spills_erratically(problem, CANDIDATES))


def test_passes_over_k() -> None:
    problem = Problem.make("mm", 256, 256, 100, "bfloat16")
    for block_k, one, two, last in (
        (128, 1, 0, 100 / 128),
        (64, 0, 1, 36 / 64),
        (32, 0, 0, 4 / 32),
    ):
        candidate = triton(64, 64, block_k)
        assert value(problem, candidate, "single_pass") == one
        assert value(problem, candidate, "two_passes") == two
        assert 2 ** value(problem, candidate, "log2_last_step") == pytest.approx(last)
    assert value(problem, Candidate.make("aten::mm"), "single_pass") == 0


def test_units_of_the_device_are_the_same_where_its_limits_grow_together() -> None:
    """Twice the clock and twice the bandwidth: everything takes half the time, and nothing that
    decides between kernels has changed."""
    faster = replace(H200, name="Faster", clock_mhz=2 * H200.clock_mhz,
                     memory_gb_s=2 * H200.memory_gb_s)  # fmt: skip
    for name in ("log2_balance", "log2_bytes_sm", "log2_flops_sm", "log2_step_cycles",
                 "log2_step_balance"):  # fmt: skip
        for problem in PROBLEMS:
            here = value(problem, CANDIDATES[3], name)
            assert value(problem, CANDIDATES[3], name, faster) == pytest.approx(here, abs=1e-5)
    h100 = KNOWN["NVIDIA H100 80GB HBM3"]
    assert value(PROBLEMS[1], CANDIDATES[3], "log2_balance", h100) == pytest.approx(
        value(PROBLEMS[1], CANDIDATES[3], "log2_balance") + np.log2(3352 / 4814), abs=1e-5
    )


def timings() -> TimingTable:
    from diode_engine.core.hardware import Environment
    from diode_engine.core.timing import Timing

    there = Environment(H200, "", "2.13.0", "3.7.1")
    return TimingTable.from_records(
        (problem, candidate, there, Timing(min_us=5.0 + i + 3 * j))
        for i, problem in enumerate(
            Problem.make("mm", 16 * n, 64, 96, "bfloat16") for n in range(1, 12)
        )
        for j, candidate in enumerate(CANDIDATES[2:])
    )


@pytest.mark.parametrize("of", [OLD, NEW])
@pytest.mark.parametrize("family", ["trees", "network", "distilled"])
def test_a_model_of_either_set_loads_and_answers(
    tmp_path: Path, of: features.FeatureSet, family: str
) -> None:
    table = timings()
    examples = Examples.of(table, H200, of)
    if family == "trees":
        model = fit_trees(examples, examples, TreesSettings(rounds=5, threads=1))
    else:
        network = fit_network(examples, examples, NetworkSettings(hidden=(8,), epochs=1))
        model = network if family == "network" else quantized(network, examples.x)
    manifest = Manifest(
        "made", family, H200, Coverage.of(table), Data(),
        feature_version=of.version, feature_names=of.names_hash,
    )  # fmt: skip
    made = save_artifact(tmp_path / "made", manifest, (model,))
    assert (made.manifest.feature_set, made.members[0].to_bytes()) == (of, model.to_bytes())
    predictor = Predictor.load(tmp_path / "made")
    asked = table.problems[3]
    us = predictor.predict_us(asked, CANDIDATES[2:])
    np.testing.assert_allclose(
        np.log(us), model.predict(rows(of, asked, CANDIDATES[2:])), rtol=1e-5
    )
    assert len(predictor.predict(asked, CANDIDATES[2:]).order) == len(CANDIDATES) - 2


def test_a_model_of_one_set_is_not_taken_for_the_other_s(tmp_path: Path) -> None:
    from diode_engine.errors import ModelError

    table = timings()
    examples = Examples.of(table, H200, NEW)
    model = fit_network(examples, examples, NetworkSettings(hidden=(8,), epochs=1))
    wrong = Manifest("made", "network", H200, Coverage.of(table), Data())  # says version 2
    with pytest.raises(ModelError):
        save_artifact(tmp_path / "made", wrong, (model,))
    assert Artifact(wrong, ()).manifest.feature_set is OLD
