"""Choices compared problem by problem."""

from __future__ import annotations

import numpy as np
import pytest

from diode_engine.core.problem import Problem
from diode_engine.validation import paired


def test_a_mean_difference_counts_beyond_its_chance() -> None:
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
def test_only_problems_on_which_two_differ_count(alone: int, other: int, chance: bool) -> None:
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
def test_kinds(problem: Problem, kinds: tuple[str, ...]) -> None:
    assert paired.get_kinds(problem) == kinds
