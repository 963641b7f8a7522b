"""The candidates that choosers choose from: those that were measured, each once.

A *case* is one problem in one environment, since times of two environments cannot be compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import NOT_TIMED, TimingTable, medians
from diode_engine.errors import TrainingError


@dataclass(frozen=True, eq=False)
class CandidatePool:
    """n candidates of c cases, those of a case together.

    `table` has one row for each candidate: its time (the median, where a pair was timed several
    times) as min_us, NaN where it failed. Case i has the rows from `starts[i]` to
    `starts[i + 1]`.
    """

    table: TimingTable
    starts: npt.NDArray[np.intp]
    left_out: int  # cases with fewer than two times, where there is nothing to choose

    @classmethod
    def make(cls, table: TimingTable) -> CandidatePool:
        """The pool of a table: timings of equal pairs become one; a pair failed where it always
        did. Rows that were never timed are left out. Raises TrainingError where no case is left."""
        asked = table.take(table.failure != NOT_TIMED)
        rows, median, _ = medians(asked.time_us, asked.problem, asked.environment, asked.candidate)
        table = asked.take(rows)
        of_case = table.problem.astype(np.int64) * len(table.environments) + table.environment
        _, case, lengths = np.unique(of_case, return_inverse=True, return_counts=True)
        enough = np.bincount(case, ~np.isnan(median), len(lengths)) >= 2
        if not enough.any():
            raise TrainingError(
                "There is no problem with two timed candidates or more, so nothing to choose; "
                "collect or import timings."
            )
        table, median = table.take(enough[case]), median[enough[case]]
        n = len(table)
        return cls(
            replace(
                table,
                min_us=median,
                median_us=np.full(n, np.nan),
                spread_us=np.full(n, np.nan),
                repeats=np.zeros(n, np.int32),
                failure=np.where(np.isnan(median), table.failure, 0).astype(np.uint8),
                kernel=None,
            ),
            np.append(0, np.cumsum(lengths[enough])),
            int(np.count_nonzero(~enough)),
        )

    def __len__(self) -> int:
        return len(self.table)

    @property
    def time_us(self) -> npt.NDArray[np.float64]:
        """[n] microseconds; NaN where it failed."""
        return self.table.min_us

    def cases(self) -> list[tuple[Problem, Environment, slice]]:
        """[c] each case's problem, environment and rows."""
        table = self.table
        return [
            (
                table.problems[table.problem[start]],
                table.environments[table.environment[start]],
                slice(start, end),
            )
            for start, end in pairwise(self.starts.tolist())
        ]
