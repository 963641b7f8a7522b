"""The timings of a batch as one array of records. It is sent between processes as a block of bytes,
and becomes a table without an object for each timing."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import COLUMNS, FAILURES, TimingTable
from diode_engine.core.timing import KERNEL_FACTS, Failure, Timing

# `place` is the candidate's index in its batch; the other fields are as in a TimingTable, with -1
# in `kernel` where the kernel is not known.
TIMED = np.dtype(
    [
        ("place", np.int32),
        ("min_us", np.float64),
        ("median_us", np.float64),
        ("spread_us", np.float64),
        ("repeats", np.int32),
        ("failure", np.uint8),
        ("kernel", np.int32, (len(KERNEL_FACTS),)),
    ]
)
TimedRows = npt.NDArray[np.void]  # [n] of TIMED
_CODES: dict[Failure | None, int] = {failure: code for code, failure in enumerate(FAILURES, 1)}
_CODES[None] = 0
_UNKNOWN = (-1,) * len(KERNEL_FACTS)


def timed_rows(timings: Iterable[tuple[int, Timing]]) -> TimedRows:
    """The rows of these (place, timing)s."""
    nan = float("nan")
    rows = [
        (
            place,
            nan if t.min_us is None else t.min_us,
            nan if t.median_us is None else t.median_us,
            nan if t.spread_us is None else t.spread_us,
            t.repeats or 0,
            _CODES[t.failure],
            _UNKNOWN if t.kernel is None else t.kernel,
        )
        for place, t in timings
    ]
    return np.array(rows, TIMED)


def as_table(
    problem: Problem,
    candidates: tuple[Candidate, ...],
    environment: Environment,
    rows: TimedRows,
) -> TimingTable:
    """The timings of these candidates on the problem. Raises RecordError where a row cannot be a
    timing."""
    columns = {name: rows[name].copy() for name in COLUMNS[3:]}
    known = (rows["kernel"] >= 0).any()
    none = np.zeros(len(rows), np.int32)
    return TimingTable(
        (problem,), candidates, (environment,),
        problem=none, candidate=rows["place"].copy(), environment=none, **columns,
        kernel=rows["kernel"].copy() if known else None,
    )  # fmt: skip
