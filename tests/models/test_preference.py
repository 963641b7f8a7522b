"""What is taken of the kernels that a model has predicted."""

from __future__ import annotations

import numpy as np
import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.core.resources import spills_erratically
from diode_engine.models.preference import MARGIN, Policy, Why, chosen, taken
from diode_engine.models.ranking import Ranking
from diode_engine.problems.exhaustive_space import exhaustive_space
from diode_engine.registry import load_predictor

FIRST_LAYER = Problem.make("mm", 6144, 512, 13, "float32", b_layout="col")
LIBRARY = Candidate.make("aten::mm")


def tile(m: int, n: int, k: int, warps: int) -> Candidate:
    return Candidate.make(
        "triton::mm", BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, num_stages=1, num_warps=warps, GROUP_M=8
    )


def policy(n: int, *, margin: float = 1.1, sure: bool = True, unpredictable: int = -1) -> Policy:
    """The library's kernel is the first."""
    places = np.arange(n)
    return Policy(places == 0, places != unpredictable, margin, sure)


def test_a_first_layer_is_not_computed_by_a_kernel_that_may_spill() -> None:
    """Of `gemm@6`'s first choice, 64x64x16 with two warps, 178 us were measured (with a bias) and
    15 predicted; the library's kernel took 13."""
    candidates = exhaustive_space(FIRST_LAYER, "2.13.0")
    ranking = load_predictor(H200).rank(FIRST_LAYER, candidates)
    erratic = spills_erratically(FIRST_LAYER, candidates)
    assert erratic[ranking.order[0]]
    assert not erratic[taken(FIRST_LAYER, candidates, ranking)[0]]


@pytest.mark.parametrize(
    ("n", "bias", "library"),
    [(1, "scalar", True), (8, "scalar", True), (8, "column", True), (8, "vector", False)],
)
def test_no_kernel_of_tritons_is_taken_with_a_bias_that_none_was_timed_with(
    n: int, bias: str, library: bool
) -> None:
    problem = Problem.make("addmm", 4096, n, 400, "bfloat16", b_layout="col", bias=bias)
    candidates = exhaustive_space(problem, "2.13.0")
    ranking = load_predictor(H200).rank(problem, candidates)
    assert not candidates[ranking.order[0]].is_extern
    index, why = taken(problem, candidates, ranking)
    assert candidates[index].is_extern is library
    assert (why is Why.UNSURE) is library


@pytest.mark.parametrize(
    ("confidence", "library_us", "library"),
    [
        (None, 11.45, True),
        (None, 11.55, False),
        (0.69, 11.45, True),
        (0.69, 11.55, False),
        (0.7, 10.45, True),
        (0.7, 10.55, False),
    ],
)
def test_the_surer_the_model_is_the_smaller_is_the_margin(
    confidence: float | None, library_us: float, library: bool
) -> None:
    problem = Problem.make("mm", 2048, 2048, 2048, "bfloat16")
    ranking = Ranking(
        np.array([1, 0]),
        np.array([library_us, 10.0]),
        None if confidence is None else (confidence,),
    )
    index, why = taken(problem, [LIBRARY, tile(64, 64, 16, 4)], ranking)
    assert (index, why) == ((0, Why.LIBRARY) if library else (1, Why.FASTEST))


@pytest.mark.parametrize("tf32", [True, False])
@pytest.mark.parametrize(
    ("members", "library_us", "library"),
    [
        # (the library's kernel, the other): each member's time divided by the model's
        (None, 11.45, True),
        (None, 11.55, False),
        ([(1.0, 1.0), (1.0, 1.0)], 10.45, True),
        ([(1.0, 1.0), (1.0, 1.0)], 10.55, False),
        ([(0.95, 0.95), (1.05, 1.05)], 10.55, False),
        ([(1.0, 1.05), (1.0, 0.95)], 10.95, True),
        ([(1.0, 1.05), (1.0, 0.95)], 11.05, False),
        ([(0.95, 1.0), (1.05, 1.0)], 10.95, True),
        ([(1.0, 1.0), (np.nan, 1.0)], 11.55, True),  # of that member nothing is known
    ],
)
def test_in_float32_each_member_must_predict_a_gain_too(
    members: list[tuple[float, float]] | None, library_us: float, library: bool, tf32: bool
) -> None:
    problem = Problem.make("mm", 2048, 2048, 2048, "float32", allow_tf32=tf32)
    ranking = Ranking(
        np.array([1, 0]), np.array([library_us, 10.0]), (0.9,),
        None if members is None else np.array(members),
    )  # fmt: skip
    index, why = taken(problem, [LIBRARY, tile(64, 64, 16, 4)], ranking)
    assert (index, why) == ((0, Why.LIBRARY) if library else (1, Why.FASTEST))


