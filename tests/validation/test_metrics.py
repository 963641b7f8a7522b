"""Efficiency, errors, calibration, noise, and choices compared problem by problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Failure
from diode_engine.validation import paired
from diode_engine.validation.calibration import BINS, calibration
from diode_engine.validation.metrics import (
    FLOOR,
    VECTOR,
    Summary,
    by_group,
    efficiencies,
    groups,
    noise,
    prediction_errors,
    spearman,
)

A, B, C, D = (Candidate.make("triton::mm", BLOCK_M=m) for m in (16, 32, 64, 128))
NAN = float("nan")


@pytest.fixture
def four(pool, problem):
    """Candidates A to D: 10, 20, 40 µs and a failure."""
    times = (10.0, 20.0, 40.0, Failure.OUT_OF_RESOURCES)
    return pool(*((problem, c, us) for c, us in zip((A, B, C, D), times, strict=True)))


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
def test_efficiency_of_the_first_k(four, score, expected):
    found = efficiencies(four, np.array(score, np.float64), (1, 2, 3))
    np.testing.assert_array_equal(found[:, 0], expected)


def test_summary_survives_a_zero():
    summary = Summary.make(np.array([1.0, 0.25, 0.0, 1.0]))
    assert summary.geomean == pytest.approx((0.25 * FLOOR) ** 0.25)
    assert summary.worst == 0
    assert summary.p10 == pytest.approx(0.075)
    assert summary.problems == 4


def test_errors_are_of_what_was_predicted_and_measured(four):
    errors = prediction_errors(four, np.array([20.0, 20.0, NAN, 5.0]))
    assert errors.timings == 2
    assert errors.mse_log == pytest.approx(np.log(2) ** 2 / 2)
    assert errors.rmse_log == pytest.approx(np.log(2) / np.sqrt(2))
    assert errors.exp_rmse == pytest.approx(2 ** np.sqrt(0.5))
    assert errors.mape == pytest.approx(0.5)
    assert np.isnan(errors.spearman)  # two candidates have no ranking worth the name
    assert prediction_errors(four, np.full(4, NAN)) is None
    reversed_ = prediction_errors(four, np.array([3.0, 2.0, 1.0, NAN]))
    assert reversed_.spearman == pytest.approx(-1)


def test_spearman_gives_equal_values_their_mean_rank():
    x, y = np.array([1.0, 2.0, 2.0, 9.0]), np.array([1.0, 3.0, 2.0, 4.0])
    assert spearman(x, y) == pytest.approx(3 / np.sqrt(10))
    assert spearman(np.ones(3), np.arange(3.0)) == 0


@pytest.mark.parametrize(
    ("m", "band"),
    [(1, "M ≤ 16"), (16, "M ≤ 16"), (17, "M 17–64"), (64, "M 17–64"), (512, "M 65–512"),
     (513, "M > 512")],
)  # fmt: skip
def test_groups(problem, m, band):
    assert groups(replace(problem, M=m))["M"] == (band,)


def test_a_problem_may_be_in_several_groups_of_a_kind():
    shared = groups(Problem.make("mm", 64, 4096, 4096, "bfloat16"))
    assert {"llama-2-7b", "llama-3-8b"} <= set(shared["model"])
    assert shared["dimension"] == ()
    vector = groups(Problem.make("mm", 64, 1, 4097, "bfloat16"))
    assert (vector["dimension"], vector["model"]) == ((VECTOR,), ())
    found = by_group([Problem.make("mm", 64, 4096, 4096, "bfloat16")], np.array([0.5]))
    assert found["model"]["llama-2-7b"].problems == found["model"]["llama-3-8b"].problems == 1
    assert "dimension" not in found


def test_tf32_is_a_type_of_its_own(problem):
    tf32 = Problem.make("mm", 64, 64, 64, "float32", allow_tf32=True, b_layout="col")
    plain = replace(tf32, allow_tf32=False)
    found = by_group((problem, tf32, plain, plain), np.array([NAN, 0.5, 1.0, 0.25]))
    assert {name: s.problems for name, s in found["dtype"].items()} == {"float32": 2, "tf32": 1}
    assert found["dtype"]["float32"].geomean == pytest.approx(0.5)
    assert list(found["layout"]) == ["row/col"]


def test_a_mean_difference_counts_beyond_its_chance():
    theirs = np.full(100, 0.9)
    steady = paired.compare(theirs * 0.99, theirs)  # each problem is 1 % worse
    assert steady.worse
    assert steady.chance == pytest.approx(0)
    assert not paired.compare(theirs * 0.998, theirs).worse  # within the tolerance
    factors = np.where(np.arange(100) % 2, 1.3, 0.75)  # −1.3 % in the mean
    noisy = paired.compare(theirs * factors, theirs)
    assert noisy.ours < noisy.theirs * 0.99
    assert noisy.chance > 0.05
    assert not noisy.worse
    # With more problems the same mean is no chance.
    many = np.tile(factors, 100)
    assert paired.compare(0.9 * many, np.full(len(many), 0.9)).worse


@pytest.mark.parametrize(
    ("alone", "other", "chance"), [(0, 0, True), (4, 0, True), (5, 0, False), (9, 5, True),
                                   (20, 5, False), (0, 9, True)],
)  # fmt: skip
def test_only_problems_on_which_two_differ_count(alone, other, chance):
    both = [True] * 30
    ours = np.array(both + [True] * alone + [False] * other + [False] * 100)
    theirs = np.array(both + [False] * alone + [True] * other + [False] * 100)
    assert paired.is_chance(ours, theirs) is chance


@pytest.mark.parametrize(
    ("problem", "kinds"),
    [
        (Problem.make("mm", 16, 64, 64, "bfloat16"), ("half", "mm", "M to 16", "aligned")),
        (
            Problem.make("bmm", 64, 64, 65, "float32", B=2),
            ("float32", "bmm", "M to 64", "unaligned"),
        ),
        (
            Problem.make("addmm", 65, 64, 64, "float32", allow_tf32=True),
            ("TF32", "addmm", "M over 64", "aligned"),
        ),
        (
            Problem.make("scaled_mm", 17, 64, 64, "float8_e4m3fn"),
            ("8 bits", "scaled_mm", "M to 64", "aligned"),
        ),
    ],
)
def test_kinds(problem, kinds):
    assert paired.get_kinds(problem) == kinds


RNG = np.random.default_rng(4)


def judged(sure: np.ndarray, true: np.ndarray) -> tuple[list[tuple[float, float]], np.ndarray]:
    """What a model that says `sure` of its first choice says, and efficiencies that are within
    5 % with the probability `true`; of the first two choices one always is."""
    first = np.where(RNG.random(len(sure)) < true, 0.99, 0.5)
    reaches = [(float(p), 0.97) for p in sure]
    return reaches, np.stack([first, np.ones(len(sure))])


def test_the_error_of_what_is_so_is_that_of_chance():
    sure = RNG.uniform(0.3, 1, 4000)
    found = calibration(*judged(sure, sure))
    assert found.error < 2 * found.chance
    assert 0.01 < found.chance < 0.03
    assert len(found.bins) == BINS
    assert sum(b.problems for b in found.bins) == found.problems == 4000
    confidence = [b.confidence for b in found.bins]
    assert confidence == sorted(confidence)


def test_the_error_is_how_far_it_is_off():
    sure = RNG.uniform(0.7, 1, 4000)
    found = calibration(*judged(sure, sure - 0.2))
    assert found.error == pytest.approx(0.2, abs=0.02)


def test_the_surest_are_those_it_says_and_need_fewer_tries():
    sure = np.where(np.arange(1000) < 800, 0.99, 0.2)
    found = calibration(*judged(sure, sure > 0.5))
    assert found.surest[0.8].problems == 800
    assert found.surest[0.8].geomean == pytest.approx(0.99)
    assert found.surest[0.9].geomean < 0.99
    for asked in (0.9, 0.95):
        assert found.adaptive[asked].timed == pytest.approx(1.2)
        assert found.adaptive[asked].reached == 1
    some = calibration([(0.5, 0.6)], np.array([[0.5], [0.9]]))
    assert some.adaptive[0.9].timed == 2  # never sure enough: as many as it can judge
    assert some.adaptive[0.9].reached == 0


def test_noise_is_between_timings_of_the_same(table, problem):
    a, b = Candidate("aten::mm"), Candidate("triton::mm")
    made = table(
        (problem, a, 10.0), (problem, b, 10.0), (problem, a, 12.0),
        (replace(problem, M=8), a, 90.0), (problem, b, Failure.CRASH),
    )  # fmt: skip
    found = noise(made)
    assert (found.repeats, found.spread) == (1, None)
    assert found.median == pytest.approx(0.2)
    known = replace(made, spread_us=np.array([1.0, 2.0, 1.2, np.nan, np.nan]))
    assert noise(known).spread == pytest.approx(0.1)
    once = noise(made.take(made.problem == 1))
    assert (once.repeats, once.median, once.p90) == (0, None, None)
