"""What is decided of a GEMM, and how it comes into force.

An op can ask for choices several times; every choice carries what was decided of it to
`final_choice`, which sees the complete list of one op.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from torch.utils._ordered_set import OrderedSet

from diode_engine.core.problem import Candidate, Problem
from diode_engine.core.templates import template_of
from diode_engine.inductor.choosing import trace
from diode_engine.inductor.choosing.stats import Fallback, Selection, Stats
from diode_engine.inductor.fusion.epilogue import charged_us
from diode_engine.inductor.lowering import layouts
from diode_engine.models.preference import Policy, Why, best_of_library, chosen

log = logging.getLogger(__name__)

ANNOTATION = "diode"


class Decider(Protocol):
    """Who decides, a Chooser: is told what came of it."""

    stats: Stats

    def fall_back(self, reason: Fallback, why: str) -> None:
        """A GEMM was left to stock Inductor."""

    def failed(self, what: str, error: Exception) -> None:
        """Diode's own code raised; what was decided is left to stock Inductor."""


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
    library's. `saved_us` is what fusing the epilogue saves of each problem, `swayed` whether
    another would be first without that, `considered` how many were offered."""

    problems: tuple[Problem, ...]
    picks: tuple[Pick, ...]
    library: Pick | None
    keep: int
    threshold: float
    why: Why
    confidence: float | None
    sure: bool
    saved_us: tuple[float, ...]
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
    chooser: Decider
    remembered: bool


def prediction_of(choice: Any) -> Prediction | None:
    """What Diode predicted for one of Inductor's rendered choices; None where it did not."""
    return (getattr(choice, "annotations", None) or {}).get(ANNOTATION)


def _keep_as_predicted(template: Any, uid: str) -> None:
    """Has Inductor leave a template that is the only choice as it was predicted.

    Pointwise ops before a product it would fuse into the template's loads without timing that, and
    a kernel that converts or computes what it loads can take five times as long. (Of several
    choices it times both.)"""
    known = template_of(uid)
    if known.fuses_prologue and hasattr(template, "allowed_prologue_inps"):
        template.allowed_prologue_inps = OrderedSet()
    if known.tma:
        layouts.freeze(template.input_nodes)


def final_choice(choices: list[Any]) -> list[Any]:
    """A preprocessing function of Inductor's: `_best_of` the complete list of one op, or where
    that fails the list as it is, whose choices Inductor benchmarks."""
    chooser: Decider | None = None
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
    policy = replace(
        Policy.of(decision.problem, [p.pick.candidate for p in seen], None), sure=decision.sure
    )
    choose = partial(chosen, policy=policy, keep=decision.keep, threshold=decision.threshold)
    order, why = choose(costs)
    if why is Why.FASTEST and len(seen) == 1:
        why = decision.why
    if len(order) == 1 and not seen[order[0]].pick.candidate.is_extern:
        operands = choices[order[0]].input_nodes
        if policy.library.any() and layouts.will_move(operands):
            order, why = [best_of_library(costs[0], policy.library)], Why.LAYOUT
        else:
            _keep_as_predicted(choices[order[0]], seen[order[0]].pick.uid)
    if any(decision.saved_us):
        fused = np.array([template_of(p.pick.uid).fuses_epilogue for p in seen], np.bool_)
        alone = costs - charged_us(decision.saved_us, fused)
        swayed = decision.swayed or choose(alone)[0] != order
        chooser.stats.count("fusion_decided", int(swayed))
    library_us = None if decision.library is None else decision.library.cost_us
    if library_us is not None and not math.isfinite(library_us):
        library_us = None
    selection = Selection(
        decision.problem,
        tuple(seen[i].pick.candidate for i in order),
        tuple(seen[i].pick.cost_us for i in order),
        library_us,
        decision.confidence,
        seen[order[0]].remembered,
        why,
    )
    chooser.stats.selected(selection)
    trace.tell(selection)
    return [choices[i] for i in order]
