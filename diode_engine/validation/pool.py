"""The candidates that choosers choose from: those that were measured, each once.

A *case* is one problem in one environment, since times of two environments cannot be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import NOT_TIMED, TimingTable
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
        asked = np.flatnonzero(table.failure != NOT_TIMED)
        order = asked[
            np.lexsort(
                tuple(
                    column[asked]
                    for column in (table.time_us, table.candidate, table.environment, table.problem)
                )
            )
        ]
        first = _changes(table.problem[order], table.environment[order], table.candidate[order])
        # Within a pair times ascend and NaN comes last.
        time = table.time_us[order]
        timed = np.add.reduceat(~np.isnan(time), first, dtype=np.intp) if len(order) else first
        low, high = first + np.maximum(timed - 1, 0) // 2, first + timed // 2
        median = (time[low] + time[high]) / 2  # NaN where none was timed
        rows = order[first]

        starts = _changes(table.problem[rows], table.environment[rows])
        ends = np.append(starts[1:], len(rows))
        if len(starts):
            enough = np.add.reduceat(~np.isnan(median), starts, dtype=np.intp) >= 2
        else:
            enough = np.zeros(0, np.bool_)
        if not enough.any():
            raise TrainingError(
                "There is no problem with two timed candidates or more, so nothing to choose; "
                "collect or import timings."
            )
        kept = np.repeat(enough, ends - starts)
        rows, median = rows[kept], median[kept]
        lengths = (ends - starts)[enough]
        failed = np.isnan(median)
        n = len(rows)
        return cls(
            TimingTable(
                table.problems,
                table.candidates,
                table.environments,
                problem=table.problem[rows],
                candidate=table.candidate[rows],
                environment=table.environment[rows],
                min_us=median,
                median_us=np.full(n, np.nan),
                spread_us=np.full(n, np.nan),
                repeats=np.zeros(n, np.int32),
                failure=np.where(failed, table.failure[rows], 0).astype(np.uint8),
            ),
            np.append(np.zeros(1, np.intp), np.cumsum(lengths)),
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


def _changes(*columns: npt.NDArray[np.int32]) -> npt.NDArray[np.intp]:
    """Where a run of equal rows begins."""
    n = len(columns[0])
    begins = np.zeros(n, np.bool_)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(begins)
