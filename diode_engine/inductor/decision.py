"""What is decided of a GEMM, and how it comes into force.

An op can ask for choices several times; every choice carries what was decided of it to
`final_choice`, which sees the complete list of one op.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from diode_engine.inductor import layouts, trace
from diode_engine.inductor.stats import Fallback, Selection, Why
from diode_engine.problem import Candidate, DType, Problem

if TYPE_CHECKING:
    from diode_engine.inductor.chooser import Chooser

log = logging.getLogger(__name__)

Microseconds = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

ANNOTATION = "diode"
# By how much another kernel must be predicted to be faster than the library's before it is taken.
# The least margins with which, of 1,353 fresh problems of real layers on an H200, fewer than 0.6 %
# became slower than with the library's kernel by over 5 % (benchmarks/never_slower.py; on the 1,018
# problems of other families it is then 0.3 %). Predictions are least certain for float32.
_MARGIN = 1.1
_MARGIN_TF32 = 1.2
_MARGIN_FLOAT32 = 1.3
# A choice that is less sure to be within 5 % of the best is left to the library.
LEAST_CONFIDENCE = 0.3
_UNKNOWN_US = 1e12  # of a library's kernel without a prediction: after all others


@dataclass(frozen=True)
class Pick:
    """A chosen kernel, apart from the graph it was chosen in. `costs_us` are its predicted time
    and what it costs not to fuse, for each of the decision's problems."""

    uid: str
    params: Any
    candidate: Candidate
    costs_us: tuple[float, ...]

    @property
    def cost_us(self) -> float:
        """Of the problem by its hints."""
        return self.costs_us[0]


@dataclass(frozen=True)
class Decision:
    """What is kept of what was offered: `picks`, best first, are at most `keep` whose cost is
    within `threshold` times the least one, and a library's kernel; `library` is the best of these,
    kept or not. `problems` are the problem by its hints and, where a size is dynamic, others that
    it may turn out to be. `sure` is whether the model knows enough for a kernel that is not the
    library's. `saved_us` is what fusing the
    epilogue saves, `swayed` whether another would be first without that, `considered` how many
    were offered."""

    problems: tuple[Problem, ...]
    picks: tuple[Pick, ...]
    library: Pick | None
    keep: int
    threshold: float
    why: Why
    confidence: float | None
    sure: bool
    saved_us: float
    swayed: bool
    considered: int

    @property
    def problem(self) -> Problem:
        return self.problems[0]


@dataclass(frozen=True)
class Prediction:
    """What a rendered choice carries to the end of the pipeline."""

    pick: Pick
    decision: Decision
    chooser: Chooser
    remembered: bool


def fuses(uid: str) -> bool:
    """Whether Inductor fuses an epilogue into this template's kernels."""
    return uid.startswith("triton::")


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
    least must be known for all problems. `library` [n] is `usual`.

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
    usual_one = int(np.where(library, np.minimum(score, _UNKNOWN_US), np.inf).argmin())
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


def prediction_of(choice: Any) -> Prediction | None:
    """What Diode predicted for one of Inductor's rendered choices; None where it did not."""
    return (getattr(choice, "annotations", None) or {}).get(ANNOTATION)


def final_choice(choices: list[Any]) -> list[Any]:
    """A preprocessing function of Inductor's: `_best_of` the complete list of one op, or where
    that fails the list as it is, whose choices Inductor benchmarks."""
    chooser: Chooser | None = None
    try:
        seen = [p for p in map(prediction_of, choices) if p is not None]
        chooser = seen[0].chooser if seen else None
        return _best_of(choices)
    except Exception as error:
        if chooser is None:  # what is there instead of Diode's annotations is not Diode's
            log.debug("A list of choices could not be read.", exc_info=True)
        else:
            chooser.failed("the last choice failed", error)
        return choices


def _best_of(choices: list[Any]) -> list[Any]:
    """The best of the complete list of one op.

    Where another backend (CUTLASS, an external matmul, …) has added a kernel, the list stays
    as it is and Inductor benchmarks it: whoever turned that backend on wants it considered,
    and no prediction says how it compares.
    """
    seen = [p for p in map(prediction_of, choices) if p is not None]
    if not seen:
        return choices
    chooser = seen[0].chooser
    if len(seen) < len(choices):
        chooser.fall_back(
            Fallback.FOREIGN_CHOICE, "another backend offers kernels that the model cannot predict"
        )
        return choices
    # An op that has asked several times is judged by the time that it offered most.
    decision = max((p.decision for p in seen), key=lambda decision: decision.considered)
    costs = np.array([p.pick.costs_us for p in seen]).T
    library = usual([p.pick.candidate.template for p in seen])
    choose = partial(
        chosen, library=library, keep=decision.keep, threshold=decision.threshold,
        factor=margin(decision.problem), sure=decision.sure,
    )  # fmt: skip
    order, why = choose(costs)
    if why is Why.FASTEST and len(seen) == 1:
        why = decision.why
    if len(order) == 1 and not seen[order[0]].pick.candidate.is_extern:
        operands = choices[order[0]].input_nodes
        if library.any() and layouts.will_move(operands):
            order, why = [int(np.where(library, costs[0], np.inf).argmin())], Why.LAYOUT
        elif "tma" in seen[order[0]].pick.uid:
            layouts.freeze(operands)
    if decision.saved_us:
        alone = costs - np.where([fuses(p.pick.uid) for p in seen], 0.0, decision.saved_us)
        swayed = decision.swayed or choose(alone)[0] != order
        chooser.stats.count("fusion_decided", int(swayed))
    selection = Selection(
        decision.problem,
        tuple(seen[i].pick.candidate for i in order),
        tuple(seen[i].pick.cost_us for i in order),
        None if decision.library is None else decision.library.cost_us,
        decision.confidence,
        seen[order[0]].remembered,
        why,
    )
    chooser.stats.selected(selection)
    trace.tell(selection)
    return [choices[i] for i in order]
