"""The decision on a product, and the part of it that each of its choices carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diode_engine.core.problem import Candidate, Problem
from diode_engine.inductor.choosing.outcomes import Outcomes
from diode_engine.inductor.lowering.annotations import annotation_of
from diode_engine.models.preference import Why

ANNOTATION = "diode"


@dataclass(frozen=True)
class Pick:
    """A chosen kernel, without the graph for which it was chosen. `costs_us` are its predicted time
    plus what it costs not to fuse, for each of the decision's problems."""

    uid: str
    params: Any
    candidate: Candidate
    costs_us: tuple[float, ...]

    @property
    def cost_us(self) -> float:
        """The cost for the problem by its hints."""
        return self.costs_us[0]


@dataclass(frozen=True)
class Decision:
    """What is kept of what was offered.

    `picks`, best first, are at most `keep` kernels whose cost is within `threshold` times the
    least, and a library's kernel; `library` is the best of the library's, kept or not. `problems`
    are the problem by its hints and, where a size is dynamic, others that it may be at run time.
    `sure` says whether the model is sure enough for a kernel that is not the library's. `saved_us`
    is what fusing the epilogue saves for each problem; `fusing_decided` whether another kernel
    would be first without that; `considered` how many were offered.
    """

    problems: tuple[Problem, ...]
    picks: tuple[Pick, ...]
    library: Pick | None
    keep: int
    threshold: float
    why: Why
    confidence: float | None
    sure: bool
    saved_us: tuple[float, ...]
    fusing_decided: bool
    considered: int

    @property
    def problem(self) -> Problem:
        return self.problems[0]


@dataclass(frozen=True)
class Prediction:
    """What a rendered choice carries to the end of the pipeline."""

    pick: Pick
    decision: Decision
    outcomes: Outcomes  # of the installation that has decided
    remembered: bool


def prediction_of(choice: Any) -> Prediction | None:
    """What Diode predicted for one of Inductor's rendered choices; None where it predicted
    nothing."""
    prediction: Prediction | None = annotation_of(choice, ANNOTATION)
    return prediction
