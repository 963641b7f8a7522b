"""What the model would choose at compile time: among all that Inductor offers, not only among what
was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from diode_engine.choosing.prediction import Prediction
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits
from diode_engine.core.table import TimingTable
from diode_engine.problems.spaces import exhaustive_space
from diode_engine.validation.choosers import kernel_keys
from diode_engine.validation.metrics import Values
from diode_engine.validation.pool import CandidatePool


class JudgedModel(Protocol):
    """A model that is judged, such as models.predictor.Predictor."""

    def predict_table(self, table: TimingTable) -> Values:
        """[n] microseconds for each row; NaN where it has no prediction."""

    def predict(self, problem: Problem, candidates: Sequence[Candidate]) -> Prediction:
        """The candidates, best first, and how sure that is."""


@dataclass(frozen=True)
class CompileTime:
    """The choice among all that Inductor's EXHAUSTIVE space offers. `measured` says whether its
    time is known; `confidence` how sure the model is of it. There is no choice where the model has
    no prediction."""

    choice: Candidate | None
    measured: bool
    confidence: float | None


def at_compile_time(pool: CandidatePool, model: JudgedModel) -> list[CompileTime]:
    """One result for each of the pool's cases."""
    out = []
    keys = kernel_keys(pool.table.candidates)
    for problem, environment, rows in pool.cases():
        space = exhaustive_space(problem, environment.torch)
        fitting = np.flatnonzero(fits(problem, space, environment.hardware))
        offered = [space[i] for i in fitting]
        ranking = model.predict(problem, offered)
        if not len(ranking.order):
            out.append(CompileTime(None, False, None))
            continue
        choice = offered[ranking.order[0]]
        known = {keys[candidate] for candidate in pool.table.candidate[rows].tolist()}
        measured = kernel_keys((choice,))[0] in known
        out.append(CompileTime(choice, measured, ranking.confidence))
    return out
