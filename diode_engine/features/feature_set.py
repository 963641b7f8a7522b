"""A feature set: named columns of a problem, of a candidate and of both, under a version."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import CandidateColumns, encode
from diode_engine.core.hardware import Hardware
from diode_engine.core.operand import DType
from diode_engine.core.problem import Problem
from diode_engine.core.resources import Array

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


@dataclass(frozen=True)
class FeatureSet:
    """The columns, in the order of `names`, and the functions that compute them.

    Columns of the problem alone are computed once for each problem, those of the candidate alone
    once for each candidate. The others ("cross") need both; they are computed on blocks of rows
    that fit the processor's cache.
    """

    version: int
    problem: tuple[str, ...]
    candidate: tuple[str, ...]
    cross: tuple[str, ...]
    facts: tuple[str, ...]  # what the cross columns need of a problem
    base_name: str  # the column of the base time, a binary logarithm of microseconds
    # Returns the values of the columns `problem`, and those of `facts`.
    describe: Callable[[Problem, Hardware], tuple[Sequence[float], Sequence[float]]]
    # Returns the columns `candidate` [candidate, n], and what the cross columns need of the
    # candidates (the knobs).
    of_candidates: Callable[[CandidateColumns], tuple[Array, Array]]
    # Fills its last argument [cross, n] from [facts, n] (or [facts, 1]), the knobs and the device.
    fill_cross: Callable[[Array, Array, Hardware, Array], None]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return self.problem + self.candidate + self.cross

    @cached_property
    def names_hash(self) -> str:
        return hashlib.sha256("\n".join(self.names).encode()).hexdigest()[:16]

    @cached_property
    def base(self) -> int:
        """The index of the base time's column."""
        return self.names.index(self.base_name)

    @cached_property
    def problem_column_count(self) -> int:
        """How many columns depend on the problem alone; they come first."""
        return len(self.problem)

    def matrix(
        self,
        problems: Sequence[Problem],
        candidates: Sequence[Candidate],
        problem_index: npt.NDArray[np.integer],
        candidate_index: npt.NDArray[np.integer],
        hardware: Hardware,
    ) -> npt.NDArray[np.float32]:
        """[n, F] the rows (problems[problem_index[i]], candidates[candidate_index[i]]), with the
        columns `names`. A row that is not `supported` holds numbers without a meaning; no value is
        NaN or infinite."""
        n = len(problem_index)
        described = [self.describe(problem, hardware) for problem in problems]
        problem_rows = np.array([d[0] for d in described], np.float32).reshape(
            -1, self.problem_column_count
        )
        facts = np.array([d[1] for d in described], np.float32).reshape(-1, len(self.facts))
        facts = np.ascontiguousarray(facts.T)
        candidate_columns, knobs = self.of_candidates(encode(candidates))
        candidate_rows = candidate_columns.T

        x = np.empty((n, len(self.names)), np.float32)
        first, second = self.problem_column_count, self.problem_column_count + len(self.candidate)
        block = np.empty((len(self.cross), min(n, _BLOCK)), np.float32)
        for start in range(0, n, _BLOCK):
            rows = slice(start, min(start + _BLOCK, n))
            p, c = problem_index[rows], candidate_index[rows]
            x[rows, :first] = problem_rows[p]
            x[rows, first:second] = candidate_rows[c]
            cross = block[:, : len(p)]
            # The facts of a single problem are broadcast to all rows, which gives the same numbers
            # faster.
            with np.errstate(over="ignore", invalid="ignore"):
                self.fill_cross(
                    facts if len(problems) == 1 else facts[:, p], knobs[:, c], hardware, cross
                )
            x[rows, second:] = cross.T
        return x

    def space(
        self, problem: Problem, candidates: Sequence[Candidate], hardware: Hardware
    ) -> SpaceFeatures:
        """The features of one problem and n candidates: the same numbers as those of `matrix`, bit
        for bit, in half the time."""
        row, facts = self.describe(problem, hardware)
        candidate_columns, knobs = self.of_candidates(encode(candidates))
        own = len(self.candidate)
        rest = np.empty((len(self.names) - self.problem_column_count, len(candidates)), np.float32)
        rest[:own] = candidate_columns
        with np.errstate(over="ignore", invalid="ignore"):
            self.fill_cross(np.array(facts, np.float32)[:, None], knobs, hardware, rest[own:])
        return SpaceFeatures(np.array(row, np.float32), rest, self.base - self.problem_column_count)


@dataclass(frozen=True, eq=False)
class SpaceFeatures:
    """The features of one problem and n candidates, without repeating the problem's columns.
    `problem` has the columns of the problem alone. `rest` [other columns, n] has the others;
    `base_row` is the index of the base time in it."""

    problem: npt.NDArray[np.float32]
    rest: npt.NDArray[np.float32]
    base_row: int

    @property
    def base(self) -> npt.NDArray[np.float32]:
        """[n] the binary logarithm of the base time in microseconds."""
        base: npt.NDArray[np.float32] = self.rest[self.base_row]
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
        rest = self.rest.take(np.flatnonzero(which), axis=1)
        return SpaceFeatures(self.problem, rest, self.base_row)
