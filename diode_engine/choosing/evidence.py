"""The evidence: how far predicted gains were wrong near a problem, and which kinds of kernels were
predicted well.

Models that had not seen a problem predicted the times of its candidates (`training/confidence.py`).
For each problem the evidence has the error of the predicted gain over the library's kernel, and for
each kind of kernel how often a prediction was missed by far. A problem that is asked for at compile
time has the error of its neighbours, and a larger one where they are far. They have the same type
and layouts, because for others the library calls other kernels. A kernel of a kind that was missed
too often, or hardly ever timed, is not proven.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import encode
from diode_engine.core.operand import Bias, DType
from diode_engine.core.problem import Problem
from diode_engine.core.resources import accumulator_registers, loads_per_thread

# A prediction is missed if the kernel takes this many times as long as predicted, beside the
# library's kernel of the same problem.
MISS = 1.5
UNKNOWN = -1.0  # in place of an error
# A kind of kernel is proven if it has this many timings, with at most this share of misses.
_MIN_TIMINGS = 20
_MAX_MISSES = 0.1
_LIKELY = math.log(2)  # log time: kernels predicted to be this near the best are counted
_NEAR_BEST = math.log(1.05)  # those that could be taken: their worst error is the problem's
MAX_NEIGHBOURS = 8  # training problems whose errors count for a problem
_DISTANCE = 0.5  # added to a neighbour's distance, so that the nearest does not count alone
# Log time that is added to the error for each unit of distance (models/neighbours.py) beyond _NEAR,
# at which the nearest neighbour is, up to _FAR. docs/notes/margins.md says how they were chosen.
_ERROR_BEYOND, _NEAR, _FAR = 0.16, 2.25, 5.0
# Only some twenty problems, of an H100, have valid timings of Triton's kernels with these biases
# (earlier ones of a bias of one element had wrong results), so these are kinds of their own. The
# hook sees the bias of a linear layer with one output as a column.
RARE_BIASES = frozenset({Bias.SCALAR, Bias.COLUMN})

Column = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Evidence:
    """`errors` [problems], of the training problems in the order of Confidence.places: the natural
    logarithm of how many times too large the predicted gain over the library's kernel was, 0 where
    it was too small, UNKNOWN where it is not known. `kinds` [k] are kinds of kernels
    (`kernel_kinds`), ascending; `timings` and `misses` [k] count their timings, and those that took
    over MISS times as long as predicted."""

    errors: Column
    kinds: Column
    timings: Column
    misses: Column

    def with_problems(self, count: int) -> Evidence:
        """Return the evidence with `count` more problems, whose errors are not known."""
        more = np.full(count, UNKNOWN, np.float32)
        return replace(self, errors=np.append(self.errors, more))

    def error_near(self, places: npt.NDArray[np.intp], away: npt.NDArray[np.float32]) -> float:
        """Return the error of a problem whose neighbours are at these `places` among the training
        problems and have these distances, the nearest first: the mean of their known errors, nearer
        ones counting more, and what is added where the nearest is far."""
        errors = self.errors[places].astype(np.float64)
        weight = np.where(errors == UNKNOWN, 0, 1 / (away.astype(np.float64) + _DISTANCE))
        total = weight.sum()
        mean = float((weight * errors).sum() / total) if total > 0 else 0.0
        nearest = min(float(away[0]), _FAR) if len(away) else _FAR
        return mean + _ERROR_BEYOND * max(0.0, nearest - _NEAR)

    def proven(self, problem: Problem, candidates: Sequence[Candidate]) -> Mask:
        """[n] whether the candidate is of a kind that is proven; True for a library's kernel."""
        out: Mask = ~encode(candidates).tiled
        good = self._proven_kinds
        if len(good):
            kinds = kernel_kinds(problem, candidates)
            out |= good[np.searchsorted(good, kinds).clip(max=len(good) - 1)] == kinds
        return out

    @cached_property
    def _proven_kinds(self) -> Column:
        is_seldom_missed = self.misses <= _MAX_MISSES * self.timings
        return np.sort(self.kinds[(self.timings >= _MIN_TIMINGS) & is_seldom_missed])


def kernel_kinds(problem: Problem, candidates: Sequence[Candidate]) -> Column:
    """[n] the kind of each candidate's kernel on this problem, a number. Kernels of a kind have the
    same type of operands and about as many load instructions a thread, as many passes over K up to
    three and, in float32 without TF32, about as many multiplications a thread in a pass: what
    decides whether ptxas runs out of registers."""
    c = encode(candidates)
    full_precision = problem.dtype is DType.FLOAT32 and not problem.allow_tf32
    family = 3 if problem.dtype.itemsize == 1 else 0
    if problem.dtype is DType.FLOAT32:
        family = 1 if full_precision else 2
    family = 2 * family + (problem.bias in RARE_BIASES)
    loads = np.clip(np.log2(np.maximum(loads_per_thread(problem, candidates), 1)), 0, 9)
    passes = np.clip(np.ceil(problem.one_group[2] / np.maximum(c.block_k, 1)), 1, 3)
    work = np.zeros(len(candidates))
    if full_precision:
        done = accumulator_registers(c.block_m, c.block_n, c.warps) * c.block_k
        work = np.clip(np.log2(np.maximum(done, 1)), 0, 15)
    kinds = ((family * 10 + loads.astype(np.int32)) * 4 + passes.astype(np.int32)) * 16
    return (kinds + work.astype(np.int32)).astype(np.float32)


class Misses:
    """Counts predictions that were missed, and keeps the errors of problems."""

    def __init__(self) -> None:
        self._counts: dict[int, list[int]] = {}
        self.errors: dict[int, float] = {}

    def add(
        self, place: int, predicted: Values, measured: Values, library: Mask, kinds: Column
    ) -> None:
        """Adds the problem at this place among the training problems: the predicted and measured
        log times [n] of its candidates, which of them are a library's, and their kinds. Without a
        time of a library's kernel and one of another there is nothing to compare."""
        if not library.any() or library.all():
            return
        plain = int(np.flatnonzero(library)[measured[library].argmin()])
        over = (measured - predicted) - (measured[plain] - predicted[plain])
        others = np.flatnonzero(~library)
        gap = predicted[others] - predicted[others].min()
        self.errors[place] = float(over[others[gap <= _NEAR_BEST]].max())
        for i in others[gap <= _LIKELY].tolist():
            count = self._counts.setdefault(int(kinds[i]), [0, 0])
            count[0] += 1
            count[1] += bool(over[i] > math.log(MISS))

    def evidence(self, problems: int) -> Evidence:
        """Return the evidence for a model that was trained on this number of problems."""
        errors = np.full(problems, UNKNOWN, np.float32)
        errors[list(self.errors)] = np.maximum(list(self.errors.values()), 0)
        kinds = sorted(self._counts)
        counts = np.array([self._counts[kind] for kind in kinds], np.float32).reshape(-1, 2)
        return Evidence(errors, np.array(kinds, np.float32), *counts.T.copy())