def test_members_do_not_replace_the_margin_of_the_whole() -> None:
    problem = Problem.make("mm", 2048, 2048, 2048, "float32")
    ranking = Ranking(np.array([1, 0]), np.array([11.4, 10.0]), (0.6,), np.ones((2, 2)))
    assert taken(problem, [LIBRARY, tile(64, 64, 16, 4)], ranking)[1] is Why.LIBRARY


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_with_a_dynamic_size_the_margin_is_not_smaller(dtype: str) -> None:
    problem = Problem.make("mm", 2048, 2048, 2048, dtype)
    fixed = Policy.of(problem, [LIBRARY], 0.9, np.ones((2, 1)))
    dynamic = Policy.of(problem, [LIBRARY], 0.9, np.ones((2, 1)), dynamic=True)
    assert (dynamic.margin, dynamic.members) == (MARGIN, None)
    assert fixed.margin < dynamic.margin


def test_members_that_differ_do_not_count_in_half_precision() -> None:
    problem = Problem.make("mm", 2048, 2048, 2048, "bfloat16")
    members = np.array([[1.0, 1.2], [1.0, 1 / 1.2]])
    ranking = Ranking(np.array([1, 0]), np.array([11.6, 10.0]), None, members)
    assert taken(problem, [LIBRARY, tile(64, 64, 16, 4)], ranking)[0] == 1


def test_of_several_that_all_members_expect_to_be_fast_the_best_is_taken() -> None:
    members = np.array([[1.0, 1.3, 1.0, 1.0], [1.0, 1 / 1.3, 1.0, 1.0]])
    costs = np.array([[13.0, 10.0, 11.0, 10.5]])
    judged = Policy(np.arange(4) == 0, np.ones(4, bool), 1.1, True, members, 1.1)
    assert chosen(costs, judged) == ([3], Why.FASTEST)


@pytest.mark.parametrize(
    ("confidence", "sure"), [(None, True), (0.3, True), (0.29, False), (float("nan"), False)]
)
def test_a_confidence_under_the_least_or_that_is_no_number_is_unsure(
    confidence: float | None, sure: bool
) -> None:
    problem = Problem.make("mm", 512, 512, 512, "bfloat16")
    assert Policy.of(problem, [LIBRARY], confidence).sure is sure


@pytest.mark.parametrize(
    ("K", "candidate", "erratic"),
    [
        (13, tile(64, 64, 16, 2), True),
        (16, tile(64, 64, 16, 2), True),
        (17, tile(64, 64, 16, 2), False),  # two passes, few multiplications
        (13, tile(64, 64, 16, 4), False),  # half as many for a thread
        (17, tile(256, 64, 16, 2), True),  # two passes, many
        (33, tile(256, 64, 16, 2), False),
        (13, LIBRARY, False),
    ],
)
def test_which_kernels_spill_erratically(K: int, candidate: Candidate, erratic: bool) -> None:
    def of(dtype: str, **more: bool) -> bool:
        return bool(spills_erratically(Problem.make("mm", 64, 64, K, dtype, **more), [candidate]))

    assert of("float32") is erratic
    assert not of("float32", allow_tf32=True)
    assert not of("bfloat16")


@pytest.mark.parametrize(
    ("costs", "given", "kept", "why"),
    [
        ([10, 9.2], {}, 0, Why.LIBRARY),
        ([10, 9], {}, 1, Why.FASTEST),
        ([10, 9], {"sure": False}, 0, Why.UNSURE),
        ([10, 5], {"unpredictable": 1}, 0, Why.UNPREDICTABLE),
        ([10, 5, 6], {"unpredictable": 1}, 2, Why.FASTEST),
        ([np.nan, 5, 6], {"unpredictable": 1}, 2, Why.FASTEST),
        ([np.nan, 5], {"unpredictable": 1}, 1, Why.FASTEST),
        ([9, 10], {"sure": False}, 0, Why.FASTEST),
    ],
)
def test_one_kernel_alone_has_to_be_worth_its_risk(
    costs: list[float], given: dict[str, bool], kept: int, why: Why
) -> None:
    assert chosen(np.array([costs]), policy(len(costs), **given)) == ([kept], why)


def test_of_several_problems_the_best_that_is_nowhere_slower_is_taken() -> None:
    costs = np.array([[10.0, 2.0, 7.0], [10.0, 11.0, 9.0]])
    assert chosen(costs, policy(3)) == ([2], Why.FASTEST)
    assert chosen(costs[:, :2], policy(2)) == ([0], Why.SIZES)


def test_several_come_with_the_librarys_and_may_be_unpredictable() -> None:
    costs = np.array([[10.0, 5.0, 6.0, 7.0]])
    kept = chosen(costs, policy(4, unpredictable=1), keep=2, threshold=1.5)
    assert kept == ([1, 2, 0], Why.SEVERAL)
