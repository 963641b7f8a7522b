from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Failure
from diode_engine.validation.metrics import (
    FLOOR,
    VECTOR,
    Summary,
    by_group,
    efficiencies,
    groups,
    prediction_errors,
    spearman,
)
from diode_engine.validation.pool import CandidatePool

A, B, C, D = (Candidate.make("triton::mm", BLOCK_M=m) for m in (16, 32, 64, 128))
NAN = float("nan")


@pytest.fixture
def pool(table: Callable[..., TimingTable], problem: Problem) -> CandidatePool:
    """Candidates A to D: 10, 20, 40 µs and a failure."""
    times = (10.0, 20.0, 40.0, Failure.OUT_OF_RESOURCES)
    return CandidatePool.make(
        table(*((problem, c, us) for c, us in zip((A, B, C, D), times, strict=True)))
    )


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        ((1, 2, 3, 4), (1.0, 1.0, 1.0)),
        ((3, 2, 1, 4), (0.25, 0.5, 1.0)),
        ((2, 2, 2, 1), (0.0, 1.0, 1.0)),  # a failure is skipped among several
        ((NAN, NAN, 1, NAN), (0.25, 0.25, 0.25)),  # fewer than k
        ((NAN, NAN, NAN, 1), (0.0, 0.0, 0.0)),
        ((NAN, NAN, NAN, NAN), (NAN, NAN, NAN)),
    ],
)
def test_efficiency_of_the_first_k(
    pool: CandidatePool, score: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    found = efficiencies(pool, np.array(score, np.float64), (1, 2, 3))
    np.testing.assert_array_equal(found[:, 0], expected)


def test_summary_survives_a_zero() -> None:
    summary = Summary.make(np.array([1.0, 0.25, 0.0, 1.0]))
    assert summary.geomean == pytest.approx((0.25 * FLOOR) ** 0.25)
    assert summary.worst == 0
    assert summary.p10 == pytest.approx(0.075)
    assert summary.problems == 4


def test_errors_are_of_what_was_predicted_and_measured(pool: CandidatePool) -> None:
    errors = prediction_errors(pool, np.array([20.0, 20.0, NAN, 5.0]))
    assert errors.timings == 2
    assert errors.mse_log == pytest.approx(np.log(2) ** 2 / 2)
    assert errors.rmse_log == pytest.approx(np.log(2) / np.sqrt(2))
    assert errors.exp_rmse == pytest.approx(2 ** np.sqrt(0.5))
    assert errors.mape == pytest.approx(0.5)
    assert np.isnan(errors.spearman)  # two candidates have no ranking worth the name
    assert prediction_errors(pool, np.full(4, NAN)) is None
    reversed_ = prediction_errors(pool, np.array([3.0, 2.0, 1.0, NAN]))
    assert reversed_.spearman == pytest.approx(-1)


def test_spearman_gives_equal_values_their_mean_rank() -> None:
    x, y = np.array([1.0, 2.0, 2.0, 9.0]), np.array([1.0, 3.0, 2.0, 4.0])
    assert spearman(x, y) == pytest.approx(3 / np.sqrt(10))
    assert spearman(np.ones(3), np.arange(3.0)) == 0


@pytest.mark.parametrize(
    ("m", "band"),
    [(1, "M ≤ 16"), (16, "M ≤ 16"), (17, "M 17–64"), (64, "M 17–64"), (512, "M 65–512"),
     (513, "M > 512")],
)  # fmt: skip
def test_groups(problem: Problem, m: int, band: str) -> None:
    assert groups(replace(problem, M=m))["M"] == (band,)


def test_a_problem_may_be_in_several_groups_of_a_kind() -> None:
    shared = groups(Problem.make("mm", 64, 4096, 4096, "bfloat16"))
    assert {"llama-2-7b", "llama-3-8b"} <= set(shared["model"])
    assert shared["dimension"] == ()
    vector = groups(Problem.make("mm", 64, 1, 4097, "bfloat16"))
    assert (vector["dimension"], vector["model"]) == ((VECTOR,), ())
    found = by_group([Problem.make("mm", 64, 4096, 4096, "bfloat16")], np.array([0.5]))
    assert found["model"]["llama-2-7b"].problems == found["model"]["llama-3-8b"].problems == 1
    assert "dimension" not in found


def test_tf32_is_a_type_of_its_own(problem: Problem) -> None:
    tf32 = Problem.make("mm", 64, 64, 64, "float32", allow_tf32=True, b_layout="col")
    plain = replace(tf32, allow_tf32=False)
    found = by_group((problem, tf32, plain, plain), np.array([NAN, 0.5, 1.0, 0.25]))
    assert {name: s.problems for name, s in found["dtype"].items()} == {"float32": 2, "tf32": 1}
    assert found["dtype"]["float32"].geomean == pytest.approx(0.5)
    assert list(found["layout"]) == ["row/col"]
