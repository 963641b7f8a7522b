"""What timings say of predictions: the errors near a problem, and the kinds of kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from diode_engine.choosing.evidence import UNKNOWN, Evidence, Misses, kernel_kinds
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.models.confidence import INPUTS, MAX_K, Confidence
from diode_engine.models.neighbours import places
from tests.samples import tile

LIBRARY = Candidate.make("aten::mm")
PROBLEM = Problem.make("mm", 512, 512, 512, "bfloat16")


CANDIDATES = [LIBRARY, tile(64, 64, 32, 3, 4), tile(128, 128, 128, 3, 4)]


def misses(*over: float, count: int = 25, problem: Problem = PROBLEM) -> Evidence:
    """The evidence of `count` equal problems, on which the kernels beside the library's took
    exp(over) times as long as predicted."""
    found = Misses()
    predicted = np.zeros(1 + len(over))
    kinds = kernel_kinds(problem, CANDIDATES[: 1 + len(over)])
    for place in range(count):
        measured = np.array([0.0, *over])
        found.add(place, predicted, measured, np.arange(1 + len(over)) == 0, kinds)
    return found.evidence(count + 1)


def test_the_error_of_a_problem_is_how_far_a_gain_was_overestimated():
    assert misses(0.2, -0.1).errors[:25].tolist() == pytest.approx([0.2] * 25)
    assert misses(-0.2, -0.1).errors[:25].tolist() == [0.0] * 25
    assert misses(0.2).errors[25] == UNKNOWN


def test_errors_count_beside_the_librarys_kernel():
    """All kernels of a problem that is slower than predicted are slower: no gain was wrong."""
    found = Misses()
    found.add(0, np.zeros(2), np.full(2, 0.7), np.array([True, False]), np.zeros(2, np.float32))
    assert found.evidence(1).errors.tolist() == [0.0]
    assert found.evidence(1).misses.tolist() == [0.0]


def test_a_kind_that_was_missed_or_hardly_timed_is_not_proven():
    assert misses(0.1, 0.1).proven(PROBLEM, CANDIDATES).all()
    missed = misses(0.1, math.log(1.6)).proven(PROBLEM, CANDIDATES)
    assert missed.tolist() == [True, True, False]
    assert misses(0.1, 0.1, count=19).proven(PROBLEM, CANDIDATES).tolist() == [True, False, False]
    nothing = Evidence(*(np.zeros(0, np.float32),) * 4)
    assert nothing.proven(PROBLEM, CANDIDATES).tolist() == [True, False, False]


def test_a_bias_that_no_kernel_was_timed_with_is_not_proven():
    with_bias = Problem.make("addmm", 512, 512, 512, "bfloat16", bias="vector")
    evidence = misses(0.1, 0.1, problem=with_bias)
    assert evidence.proven(with_bias, CANDIDATES).all()
    scalar = Problem.make("addmm", 512, 512, 512, "bfloat16", bias="scalar")
    assert evidence.proven(scalar, CANDIDATES).tolist() == [True, False, False]


def kind(candidate: Candidate, dtype: str = "float32", K: int = 512, **more: bool) -> float:
    (found,) = kernel_kinds(Problem.make("mm", 512, 512, K, dtype, **more), [candidate])
    return float(found)


def test_what_decides_whether_registers_suffice_is_a_kind():
    small, large = tile(64, 64, 16, 3, 4), tile(64, 64, 16, 3, 2)
    assert kind(small) != kind(large)  # multiplications of a thread
    assert kind(small, K=16) != kind(small, K=32) != kind(small, K=48) == kind(small, K=480)
    assert kind(small) != kind(small, allow_tf32=True) != kind(small, "bfloat16")
    few, many = tile(16, 16, 16, 3, 4), tile(16, 16, 256, 3, 1)
    assert kind(few, "bfloat16") != kind(many, "bfloat16")  # loads of a thread
    assert kind(many, "bfloat16") != kind(many, "bfloat16", K=511)  # as odd strides need more


def test_near_errors_count_more_and_unknown_ones_not_at_all():
    evidence = Evidence(np.array([0.3, 0.0, UNKNOWN], np.float32), *(np.zeros(0, np.float32),) * 3)
    away = np.array([0.0, 10.0, 0.0], np.float32)
    assert 0.25 < evidence.error_near(np.arange(3), away) < 0.3  # the far one is right
    assert evidence.error_near(np.array([2]), away[2:]) == 0.0


def test_an_error_counts_more_where_the_nearest_timings_are_far():
    evidence = Evidence(np.full(2, 0.1, np.float32), *(np.zeros(0, np.float32),) * 3)
    one = np.zeros(1, np.intp)
    errors = [evidence.error_near(one, np.array([d], np.float32)) for d in (0, 2, 3, 4, 100)]
    assert errors[0] == errors[1] == pytest.approx(0.1)
    assert errors[1] < errors[2] < errors[3] < errors[4] < 1
    nothing = evidence.error_near(one[:0], np.zeros(0, np.float32))
    assert nothing == pytest.approx(errors[4] - 0.1)  # no timing is as far as it can be


@pytest.mark.parametrize(
    ("near", "far"),
    [
        ({"dtype": "bfloat16"}, {"dtype": "float32"}),
        ({"dtype": "float32", "allow_tf32": True}, {"dtype": "float32"}),
        ({"dtype": "float32", "b_layout": "row"}, {"dtype": "float32", "b_layout": "col"}),
    ],
)
def test_only_problems_of_the_same_type_and_layouts_tell_the_error(near, far):
    """For others the library calls another kernel: with tensor cores, or for other layouts."""
    evidence = Evidence(np.array([0.0, 0.3], np.float32), *(np.zeros(0, np.float32),) * 3)
    seen = places(
        [Problem.make("mm", 512, 512, 512, **near), Problem.make("mm", 600, 600, 600, **far)]
    )
    weight = np.zeros((MAX_K, len(INPUTS)), np.float32)
    confidence = Confidence(weight, np.zeros(MAX_K, np.float32), seen, evidence)
    members, library = np.zeros((2, 3)), np.array([True, False, False])
    for of, error in ((near, 0.0), (far, 0.3)):
        problem = Problem.make("mm", 512, 512, 512, **of)
        assert confidence.judge(problem, members, library)[1] == pytest.approx(error)


def test_a_confidence_keeps_its_evidence_in_its_file():
    evidence = misses(0.2, 0.1)
    seen = places([PROBLEM] * 26)
    weight = np.zeros((MAX_K, len(INPUTS)), np.float32)
    confidence = Confidence(weight, np.zeros(MAX_K, np.float32), seen, evidence)
    read = Confidence.from_bytes(confidence.to_bytes())
    members, library = np.zeros((2, 3)), np.array([True, False, False])
    assert read.judge(PROBLEM, members, library)[1] == pytest.approx(0.2, rel=1e-5)
    more = read.with_places(seen[:, :4])
    assert more.places.shape[1] == len(more.evidence.errors) == 30  # type: ignore[union-attr]
    without = Confidence(weight, np.zeros(MAX_K, np.float32), seen)
    assert Confidence.from_bytes(without.to_bytes()).judge(PROBLEM, members, library)[1] is None
