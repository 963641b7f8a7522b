"""Decides which of the offered kernels of a product are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from diode_engine.choosing.choice import Why
from diode_engine.choosing.outcomes import LeftToStock
from diode_engine.choosing.policy import (
    MARGIN,
    Policy,
    best_of_library,
    chosen,
    plain_library_call,
    taken,
)
from diode_engine.choosing.stats import Fallback
from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import CandidateTable
from diode_engine.core.problem import Problem
from diode_engine.core.templates import template_of
from diode_engine.inductor.choosing.compile_options import CompileOptions
from diode_engine.inductor.choosing.decision import Decision, Pick
from diode_engine.inductor.choosing.times import Times
from diode_engine.inductor.fusion.epilogue import charged_us
from diode_engine.inductor.lowering.space import OfferedSpace


class Taken(NamedTuple):
    """The kernel that is taken, and its predicted time in microseconds."""

    candidate: Candidate
    us: float
    library: Taken | None = None  # the library's kernel, where it is another one and its time known


class Decider:
    """Decides for one model on one GPU. The best `top_k` kernels are kept, of those that are
    predicted to take up to `threshold` times the shortest time.

    If one kernel alone is kept, it has to be worth its risk (`choosing/policy.py`); if several
    are kept, Inductor benchmarks them. For a product with a dynamic size one is kept. A choice that
    is less sure than the option diode_confidence_threshold keeps as many as are needed to reach it.
    """

    def __init__(self, times: Times, *, top_k: int, threshold: float) -> None:
        self._times = times
        self._top_k = top_k
        self._threshold = threshold

    def decide(
        self,
        problems: Sequence[Problem],
        saved_us: Sequence[float],
        untimed: bool,
        options: CompileOptions,
        space: OfferedSpace,
    ) -> Decision:
        """The kernels to keep for the problems, of which the first has the hints of dynamic sizes
        and the others have other values that these may take. `saved_us` is what fusing the epilogue
        saves for each problem. `untimed` says whether no kernel was timed in this form: one matrix
        stands for a whole batch, Triton's code does not know how the rows are aligned, or a matrix
        may be too large for it. A library's kernel is taken then. Raises LeftToStock where no
        kernel can be chosen."""
        candidates, problem = space.candidates, problems[0]
        if not len(candidates):
            return Decision(
                tuple(problems), (), None, self._top_k, self._threshold, Why.FASTEST, None, MARGIN,
                (0.0,), False, 0,
            )  # fmt: skip
        ranking = self._times.ranking(problem, candidates)
        if not len(ranking.order):
            raise LeftToStock(Fallback.NO_PREDICTION, f"the model has no prediction for {problem}")
        confidence = ranking.confidence
        policy = Policy.of(problem, candidates, ranking, dynamic=len(problems) > 1)
        if untimed:
            policy = replace(policy, proven=policy.library)
        keep, threshold = options.top_k or self._top_k, self._threshold
        if confidence is not None and not confidence >= options.confidence:
            if options.fallback:
                raise LeftToStock(
                    Fallback.LOW_CONFIDENCE,
                    f"the model is {confidence:.0%} sure of {problem}, which is less than the "
                    f"{options.confidence:.0%} of diode_confidence_threshold",
                )
            keep, threshold = max(keep, ranking.count_to_reach(options.confidence) or 0), np.inf
        # A benchmark of several kernels would use the hints alone, and the kernel that is fastest
        # there may be slow for other values of a dynamic size.
        if options.deterministic or len(problems) > 1:
            keep = 1
        columns = candidates.columns
        library = policy.library
        fuses = [template_of(uid).fuses_epilogue for uid in columns.templates]
        fused = np.array(fuses)[columns.template]
        alone = self._times.over(problems, candidates, ranking, library)
        choose = partial(chosen, policy=policy, keep=keep, threshold=threshold)
        cost = alone + charged_us(saved_us, fused)
        order, why = choose(cost)
        if not order:
            raise LeftToStock(
                Fallback.NO_PREDICTION, f"the model knows no kernel for all sizes of {problem}"
            )
        fusing_decided = any(saved_us) and choose(alone)[0] != order

        def pick(i: int) -> Pick:
            costs_us, proven = tuple(cost[:, i].tolist()), bool(policy.proven[i])
            return Pick(space.uid(i), space.params(i), candidates[i], costs_us, proven)

        picks = [pick(i) for i in order]
        best = next((p for p in picks if p.candidate.is_extern), None)
        if best is None and library.any():
            best = pick(best_of_library(cost[0], library))
            # With another backend's kernel there are several choices, and then one of them must be
            # a library's (see policy.chosen).
            if options.other_backends:
                picks.append(best)
        return Decision(
            tuple(problems), tuple(picks), best, keep, threshold, why, confidence,
            policy.margin, tuple(saved_us), fusing_decided, len(candidates),
        )  # fmt: skip

    def taken(self, problem: Problem, candidates: CandidateTable) -> Taken | None:
        """The kernel that is taken if one alone is kept and nothing is fused into it; None where
        the model predicts none."""
        ranking = self._times.ranking(problem, candidates)
        if not len(ranking.order):
            return None
        place, _ = taken(problem, candidates, ranking)
        us, library = ranking.predicted_us, plain_library_call(candidates)

        def taken_at(i: int) -> Taken:
            return Taken(candidates[i], float(us[i]))

        usual_one = best_of_library(us, library) if library.any() else place
        known_one = usual_one != place and us[usual_one] > 0
        return taken_at(place)._replace(library=taken_at(usual_one) if known_one else None)
