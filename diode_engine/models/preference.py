"""Which of the predicted kernels is taken: the fastest, if the gain is worth the risk.

On a problem that no model has seen, a library's kernel is rarely much slower than the best. A wrong
prediction for another kernel can cost many times what a right one gains. So the gain has to be the
larger the less sure the model is, and in float32, where the model has members, each of them must
predict one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import CandidateColumns, encode
from diode_engine.core.operand import Bias, DType
from diode_engine.core.problem import Problem
from diode_engine.core.resources import spills_erratically
from diode_engine.core.templates import template_of
from diode_engine.models.ranking import Ranking

Microseconds = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# The version of this module's rules, a part of the keys of Inductor's caches. Change it whenever a
# rule changes.
RULES = "2026-11-24"

# By how much another kernel must be predicted to be faster than the library's before it is taken:
# docs/integration.md tells how these were chosen.
MARGIN = 1.15
_MARGIN_SURE = 1.05  # where the model is at least SURE that its choice is within 5 % of the best
SURE = 0.7
# In float32, where the model has members, each must predict it to be faster by this.
_MARGIN_OF_MEMBERS = 1.05
# A choice that is less sure to be within 5 % of the best is left to the library.
_MIN_CONFIDENCE = 0.3
# The shipped datasets have no valid timing of a Triton kernel with these biases. Inductor expands a
# bias of one element to the size of the output first; `collect` did not, so the results were wrong.
# No dataset has a bias of one column (the hook sees the bias of a linear layer with one output as
# one).
_UNTIMED_BIASES = frozenset({Bias.SCALAR, Bias.COLUMN})
_UNKNOWN_US = 1e12  # in place of the time of a library's kernel without a prediction: the longest


class Why(StrEnum):
    """Why a GEMM's kernels were taken."""

    FASTEST = "predicted to be the fastest"
    SEVERAL = "Inductor times these"
    LIBRARY = "the library's: no other is predicted to be faster by enough"
    UNSURE = "the library's: the model is not sure of another"
    UNPREDICTABLE = "the library's: how fast the others are cannot be predicted"
    SIZES = "the library's: another may be slower at other values of a dynamic size"
    LAYOUT = "the library's: an operand will have another layout"


@dataclass(frozen=True, eq=False)
class Policy:
    """What the choice among a problem's kernels depends on. The masks are [n], over the
    candidates."""

    library: Mask  # the library's call that plain torch.compile makes (plain_library_call)
    predictable: Mask  # what may be taken without being timed
    margin: float  # another kernel is worth its risk if predicted to be so many times as fast
    sure: bool  # whether the model is sure enough about this problem
    # [m, n] the times that the model's members predict, divided by the model's own. None: only the
    # model as a whole must predict a gain.
    members: Microseconds | None = None
    margin_of_members: float = _MARGIN_OF_MEMBERS  # what each of them must predict

    @classmethod
    def of(
        cls,
        problem: Problem,
        candidates: Sequence[Candidate],
        confidence: float | None,
        members: Microseconds | None = None,
        *,
        dynamic: bool = False,
    ) -> Policy:
        """The policy for these candidates. Where the model has no confidence (None), every choice
        is sure enough, except with a bias that no Triton kernel was timed with. `members` are those
        of the ranking; they count in float32. With `dynamic` the kernel is chosen for many values
        of a size. How sure the model is at one of them, and how its members differ there, says
        little about the others. So neither makes the margin smaller."""
        float32 = problem.dtype is DType.FLOAT32
        if dynamic or not float32:
            members = None
        surer = confidence is not None and confidence >= SURE
        small = surer and not dynamic and (members is not None or not float32)
        return cls(
            plain_library_call(candidates),
            ~spills_erratically(problem, candidates),
            _MARGIN_SURE if small else MARGIN,
            problem.bias not in _UNTIMED_BIASES
            and (confidence is None or confidence >= _MIN_CONFIDENCE),
            members,
        )


def taken(problem: Problem, candidates: Sequence[Candidate], ranking: Ranking) -> tuple[int, Why]:
    """The index of the candidate that a compile takes when there is nothing to fuse and no size is
    dynamic, and why. The model must have a prediction for at least one."""
    policy = Policy.of(problem, candidates, ranking.confidence, ranking.members)
    kept, why = chosen(ranking.predicted_us[None], policy)
    return kept[0], why


def taken_by_default(
    problem: Problem, candidates: Sequence[Candidate], ranking: Ranking
) -> tuple[int, Why]:
    """As `taken`, but only among what Inductor offers with its default options, which is without
    templates that have an option of their own, such as persistent TMA kernels."""
    by_default = np.array([not template_of(c.template).option for c in candidates])
    offered_us = np.where(by_default, ranking.predicted_us, np.nan)
    return taken(problem, candidates, replace(ranking, predicted_us=offered_us))


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
    problems, be `margin` times as fast in the mean (and `margin_of_members` times by each of the
    members, where there are some), and not be slower for any of the problems; and the model must be
    sure enough."""
    known_ones = score < np.inf
    best = int(score.argmin())
    usual_one = best_of_library(score, policy.library) if policy.library.any() else None
    if usual_one is None or not known_ones[usual_one]:
        told = known_ones & policy.predictable
        return [int(np.where(told, score, np.inf).argmin()) if told.any() else best], Why.FASTEST
    if policy.library[best]:
        return [best], Why.FASTEST
    if not policy.sure:
        return [usual_one], Why.UNSURE
    gain = score[usual_one] / score
    worth = known_ones & (gain >= policy.margin)
    if policy.members is not None:
        least_gain = gain * (policy.members[:, [usual_one]] / policy.members).min(axis=0)
        worth &= least_gain >= policy.margin_of_members
    if not worth.any():
        return [usual_one], Why.LIBRARY
    worth &= policy.predictable
    if not worth.any():
        return [usual_one], Why.UNPREDICTABLE
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


def known(us: Microseconds) -> Mask:
    """[n] which of the times are finite and so known."""
    return np.isfinite(us) & (us > 0)
