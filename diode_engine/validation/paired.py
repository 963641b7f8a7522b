"""What models choose on the same problems, compared problem by problem and by kind of problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diode_engine.choosing.chooser import Chooser
from diode_engine.choosing.policy import best_of_library, plain_library_call
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.models.confidence import MAX_K
from diode_engine.models.predictor import Predictor
from diode_engine.validation import choosers
from diode_engine.validation.metrics import FLOOR, Values, efficiencies
from diode_engine.validation.pool import CandidatePool

# By how much more time a choice must take than the library's kernel to count as slower.
SLOWER = 0.05
# How much a kind may become worse beside what chance makes, in the logarithm of efficiency.
TOLERANCE = 0.003
_ERRORS = 2  # standard errors of the mean difference that count as chance
_FEW_ROWS, _SOME_ROWS = 16, 64


@dataclass(frozen=True, eq=False)
class Choices:
    """What is chosen on each of c cases of a pool.

    `efficiency` is [k, c]: that of the best of the first 1, 2, … kernels, the library's where there
    is no prediction, NaN where there is neither. `slower` is [c]: whether the kernel that a compile
    takes is more than SLOWER slower than the library's. `reaches` has Prediction.reaches of each
    case.
    """

    efficiency: Values
    slower: npt.NDArray[np.bool_]
    reaches: tuple[tuple[float, ...] | None, ...] = ()

    @property
    def first(self) -> Values:
        """[c] the efficiency of the first choice."""
        first: Values = self.efficiency[0]
        return first


def choose_by_library(pool: CandidatePool) -> Choices:
    """The library's kernel, which plain torch.compile takes."""
    first = efficiencies(pool, choosers.aten(pool).score, (1,))
    return Choices(first, np.zeros(first.shape[1], np.bool_))


def choose_by_model(pool: CandidatePool, predictor: Predictor, hardware: Hardware) -> Choices:
    """Return the model's choices on this GPU, among the measured kernels that it can launch."""
    chooser, score = Chooser(predictor, hardware), np.full(len(pool), np.nan)
    slower, reaches = [], []
    for problem, _, rows in pool.cases():
        candidates = [pool.table.candidates[i] for i in pool.table.candidate[rows]]
        prediction = chooser.predict(problem, candidates)
        score[rows] = prediction.predicted_us
        reaches.append(prediction.reaches)
        library = plain_library_call(candidates)
        if not len(prediction.order) or not library.any():
            slower.append(False)
            continue
        time_us = pool.time_us[rows]
        (place,), _ = chooser.policy.compare(prediction).choose()
        of_choice = time_us[place]
        usual = time_us[best_of_library(time_us, library)]
        # A kernel that failed is slower, unless the library's failed too.
        slower.append(bool(not of_choice <= (1 + SLOWER) * usual and not np.isnan(usual)))
    found = efficiencies(pool, score, tuple(range(1, MAX_K + 1)))
    found = np.where(np.isnan(found), choose_by_library(pool).first, found)
    return Choices(found, np.array(slower, np.bool_), tuple(reaches))


@dataclass(frozen=True)
class Difference:
    """How much better one chooser is than another on the same problems, in the mean logarithm of
    its efficiency over the other's. `chance` is two standard errors of this mean."""

    problems: int
    ours: float  # geometric mean of the efficiency
    theirs: float
    chance: float

    @property
    def worse(self) -> bool:
        """Whether ours is worse by more than TOLERANCE and chance."""
        return bool(np.log(self.ours / self.theirs) < -TOLERANCE - self.chance)


def compare(ours: Values, theirs: Values) -> Difference:
    """Of efficiencies [n] on the same problems; n must be 2 or more."""
    a, b = (np.log(np.maximum(values, FLOOR)) for values in (ours, theirs))
    chance = _ERRORS * float((a - b).std(ddof=1)) / len(a) ** 0.5
    return Difference(len(a), float(np.exp(a.mean())), float(np.exp(b.mean())), chance)


def is_chance(ours: npt.NDArray[np.bool_], theirs: npt.NDArray[np.bool_]) -> bool:
    """Whether ours are true no more often than chance explains. Only problems on which the two
    differ count: of these, half would be ours alone (McNemar, Note on the sampling error of the
    difference between correlated proportions or percentages, 1947)."""
    alone, other = (int(np.count_nonzero(x)) for x in (ours & ~theirs, theirs & ~ours))
    return bool(alone - other <= _ERRORS * (alone + other) ** 0.5)


def get_kinds(problem: Problem) -> tuple[str, str, str, str]:
    """A problem's kinds: by element type, operator, rows of the result, and alignment."""
    sizes = {1: "8 bits", 2: "half"}
    kind = "TF32" if problem.allow_tf32 else sizes.get(problem.dtype.itemsize, str(problem.dtype))
    rows = f"M to {_FEW_ROWS}" if problem.M <= _FEW_ROWS else f"M over {_SOME_ROWS}"
    if _FEW_ROWS < problem.M <= _SOME_ROWS:
        rows = f"M to {_SOME_ROWS}"
    aligned = min(problem.a.align, problem.b.align) >= 8
    return kind, str(problem.op), rows, "aligned" if aligned else "unaligned"


def split_by_kind(
    pool: CandidatePool, known: npt.NDArray[np.bool_], least: int
) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """(kind, [c] which of the `known` cases are of it) for each kind of `least` of these or more; a
    kind that all of them are of is left out."""
    kinds = np.array([get_kinds(problem) for problem, _, _ in pool.cases()])
    for column in kinds.T:
        for kind in sorted(set(column.tolist())):
            there = known & (column == kind)
            if least <= np.count_nonzero(there) < np.count_nonzero(known):
                yield kind, there
