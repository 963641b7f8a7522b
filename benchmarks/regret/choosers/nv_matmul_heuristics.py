"""NVIDIA's nvMatmulHeuristics (PyPI nvidia-matmul-heuristics), asked for Triton kernels on an H200;
the nearest of the Triton template's candidates stands for each that it suggests."""

from __future__ import annotations

import sys

import numpy as np
from diode_records import Choose, of_records

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.validation import nv_heuristics


def chooser(_: str) -> Choose:
    if why := nv_heuristics.unavailable(H200):
        sys.exit(why)

    def choose(problem: Problem, candidates: list[Candidate]) -> list[int]:
        usable = np.ones(len(candidates), np.bool_)
        rank = nv_heuristics.ranking(problem, candidates, usable, H200)
        order: list[int] = np.argsort(rank, kind="stable")[: np.isfinite(rank).sum()].tolist()
        return order

    return of_records(choose, "nvMatmulHeuristics")
