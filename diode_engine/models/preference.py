"""What is taken of the kernels that a model has predicted: the fastest, if it is worth its risk.

A library's kernel is never far from good on a problem that no model has seen, and a wrong
prediction of another's can cost many times what a right one gains.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from diode_engine.core.problem import Candidate, DType, Problem
from diode_engine.models.ranking import Ranking

Microseconds = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# Of the rules of this module, for the keys of Inductor's caches: another for each change of them.
RULES = "2026-11-22"

# By how much another kernel must be predicted to be faster than the library's before it is taken:
# docs/integration.md tells how these were chosen. Predictions are least certain for float32.
_MARGIN = 1.1
_MARGIN_TF32 = 1.2
_MARGIN_FLOAT32 = 1.3
# A choice that is less sure to be within 5 % of the best is left to the library.
_LEAST_CONFIDENCE = 0.3
_UNKNOWN_US = 1e12  # of a library's kernel without a prediction: after all others


class Why(StrEnum):
    """Why a GEMM's kernels were kept."""

    FASTEST = "predicted to be the fastest"
    SEVERAL = "Inductor times these"
    LIBRARY = "the library's: no other is predicted to be faster by enough"
    UNSURE = "the library's: the model is not sure of another"
    SIZES = "the library's: another may be slower at other values of a dynamic size"
    LAYOUT = "the library's: an operand will have another layout"


def taken(problem: Problem, candidates: Sequence[Candidate], ranking: Ranking) -> tuple[int, Why]:
    """Where among the candidates that one is which a compile takes, with nothing to fuse and sizes
    that are not dynamic, and why; the model must have judged one at least."""
    kept, why = chosen(
        ranking.predicted_us[None],
        usual([candidate.template for candidate in candidates]),
        keep=1,
        threshold=1.0,
        factor=margin(problem),
        sure=sure_enough(ranking.confidence),
    )
    return kept[0], why


def sure_enough(confidence: float | None) -> bool:
    """Whether a kernel that is not the library's may be taken; a model that does not know how sure
    it is counts as sure."""
    return confidence is None or confidence >= _LEAST_CONFIDENCE


def margin(problem: Problem) -> float:
    """By how much another kernel's predicted time must be less than that of the library's."""
    if problem.dtype is not DType.FLOAT32:
        return _MARGIN
    return _MARGIN_TF32 if problem.allow_tf32 else _MARGIN_FLOAT32


def usual(templates: Sequence[str]) -> Mask:
    """[n] which of the candidates is the library's that plain torch.compile calls: of the two of
    addmm with a bias vector the one that needs no copy of it."""
    biased = np.array([template == "aten::bias_addmm" for template in templates], np.bool_)
    if biased.any():
        return biased
    return np.array([template.startswith("aten::") for template in templates], np.bool_)


def chosen(
    costs_us: Microseconds,
    library: Mask,
    *,
    keep: int,
    threshold: float,
    factor: float,
    sure: bool,
) -> tuple[list[int], Why]:
    """Where the kernels to keep are, best first, by their costs [problems, n], and why; one at
    least must be known for all problems, else none is kept. `library` [n] is `usual`.

    The `keep` best by the geometric mean are kept, of those within `threshold` times the least.
    One kernel alone has to be worth its risk: it is taken where it is predicted to be `factor`
    times as fast as the library's in the mean, and not slower for any of the problems, and the
    model is `sure`; else the library's is. Behind several, which Inductor will time, comes the
    library's if none of them is: Inductor's scheduler falls back to a library's kernel, and asserts
    that there is one, where a template's inputs got other layouts than it was timed with.
    """
    score = mean_us(costs_us)
    order = np.argsort(score, kind="stable")[:keep]
    order = order[score[order] <= threshold * score[order[0]]]
    kept = [int(i) for i in order if score[i] < np.inf]
    why = Why.FASTEST if len(kept) == 1 else Why.SEVERAL
    if not library.any() or library[kept].any():
        return kept, why
    usual_one = best_of_library(score, library)
    if why is Why.SEVERAL:
        return [*kept, usual_one], why
    if not score[usual_one] < np.inf:
        return kept, why
    if not sure:
        return [usual_one], Why.UNSURE
    if score[usual_one] < factor * score[kept[0]]:
        return [usual_one], Why.LIBRARY
    if (costs_us[:, kept[0]] > costs_us[:, usual_one]).any():
        return [usual_one], Why.SIZES
    return kept, why


def best_of_library(us: Microseconds, library: Mask) -> int:
    """Where the least of the times [n] of the library's kernels is, of which there must be one; any
    of these where none is known."""
    times = np.where(known(us), us, np.inf)
    return int(np.where(library, np.minimum(times, _UNKNOWN_US), np.inf).argmin())


def mean_us(costs_us: Microseconds) -> Microseconds:
    """[n] the geometric mean over the problems [problems, n]; infinite where one is unknown."""
    if len(costs_us) == 1:
        return np.where(known(costs_us[0]), costs_us[0], np.inf)
    usable = known(costs_us).all(axis=0)
    logs = np.log(np.where(usable, costs_us, 1.0))
    return np.where(usable, np.exp(logs.mean(axis=0)), np.inf)


def known(us: Microseconds) -> Mask:
    """[n] which of the times mean something."""
    return np.isfinite(us) & (us > 0)
