"""The decision on a product, and the part of it that each of its choices carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diode_engine.choosing.choice import Why
from diode_engine.choosing.outcomes import Outcomes
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.inductor.lowering.annotations import annotation_of

ANNOTATION = "diode"


@dataclass(frozen=True)
class Pick:
    """A chosen kernel, without the graph for which it was chosen. `costs_us` are its predicted time
    plus what it costs not to fuse, for each of the decision's problems. `proven` is as in `Policy`,
    for this kernel."""

    uid: str
    params: Any
    candidate: Candidate
    costs_us: tuple[float, ...]
    proven: bool

    @property
    def cost_us(self) -> float:
        """The cost for the first problem, which has the hints of dynamic sizes."""
        return self.costs_us[0]


@dataclass(frozen=True)
class Decision:
    """What is kept of what was offered.

    `picks`, best first, are at most `keep` kernels whose cost is within `threshold` times the
    least, and a library's kernel.
    """

    # The problem with the hints of its sizes and, where a size is dynamic, problems with other
    # values that it may have at run time.
    problems: tuple[Problem, ...]
    picks: tuple[Pick, ...]
    library: Pick | None  # the best of the library's kernels, kept or not
    keep: int
    threshold: float
    why: Why
    confidence: float | None
    margin: float  # by how much a kernel that is not the library's must be predicted to be faster
    saved_us: tuple[float, ...]  # what fusing the epilogue saves, for each problem
    fusing_decided: bool  # whether another kernel would be first if nothing was fused
    considered: int  # how many kernels were offered

    @property
    def problem(self) -> Problem:
        """The problem with the hints of its sizes."""
        return self.problems[0]


@dataclass(frozen=True)
class ChosenKernel:
    """The annotation of a rendered choice, which `final_choice` reads."""

    pick: Pick
    decision: Decision
    outcomes: Outcomes  # of the installed choices that made the decision
    remembered: bool  # whether the problem was met before


def chosen_kernel_of(choice: Any) -> ChosenKernel | None:
    """What Diode predicted for one of Inductor's rendered choices; None where it predicted
    nothing."""
    prediction: ChosenKernel | None = annotation_of(choice, ANNOTATION)
    return prediction
