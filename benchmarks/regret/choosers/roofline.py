"""The least base time of Diode's features: arithmetic from the data sheet, no learning."""

from __future__ import annotations

import numpy as np
from diode_records import Choose, of_records

from diode_engine import features
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem


def chooser(_: str) -> Choose:
    def choose(problem: Problem, candidates: list[Candidate]) -> list[int]:
        places = np.zeros(len(candidates), np.intp), np.arange(len(candidates))
        known = np.flatnonzero(features.supported((problem,), candidates, *places))
        if not len(known):
            return []
        base = features.space(problem, candidates, H200).base[known]
        order: list[int] = known[np.argsort(base, kind="stable")].tolist()
        return order

    return of_records(choose, "roofline")
