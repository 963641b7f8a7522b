"""The policy: the fastest predicted kernel is chosen if its gain is worth the risk.

On a problem that no model has seen, a library's kernel is rarely much slower than the best. A wrong
prediction for another kernel can cost many times what a right one gains. So another kernel is
chosen only if kernels of its kind were timed and predicted well, and its predicted gain is larger
than what gains near the problem were wrong by (`choosing/evidence.py`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from diode_engine.choosing.choice import Choice, Why
from diode_engine.choosing.evidence import RARE_BIASES
from diode_engine.choosing.prediction import Mask, Microseconds, Prediction, is_known
from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import CandidateColumns, encode
from diode_engine.core.problem import Problem
from diode_engine.core.resources import spills_erratically
from diode_engine.core.templates import template_of

# The version of this module's rules, a part of the keys of Inductor's caches. Change it whenever a
# rule changes.
RULES = "2026-11-28.2"

# By how much another kernel must be predicted to be faster than the library's before it is chosen,
# and how much of the error of predicted gains near the problem is added, in log time. The errors
# are the worst of each problem and of models with fewer steps, so a part of them is enough.
# docs/notes/margins.md says how both were chosen.
LEAST_MARGIN, ERROR_WEIGHT = 1.05, 0.5
# The margin of a model without evidence, and the least one for a dynamic size.
MARGIN = 1.15
_LEAST_LIKENESS = 0.01  # no gain is large enough for it; 0 is that of another generation of GPUs
_UNKNOWN_US = 1e12  # in place of the time of a library's kernel without a prediction: the longest


@dataclass(frozen=True)
class Policy:
    """The rule from predictions to choices, the same for all problems of a model on one GPU.

    At most `keep` kernels are chosen, of those predicted to take up to `threshold` times the
    shortest time. `likeness`, from 0 to 1, is that of the GPU to those that the model was trained
    on: a larger gain is asked of a borrowed model, and of one that learned such problems on another
    GPU only.
    """

    likeness: float = 1.0
    keep: int = 1
    threshold: float = 1.0

    def compare(
        self,
        prediction: Prediction,
        *,
        problems: Sequence[Problem] = (),
        predicted_us: Microseconds | None = None,
        saved_us: Sequence[float] = (0.0,),
    ) -> Comparison:
        """Return what the candidates of a prediction cost, and what they must fulfil.

        For a dynamic size, `problems` are the predicted problem and others with other values of
        the size, and `predicted_us` [problems, n] their times. What is known near one value says
        little about the others, and does not make the margin smaller than that of a model without
        evidence. `saved_us` [problems] is what fusing the epilogue saves.
        """
        problem, candidates = prediction.problem, prediction.candidates
        likeness = self.likeness * prediction.likeness
        margin, proven = MARGIN, prediction.proven
        if prediction.error is not None:
            margin = LEAST_MARGIN * math.exp(ERROR_WEIGHT * prediction.error)
            if len(problems) > 1:
                margin = max(margin, MARGIN)
        if proven is None:
            proven = ~encode(candidates).tiled | (problem.bias not in RARE_BIASES)
        return Comparison(
            problems=tuple(problems) or (problem,),
            candidates=candidates,
            predicted_us=prediction.predicted_us[None] if predicted_us is None else predicted_us,
            saved_us=tuple(saved_us),
            library=plain_library_call(candidates),
            # An erratic kernel was seldom timed, and can take many times as long as others of its
            # kind.
            proven=proven & ~spills_erratically(problem, candidates),
            margin=margin ** (1 / max(likeness, _LEAST_LIKENESS)),
            keep=self.keep,
            threshold=self.threshold,
            confidence=prediction.confidence,
        )

    def choose(self, prediction: Prediction) -> Choice | None:
        """Return the choice of one kernel for the predicted problem, where nothing is fused and no
        size is dynamic; None where the model has no prediction."""
        comparison = replace(self.compare(prediction), keep=1)
        places, why = comparison.choose()
        return comparison.choice(places, why) if places else None


@dataclass(frozen=True, eq=False)
class Comparison:
    """What n candidates cost for a problem, and what a kernel must fulfil to be chosen.

    `problems` are the problem and, where a size is dynamic, others with other values of the size;
    `predicted_us` is [problems, n], and `saved_us` [problems] what fusing the epilogue saves.
    `library` [n] marks the library's call of plain torch.compile, and `proven` [n] what may be
    chosen without being timed. Another kernel than the library's is worth its risk if it is
    predicted to be `margin` times as fast. `keep` and `threshold` are as in `Policy`, `confidence`
    as in `Choice`.
    """

    problems: tuple[Problem, ...]
    candidates: Sequence[Candidate]
    predicted_us: Microseconds
    saved_us: tuple[float, ...]
    library: Mask
    proven: Mask
    margin: float
    keep: int
    threshold: float
    confidence: float | None

    @cached_property
    def costs_us(self) -> Microseconds:
        """[problems, n] the predicted times with what fusing the epilogue, or not, adds. Where it
        saves time, that is added to the kernels that cannot fuse; where it costs time, to those
        that do."""
        if not any(self.saved_us):
            return self.predicted_us
        columns = encode(self.candidates)
        fuses = np.array([template_of(name).fuses_epilogue for name in columns.templates])
        saved = np.reshape(np.asarray(self.saved_us, np.float64), (-1, 1))
        added = np.where(fuses[columns.template], np.maximum(-saved, 0.0), np.maximum(saved, 0.0))
        costs: Microseconds = self.predicted_us + added
        return costs

    @cached_property
    def is_decided_by_fusing(self) -> bool:
        """Whether other kernels would be chosen if nothing was fused."""
        if not any(self.saved_us):
            return False
        alone = replace(self, saved_us=tuple(0.0 for _ in self.saved_us))
        return alone.choose()[0] != self.choose()[0]

    def choose(self) -> tuple[list[int], Why]:
        """Return the indices of the kernels to choose, best first, and why. There is none where no
        kernel's cost is known for all problems.

        The `keep` best by the geometric mean of the costs are chosen, if they are within
        `threshold` times the least. One kernel alone has to be worth its risk. Several are timed by
        Inductor, and a library's kernel is added at the end where there is none among them: where a
        template's inputs got other layouts than it was timed with, Inductor's scheduler falls back
        to a library's kernel and asserts that there is one.
        """
        score = mean_us(self.costs_us)
        order = np.argsort(score, kind="stable")[: self.keep]
        order = order[score[order] <= self.threshold * score[order[:1]]]
        kept = [int(i) for i in order if score[i] < np.inf]
        if len(kept) < 2:
            return self._choose_alone(score) if kept else ([], Why.FASTEST)
        if self.library.any() and not self.library[kept].any():
            kept.append(best_of_library(score, self.library))
        return kept, Why.SEVERAL

    def _choose_alone(self, score: Microseconds) -> tuple[list[int], Why]:
        """Return the one kernel to choose, by the mean costs `score` [n]. A kernel that is not the
        library's must be `margin` times as fast in the mean, be proven, and not be slower for any
        of the problems."""
        known = score < np.inf
        best = int(score.argmin())
        library = best_of_library(score, self.library) if self.library.any() else None
        if library is None or not known[library]:
            proven = known & self.proven
            found = np.where(proven, score, np.inf).argmin() if proven.any() else best
            return [int(found)], Why.FASTEST
        if self.library[best]:
            return [best], Why.FASTEST
        worth = known & (score[library] / score >= self.margin)
        if not worth.any():
            return [library], Why.LIBRARY
        worth &= self.proven
        if not worth.any():
            return [library], Why.UNPROVEN
        worth &= (self.costs_us <= self.costs_us[:, [library]]).all(axis=0)
        if not worth.any():
            return [library], Why.SIZES
        return [int(np.where(worth, score, np.inf).argmin())], Why.FASTEST

    def find_library(self, places: Sequence[int] = ()) -> int | None:
        """Return the index of the library's kernel: the first of these places that is one, else the
        best of all; None where there is none."""
        chosen = (i for i in places if self.candidates[i].is_extern)
        best = best_of_library(self.costs_us[0], self.library) if self.library.any() else None
        return next(chosen, best)

    def choice(self, places: Sequence[int], why: Why) -> Choice:
        """Return the choice of the kernels at these places."""
        us, library = self.costs_us[0], self.find_library(places)
        has_us = is_known(us)
        return Choice(
            problem=self.problems[0],
            candidates=tuple(self.candidates[i] for i in places),
            predicted_us=tuple(us[list(places)].tolist()),
            library_us=float(us[library]) if library is not None and has_us[library] else None,
            confidence=self.confidence,
            why=why,
        )

    @classmethod
    def join(cls, parts: Sequence[tuple[Comparison, int]]) -> Comparison:
        """Return the comparison of single candidates, each at a place of another comparison, of one
        op that has asked for kernels several times. The terms are those of the largest part, and
        the problems those that all parts have."""
        largest = max((part for part, _ in parts), key=lambda part: len(part.candidates))
        rows = [{_matrices(p): i for i, p in enumerate(part.problems)} for part, _ in parts]
        shared = [all(_matrices(p) in row for row in rows) for p in largest.problems]
        problems = tuple(p for p, there in zip(largest.problems, shared, strict=True) if there)
        saved = tuple(us for us, there in zip(largest.saved_us, shared, strict=True) if there)
        candidates = [part.candidates[place] for part, place in parts]
        us = [
            [
                part.predicted_us[row[_matrices(p)], place]
                for (part, place), row in zip(parts, rows, strict=True)
            ]
            for p in problems
        ]
        return replace(
            largest,
            problems=problems,
            candidates=candidates,
            predicted_us=np.array(us),
            saved_us=saved,
            library=plain_library_call(candidates),
            proven=np.array([part.proven[place] for part, place in parts], np.bool_),
        )


def plain_library_call(candidates: Sequence[Candidate]) -> Mask:
    """Return [n] which candidate is the library's call that plain torch.compile makes. For addmm
    with a bias vector there are two library kernels; it is the one that does not copy the
    vector."""
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


def best_of_library(us: Microseconds, library: Mask) -> int:
    """Return the index of the library's kernel with the shortest time; any of the library's where
    no time is known. There must be at least one."""
    times = np.where(is_known(us), us, np.inf)
    return int(np.where(library, np.minimum(times, _UNKNOWN_US), np.inf).argmin())


def mean_us(costs_us: Microseconds) -> Microseconds:
    """Return [n] the geometric mean over the problems [problems, n]; infinite where one is
    unknown."""
    if len(costs_us) == 1:
        return np.where(is_known(costs_us[0]), costs_us[0], np.inf)
    usable = is_known(costs_us).all(axis=0)
    logs = np.log(np.where(usable, costs_us, 1.0))
    return np.where(usable, np.exp(logs.mean(axis=0)), np.inf)


def _matrices(problem: Problem) -> Hashable:
    """Return the matrices of a problem, whatever its bias, of which an op asks in several forms."""
    return problem.B, problem.M, problem.N, problem.K, problem.a, problem.b
