"""Which kernels a program with a dynamic M takes, and for which ranges of M."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from diode_engine.choosing.choice import Why
from diode_engine.choosing.policy import Comparison
from diode_engine.choosing.ranges import RowRange, choice_of, choose_ranges
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem

ROWS = (1, 2, 4, 8, 16, 32)
PROBLEM = Problem.make("mm", 5, 512, 512, "bfloat16")


def compare(
    times: Sequence[Sequence[float]], *, rows: Sequence[int] = ROWS, batches: Sequence[int] = ()
) -> Comparison:
    """A comparison of kernels with these times for each number of rows; the program is compiled
    with five rows."""
    problems = [replace(PROBLEM, M=m) for m in rows]
    if batches:
        batched = Problem.make("bmm", 5, 512, 512, "bfloat16", B=2)
        problems = [replace(batched, B=b, M=m) for b, m in zip(batches, rows, strict=True)]
    us = np.array(times, float).T
    kernels = [Candidate.make("triton::mm", BLOCK_M=16 << n) for n in range(len(times))]
    return Comparison(
        problems=(PROBLEM, *problems), candidates=kernels,
        predicted_us=np.vstack([us[:1], us]), saved_us=(0.0,) * (1 + len(rows)),
        library=np.zeros(len(times), np.bool_), proven=np.ones(len(times), np.bool_),
        margin=1.15, keep=1, threshold=1.0, confidence=None,
    )  # fmt: skip


def test_each_range_gets_its_fastest_kernel():
    few, many = [1, 1, 1, 1, 8, 8], [4, 4, 4, 4, 1, 1]
    assert choose_ranges(compare([many, few])) == (RowRange(1, 8), RowRange(0))
    swapped = compare([few[::-1], many[::-1]], rows=ROWS[::-1])
    assert choose_ranges(swapped) == (RowRange(0, 8), RowRange(1))


def test_a_range_is_judged_by_all_its_rows():
    """The kernel that is fastest for one row only would be slow for the others of its range."""
    once, steady = [1, 9, 9, 9, 9, 9], [1.1, 1, 1, 1, 1, 1]
    assert choose_ranges(compare([once, steady])) == (RowRange(1),)


@pytest.mark.parametrize(("gain", "kernels"), [(1.01, 1), (1.03, 2)])
def test_more_kernels_must_gain_two_percent(gain, kernels):
    one, other = [1.0] * 6, [*[9.0] * 3, *[1 / gain**2] * 3]  # for half of the rows
    assert len(choose_ranges(compare([one, other]))) == kernels


def test_there_are_four_kernels_at_most():
    diagonal = 9.0 - 8.0 * np.eye(6)
    found = choose_ranges(compare(diagonal.tolist()))
    limits = [each.most_rows or math.inf for each in found]
    assert limits == sorted(set(limits))
    assert (len(found), limits[-1]) == (4, math.inf)
    assert len(choose_ranges(compare(diagonal.tolist()), most=1)) == 1


def test_kernels_that_are_known_for_some_rows_only():
    low, high = [1, 1, 1, math.nan, math.nan, math.nan], [math.nan] * 3 + [5, 5, 5]
    assert choose_ranges(compare([low, high])) == (RowRange(0, 4), RowRange(1))
    assert choose_ranges(compare([low])) == ()
    proven = np.array([True, False])
    both = compare([[3.0] * 6, [1.0] * 6])
    assert choose_ranges(replace(both, proven=proven)) == (RowRange(0),)


def test_one_kernel_where_more_than_the_rows_differs():
    few, many = [1, 1, 1, 1, 8, 8], [4, 4, 4, 4, 1, 1]
    assert len(choose_ranges(compare([few, many], batches=[2] * 6))) == 2
    assert len(choose_ranges(compare([few, many], batches=[2, 3] * 3))) == 1
    assert len(choose_ranges(compare([few, many], rows=[4] * 6))) == 1


def test_the_choice_has_the_kernel_for_the_rows_that_are_compiled():
    comparison = compare([[1, 1, 1, 1, 8, 8], [4, 4, 4, 4, 1, 1]])
    low, high = comparison.candidates
    for most, own in ((8, low), (4, high)):
        choice = choice_of(comparison, (RowRange(0, most), RowRange(1)))
        assert choice.candidates == (own,)
        assert choice.by_rows == ((most, low), (None, high))
        assert choice.why is Why.INVARIANT
    assert choice_of(comparison, (RowRange(1),)).by_rows == ()
