"""The rows of features: 31 columns of a problem, 13 of a candidate, and 39 of both on a device."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import encode
from diode_engine.core.hardware import Hardware
from diode_engine.core.operand import DType
from diode_engine.core.problem import Problem
from diode_engine.features import cross
from diode_engine.features.candidate import NAMES as CANDIDATE_NAMES
from diode_engine.features.candidate import of_candidates
from diode_engine.features.problem import FACT_COUNT, describe
from diode_engine.features.problem import NAMES as PROBLEM_NAMES

VERSION = 2
NAMES = PROBLEM_NAMES + CANDIDATE_NAMES + cross.NAMES
NAMES_HASH = hashlib.sha256("\n".join(NAMES).encode()).hexdigest()[:16]
BASE = NAMES.index("log2_base_us")  # the binary logarithm of the base time in microseconds
PROBLEM_COLUMN_COUNT = len(PROBLEM_NAMES)  # of the problem alone; they come first
_FIRST_CROSS = PROBLEM_COLUMN_COUNT + len(CANDIDATE_NAMES)

# Element types whose kernels the columns can tell apart.
DTYPES = (
    DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32,
    DType.FLOAT8_E4M3FN, DType.FLOAT8_E5M2, DType.INT8,
)  # fmt: skip
_BLOCK = 1 << 14  # rows computed at once: the vectors of a block fit in L2


def supported(
    problems: Sequence[Problem],
    candidates: Sequence[Candidate],
    problem_index: npt.NDArray[np.integer],
    candidate_index: npt.NDArray[np.integer],
) -> npt.NDArray[np.bool_]:
    """[n] whether `matrix` makes a row with a meaning for candidates[candidate_index[i]] on
    problems[problem_index[i]]: the candidate is known (see encoding) and the type is one of
    DTYPES."""
    typed = np.array([problem.dtype in DTYPES for problem in problems], bool)
    ok: npt.NDArray[np.bool_] = typed[problem_index] & encode(candidates).known[candidate_index]
    return ok


def matrix(
    problems: Sequence[Problem],
    candidates: Sequence[Candidate],
    problem_index: npt.NDArray[np.integer],
    candidate_index: npt.NDArray[np.integer],
    hardware: Hardware,
) -> npt.NDArray[np.float32]:
    """[n, F] the rows (problems[problem_index[i]], candidates[candidate_index[i]]), with the
    columns NAMES. A row that is not `supported` holds numbers without a meaning; no value is NaN or
    infinite.

    Columns of the problem alone are computed once for each problem, those of the candidate alone
    once for each candidate. The others ("cross") are computed on blocks of rows that fit the
    processor's cache.
    """
    n = len(problem_index)
    described = [describe(problem, hardware) for problem in problems]
    problem_rows = np.array([d[0] for d in described], np.float32).reshape(-1, PROBLEM_COLUMN_COUNT)
    facts = np.array([d[1] for d in described], np.float32).reshape(-1, FACT_COUNT)
    facts = np.ascontiguousarray(facts.T)
    candidate_columns, knobs = of_candidates(encode(candidates))
    candidate_rows = candidate_columns.T

    x = np.empty((n, len(NAMES)), np.float32)
    block = np.empty((len(cross.NAMES), min(n, _BLOCK)), np.float32)
    for start in range(0, n, _BLOCK):
        part = slice(start, min(start + _BLOCK, n))
        p, c = problem_index[part], candidate_index[part]
        x[part, :PROBLEM_COLUMN_COUNT] = problem_rows[p]
        x[part, PROBLEM_COLUMN_COUNT:_FIRST_CROSS] = candidate_rows[c]
        values = block[:, : len(p)]
        # The facts of a single problem are broadcast to all rows, which gives the same numbers
        # faster.
        cross.fill(facts if len(problems) == 1 else facts[:, p], knobs[:, c], hardware, values)
        x[part, _FIRST_CROSS:] = values.T
    return x


def space(problem: Problem, candidates: Sequence[Candidate], hardware: Hardware) -> SpaceFeatures:
    """The features of one problem and n candidates: the same numbers as those of `matrix`, bit for
    bit, in half the time."""
    row, facts = describe(problem, hardware)
    candidate_columns, knobs = of_candidates(encode(candidates))
    own = len(CANDIDATE_NAMES)
    rest = np.empty((len(NAMES) - PROBLEM_COLUMN_COUNT, len(candidates)), np.float32)
    rest[:own] = candidate_columns
    cross.fill(np.array(facts, np.float32)[:, None], knobs, hardware, rest[own:])
    return SpaceFeatures(np.array(row, np.float32), rest)


@dataclass(frozen=True, eq=False)
class SpaceFeatures:
    """The features of one problem and n candidates, without repeating the problem's columns.
    `problem` has the columns of the problem alone, `rest` [other columns, n] the others."""

    problem: npt.NDArray[np.float32]
    rest: npt.NDArray[np.float32]

    @property
    def base(self) -> npt.NDArray[np.float32]:
        """[n] the binary logarithm of the base time in microseconds."""
        base: npt.NDArray[np.float32] = self.rest[BASE - PROBLEM_COLUMN_COUNT]
        return base

    def rows(self) -> npt.NDArray[np.float32]:
        """[n, F] as `matrix` has them, bit for bit."""
        own = len(self.problem)
        x = np.empty((self.rest.shape[1], own + len(self.rest)), np.float32)
        x[:, :own] = self.problem
        x[:, own:] = self.rest.T
        return x

    def take(self, which: npt.NDArray[np.bool_]) -> SpaceFeatures:
        """The features of the candidates where `which` [n] is true."""
        return SpaceFeatures(self.problem, self.rest.take(np.flatnonzero(which), axis=1))
