"""What is taken of the kernels that a model has predicted."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from diode_engine.choosing.choice import Why
from diode_engine.choosing.chooser import Chooser
from diode_engine.choosing.evidence import kernel_kinds
from diode_engine.choosing.policy import MARGIN, Comparison, Policy
from diode_engine.choosing.prediction import Prediction
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, KNOWN
from diode_engine.core.problem import Problem
from diode_engine.core.resources import spills_erratically
from diode_engine.problems.predicted_choice import choose_offered
from diode_engine.problems.spaces import exhaustive_space
from diode_engine.registry import load_predictor
from tests.samples import tile

FIRST_LAYER = Problem.make("mm", 6144, 512, 13, "float32", b_layout="col")
LIBRARY = Candidate.make("aten::mm")
ONE = Policy()
GPUS = (H200, KNOWN["NVIDIA H100 80GB HBM3"])


def compare(
    costs: list[list[float]], *, unproven: tuple[int, ...] = (), keep: int = 1
) -> Comparison:
    """The library's kernel is the first."""
    n = len(costs[0])
    return Comparison(
        problems=(FIRST_LAYER,) * len(costs),
        candidates=[LIBRARY] + [tile(64, 64, 32, 1, 4)] * (n - 1),
        predicted_us=np.array(costs),
        saved_us=(0.0,) * len(costs),
        library=np.arange(n) == 0,
        proven=~np.isin(np.arange(n), unproven),
        margin=1.1,
        keep=keep,
        threshold=1.5,
        confidence=None,
    )


def choose(prediction: Prediction, policy: Policy = ONE) -> tuple[int, Why]:
    (place,), why = policy.compare(prediction).choose()
    return place, why


@pytest.mark.parametrize("hardware", GPUS, ids=lambda hardware: hardware.name)
def test_batches_of_tiny_matrices_that_were_not_timed_get_the_librarys_kernel(hardware):
    """Triton's kernel took 1.25 times as long as the library's (benchmarks/results/
    fresh-products-*), and was predicted to be 1.14 to 1.2 times as fast. The nearest timings are of
    half precision and TF32."""
    problem = Problem.make("bmm", 8, 30, 6, "float32", B=2151, b_layout="col")
    model = load_predictor(hardware)
    prediction = model.predict(problem, exhaustive_space(problem, "2.11.0"))
    assert not prediction.candidates[prediction.order[0]].is_extern
    assert choose(prediction)[1] is Why.LIBRARY


def test_a_first_layer_is_not_computed_by_a_kernel_that_may_spill():
    """Of `gemm@6`'s first choice, 64x64x16 with two warps, 178 us were measured (with a bias) and
    15 predicted; the library's kernel took 13."""
    candidates = exhaustive_space(FIRST_LAYER, "2.13.0")
    prediction = load_predictor(H200).predict(FIRST_LAYER, candidates)
    erratic = spills_erratically(FIRST_LAYER, candidates)
    assert erratic[prediction.order[0]]
    assert not erratic[choose(prediction)[0]]


@pytest.mark.parametrize(
    ("n", "bias", "library"),
    [(1, "scalar", True), (8, "scalar", True), (8, "column", True), (8, "vector", False)],
)
def test_no_kernel_of_tritons_is_taken_with_a_bias_that_none_was_timed_with(n, bias, library):
    problem = Problem.make("addmm", 4096, n, 390, "bfloat16", b_layout="col", bias=bias)
    candidates = exhaustive_space(problem, "2.13.0")
    model = load_predictor(H200)
    scalar = Problem.make("addmm", 4096, n, 390, "bfloat16", b_layout="col", bias="scalar")
    untimed = np.isin(model.evidence.kinds, kernel_kinds(scalar, candidates))
    timings = np.where(untimed, 0, model.evidence.timings)
    model.evidence = replace(model.evidence, timings=timings)
    prediction = model.predict(problem, candidates)
    assert not candidates[prediction.order[0]].is_extern
    index, why = choose(prediction)
    assert candidates[index].is_extern is library
    assert (why is Why.UNPROVEN) is library


@pytest.mark.parametrize(
    ("error", "likeness", "margin"),
    [
        (None, 1.0, 1.15),
        (0.0, 1.0, 1.05),
        (2 * math.log(1.1), 1.0, 1.155),
        (0.0, 0.5, 1.05**2),
        (None, 0.5, 1.15**2),
        (0.0, 0.0, 1.05**100),  # a model of another generation of GPUs
    ],
)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_margin_is_larger_where_gains_were_predicted_wrong_and_where_a_model_is_borrowed(
    error, likeness, margin, dtype
):
    problem = Problem.make("mm", 2048, 2048, 2048, dtype)
    for factor, kept in ((0.999, (0, Why.LIBRARY)), (1.001, (1, Why.FASTEST))):
        candidates = [LIBRARY, tile(64, 64, 32, 1, 4)]
        times = np.array([10 * margin * factor, 10.0])
        prediction = Prediction(problem, candidates, times, (0.9,), error)
        assert choose(prediction, Policy(likeness)) == kept
        # or where such problems were learned on another GPU only
        assert choose(replace(prediction, likeness=likeness)) == kept


