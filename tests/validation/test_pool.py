from dataclasses import replace

import numpy as np
import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Failure, Timing
from diode_engine.errors import TrainingError
from diode_engine.validation.pool import CandidatePool

A, B, C = (Candidate.make("triton::mm", BLOCK_M=m) for m in (16, 32, 64))


def test_repeated_timings_are_one_by_their_median(table, problem):
    other = replace(problem, M=7)
    made = table(
        (other, A, 9.0),
        (problem, B, 8.0),
        (problem, A, 7.0),
        (problem, A, 1.0),
        (problem, B, 10.0),
        (problem, A, 3.0),
        (problem, C, Failure.CRASH),
        (problem, C, Failure.CRASH),
        (other, B, 5.0),
        (other, B, Failure.TIMEOUT),
    )
    pool = CandidatePool.make(made)
    assert len(pool) == 5
    found = {}
    for row in range(5):
        key = (
            made.problems[pool.table.problem[row]].M,
            made.candidates[pool.table.candidate[row]],
        )
        found[key] = pool.time_us[row]
    assert found.pop((1024, C)) != found.get((1024, C))  # NaN: it always failed
    assert found == {(7, A): 9.0, (7, B): 5.0, (1024, A): 3.0, (1024, B): 9.0}
    assert [rows for _, _, rows in pool.cases()] == [slice(0, 2), slice(2, 5)]


def test_a_case_is_a_problem_in_one_environment(problem):
    new = Environment(H200, "", "2.15.0", "3.9.0")
    old = Environment(H200, "", "2.11.0", "3.6.0")
    made = TimingTable.from_records(
        (problem, candidate, environment, Timing(min_us=us))
        for environment, times in ((new, (1.0, 2.0)), (old, (40.0, 20.0)))
        for candidate, us in zip((A, B), times, strict=True)
    )
    cases = CandidatePool.make(made).cases()
    assert {environment for _, environment, _ in cases} == {new, old}


def test_what_leaves_no_choice_is_left_out(table, problem):
    alone = replace(problem, M=8)
    pool = CandidatePool.make(
        table(
            (problem, A, 1.0),
            (problem, B, 2.0),
            (alone, A, 1.0),
            (alone, B, Failure.OUT_OF_RESOURCES),
            (problem, C, Failure.NOT_TIMED),
        )
    )
    assert (len(pool), pool.left_out) == (2, 1)
    with pytest.raises(TrainingError, match="nothing to choose"):
        CandidatePool.make(table((alone, A, 1.0), (alone, A, 2.0)))
    with pytest.raises(TrainingError, match="nothing to choose"):
        CandidatePool.make(table((problem, A, 1.0)).take(np.zeros(1, np.bool_)))
