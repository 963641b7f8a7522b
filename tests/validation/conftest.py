from __future__ import annotations

from collections.abc import Callable

import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Failure, Timing
from diode_engine.validation.pool import CandidatePool

HERE = Environment(H200, "570.1", "2.13.0", "3.7.1")
ChooserRow = tuple[Problem, Candidate, float | Failure]


@pytest.fixture
def table() -> Callable[..., TimingTable]:
    """A table of (problem, candidate, microseconds or failure)."""

    def make(*rows: ChooserRow, environment: Environment = HERE) -> TimingTable:
        return TimingTable.from_records(
            (
                problem,
                candidate,
                environment,
                Timing(failure=time) if isinstance(time, Failure) else Timing(min_us=time),
            )
            for problem, candidate, time in rows
        )

    return make


@pytest.fixture
def pool(table: Callable[..., TimingTable]) -> Callable[..., CandidatePool]:
    """A pool of the rows that `table` takes."""
    return lambda *rows, **more: CandidatePool.make(table(*rows, **more))


@pytest.fixture
def problem() -> Problem:
    return Problem.make("mm", 1024, 1024, 1024, "bfloat16")