def test_with_a_dynamic_size_the_margin_is_not_smaller_than_without_evidence():
    problem = Problem.make("mm", 2048, 2048, 2048, "bfloat16")
    prediction = Prediction(problem, [LIBRARY], np.array([10.0]), (0.9,), 0.0)
    sizes = (problem, replace(problem, M=64))
    assert ONE.compare(prediction).margin == pytest.approx(1.05)
    assert ONE.compare(prediction, problems=sizes).margin == MARGIN
    wrong = replace(prediction, error=1.0)
    assert ONE.compare(wrong, problems=sizes).margin > 1.7


def test_a_kernel_of_a_kind_that_is_not_proven_is_not_taken():
    problem = Problem.make("mm", 2048, 2048, 2048, "bfloat16")
    candidates = [LIBRARY, tile(64, 64, 32, 1, 4), tile(128, 64, 32, 1, 4)]
    times, proven = np.array([20.0, 10.0, 11.0]), np.array([True, False, True])
    prediction = Prediction(problem, candidates, times, (0.9,), 0.0, proven)
    assert choose(prediction) == (2, Why.FASTEST)
    none = replace(prediction, proven=np.array([True, False, False]))
    assert choose(none) == (0, Why.UNPROVEN)


def test_a_kernel_that_may_spill_is_not_taken_whatever_the_evidence_says():
    spilling = tile(128, 128, 16, 1, 4)
    candidates = [LIBRARY, spilling, tile(32, 32, 16, 1, 4)]
    assert spills_erratically(FIRST_LAYER, candidates).tolist() == [False, True, False]
    times = np.array([20.0, 10.0, 11.0])
    prediction = Prediction(FIRST_LAYER, candidates, times, (0.9,), 0.0, np.ones(3, np.bool_))
    assert choose(prediction) == (2, Why.FASTEST)


@pytest.mark.parametrize(
    ("K", "candidate", "erratic"),
    [
        (13, tile(64, 64, 16, 1, 2), True),
        (16, tile(64, 64, 16, 1, 2), True),
        (17, tile(64, 64, 16, 1, 2), False),  # two passes, few multiplications
        (13, tile(64, 64, 16, 1, 4), True),  # half as many for a thread
        (13, tile(64, 32, 16, 1, 4), False),  # a quarter
        (17, tile(256, 64, 16, 1, 2), True),  # two passes, many
        (33, tile(256, 64, 16, 1, 2), False),
        (13, LIBRARY, False),
    ],
)
def test_which_kernels_spill_erratically(K, candidate, erratic):
    def of(dtype: str, **more: bool) -> bool:
        return bool(spills_erratically(Problem.make("mm", 64, 64, K, dtype, **more), [candidate]))

    assert of("float32") is erratic
    assert not of("float32", allow_tf32=True)
    assert not of("bfloat16")


@pytest.mark.parametrize("sizes", [(16909, 3564, 32768), (4096, 1500, 2000)])
def test_the_librarys_kernel_is_not_taken_where_rows_are_too_short_for_it(sizes):
    """An H100 takes 15.5 ms for the first by the library's kernel, 5.7 by one of Triton's."""
    problem = Problem.make("mm", *sizes, "float16", b_layout="col")
    _, choice = choose_offered(problem, Chooser(load_predictor(H200), H200), "2.11.0")
    assert not choice.candidates[0].is_extern


@pytest.mark.parametrize(
    ("costs", "given", "kept", "why"),
    [
        ([10, 9.2], {}, 0, Why.LIBRARY),
        ([10, 9], {}, 1, Why.FASTEST),
        ([10, 5], {"unproven": (1,)}, 0, Why.UNPROVEN),
        ([10, 5, 6], {"unproven": (1,)}, 2, Why.FASTEST),
        ([np.nan, 5, 6], {"unproven": (1,)}, 2, Why.FASTEST),
        ([np.nan, 5], {"unproven": (1,)}, 1, Why.FASTEST),
        ([9, 10], {"unproven": (1,)}, 0, Why.FASTEST),
    ],
)
def test_one_kernel_alone_has_to_be_worth_its_risk(costs, given, kept, why):
    assert compare([costs], **given).choose() == ([kept], why)


def test_of_several_problems_the_best_that_is_nowhere_slower_is_taken():
    assert compare([[10.0, 2.0, 7.0], [10.0, 11.0, 9.0]]).choose() == ([2], Why.FASTEST)
    assert compare([[10.0, 2.0], [10.0, 11.0]]).choose() == ([0], Why.SIZES)


def test_several_come_with_the_librarys_and_need_not_be_proven():
    kept = compare([[10.0, 5.0, 6.0, 7.0]], unproven=(1,), keep=2).choose()
    assert kept == ([1, 2, 0], Why.SEVERAL)
