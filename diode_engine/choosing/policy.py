"""Which of the predicted kernels is taken: the fastest, if the gain is worth the risk.

On a problem that no model has seen, a library's kernel is rarely much slower than the best. A wrong
prediction for another kernel can cost many times what a right one gains. So another kernel is taken
only if kernels of its kind were timed and predicted well, and its predicted gain is larger than
what gains near the problem were wrong by (`choosing/evidence.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from diode_engine.choosing.choice import Why
from diode_engine.choosing.evidence import UNTIMED_BIASES
from diode_engine.choosing.prediction import Mask, Microseconds, Prediction, known
from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import CandidateColumns, encode
from diode_engine.core.problem import Problem
from diode_engine.core.resources import spills_erratically
from diode_engine.core.templates import template_of

# The version of this module's rules, a part of the keys of Inductor's caches. Change it whenever a
# rule changes.
RULES = "2026-11-24b"

# By how much another kernel must be predicted to be faster than the library's before it is taken,
# and how much of the error of predicted gains near the problem is added, in log time. The errors
# are the worst of each problem and of models with fewer steps, so a part of them is enough.
# docs/notes/margins.md says how both were chosen.
LEAST_MARGIN, ERROR_WEIGHT = 1.05, 0.5
# The margin of a model without evidence, and the least one for a dynamic size.
MARGIN = 1.15
_LEAST_LIKENESS = 0.01  # no gain is large enough for it; 0 is that of another generation of GPUs
_UNKNOWN_US = 1e12  # in place of the time of a library's kernel without a prediction: the longest


@dataclass(frozen=True, eq=False)
class Policy:
    """What the choice among a problem's kernels depends on. The masks are [n], over the
    candidates."""

    library: Mask  # the library's call that plain torch.compile makes (plain_library_call)
    proven: Mask  # what may be taken without being timed (Evidence.proven)
    margin: float  # another kernel is worth its risk if predicted to be so many times as fast

    @classmethod
    def of(
        cls,
        problem: Problem,
        candidates: Sequence[Candidate],
        prediction: Prediction,
        *,
        dynamic: bool = False,
    ) -> Policy:
        """The policy for these candidates, of which `prediction` is the model's. With `dynamic` the
        kernel is chosen for many values of a size. What is known near one of them says little about
        the others, and does not make the margin smaller than that of a model without evidence."""
        margin, proven = MARGIN, prediction.proven
        if prediction.error is not None:
            margin = LEAST_MARGIN * math.exp(ERROR_WEIGHT * prediction.error)
            if dynamic:
                margin = max(margin, MARGIN)
        if proven is None:
            proven = ~encode(candidates).tiled | (problem.bias not in UNTIMED_BIASES)
        # Such a kernel was seldom timed, and can take many times as long as others of its kind.
        proven = proven & ~spills_erratically(problem, candidates)
        likeness = max(prediction.likeness, _LEAST_LIKENESS)
        return cls(plain_library_call(candidates), proven, margin ** (1 / likeness))


def taken(
    problem: Problem, candidates: Sequence[Candidate], prediction: Prediction
) -> tuple[int, Why]:
    """The index of the candidate that a compile takes when there is nothing to fuse and no size is
    dynamic, and why. The model must have a prediction for at least one."""
    policy = Policy.of(problem, candidates, prediction)
    kept, why = chosen(prediction.predicted_us[None], policy)
    return kept[0], why


def taken_by_default(
    problem: Problem, candidates: Sequence[Candidate], prediction: Prediction
) -> tuple[int, Why]:
    """As `taken`, but only among what Inductor offers with its default options, which is without
    templates that have an option of their own, such as persistent TMA kernels."""
    by_default = np.array([not template_of(c.template).option for c in candidates])
    offered_us = np.where(by_default, prediction.predicted_us, np.nan)
    return taken(problem, candidates, replace(prediction, predicted_us=offered_us))


def plain_library_call(candidates: Sequence[Candidate]) -> Mask:
    """[n] which candidate is the library's call that plain torch.compile makes. For addmm with a
    bias vector there are two library kernels; it is the one that does not copy the vector."""
    return _plain_library_call(encode(candidates))


@lru_cache(maxsize=16)  # as many as `encode` keeps
def _plain_library_call(columns: CandidateColumns) -> Mask:
    templates = [template_of(name) for name in columns.templates]
    plain = [template.bias_vector for template in templates]
    if not any(plain):
        plain = [template.extern for template in templates]
    mask = np.array(plain, np.bool_)[columns.template]
    mask.flags.writeable = False
    return mask


def chosen(
    costs_us: Microseconds, policy: Policy, *, keep: int = 1, threshold: float = 1.0
) -> tuple[list[int], Why]:
    """The indices of the kernels to keep, best first, and why, from their costs [problems, n]. None
    is kept where no kernel's cost is known for all problems.

    The `keep` best by the geometric mean are kept, if they are within `threshold` times the least.
    If one kernel alone is kept, it has to be worth its risk (`_alone`). If several are kept,
    Inductor times them, and a library's kernel is added at the end where there is none among them:
    where a template's inputs got other layouts than it was timed with, Inductor's scheduler falls
    back to a library's kernel and asserts that there is one.
    """
    score = mean_us(costs_us)
    order = np.argsort(score, kind="stable")[:keep]
    order = order[score[order] <= threshold * score[order[0]]]
    kept = [int(i) for i in order if score[i] < np.inf]
    if len(kept) < 2:
        return _alone(costs_us, score, policy) if kept else ([], Why.FASTEST)
    if policy.library.any() and not policy.library[kept].any():
        kept.append(best_of_library(score, policy.library))
    return kept, Why.SEVERAL


def _alone(costs_us: Microseconds, score: Microseconds, policy: Policy) -> tuple[list[int], Why]:
    """The one kernel to take. A kernel that is not the library's must have a prediction for all
    problems, be `margin` times as fast in the mean, be proven, and not be slower for any of the
    problems."""
    known_ones = score < np.inf
    best = int(score.argmin())
    usual_one = best_of_library(score, policy.library) if policy.library.any() else None
    if usual_one is None or not known_ones[usual_one]:
        proven = known_ones & policy.proven
        found = np.where(proven, score, np.inf).argmin() if proven.any() else best
        return [int(found)], Why.FASTEST
    if policy.library[best]:
        return [best], Why.FASTEST
    worth = known_ones & (score[usual_one] / score >= policy.margin)
    if not worth.any():
        return [usual_one], Why.LIBRARY
    worth &= policy.proven
    if not worth.any():
        return [usual_one], Why.UNPROVEN
    worth &= (costs_us <= costs_us[:, [usual_one]]).all(axis=0)
    if not worth.any():
        return [usual_one], Why.SIZES
    return [int(np.where(worth, score, np.inf).argmin())], Why.FASTEST


def best_of_library(us: Microseconds, library: Mask) -> int:
    """The index of the library's kernel with the shortest time; any of the library's where no time
    is known. There must be at least one."""
    times = np.where(known(us), us, np.inf)
    return int(np.where(library, np.minimum(times, _UNKNOWN_US), np.inf).argmin())


def mean_us(costs_us: Microseconds) -> Microseconds:
    """[n] the geometric mean over the problems [problems, n]; infinite where one is unknown."""
    if len(costs_us) == 1:
        return np.where(known(costs_us[0]), costs_us[0], np.inf)
    usable = known(costs_us).all(axis=0)
    logs = np.log(np.where(usable, costs_us, 1.0))
    return np.where(usable, np.exp(logs.mean(axis=0)), np.inf)
