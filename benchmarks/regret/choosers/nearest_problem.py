"""A look-up without a model: what was fastest on the nearest problem that training may learn from
(the shipped datasets of directly launched kernels), among the candidates that both have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from diode_records import Choose, of_records

from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.models.neighbours import distances, places
from diode_engine.problems.harvested import is_of_held_out_family
from diode_engine.problems.splits import is_held_out_by_size
from diode_engine.store import read_dataset
from diode_engine.validation.choosers import kernel_keys

DATASETS = Path(__file__).parents[3] / "datasets" / "nvidia-h200"
Times = dict[tuple[object, ...], float]  # by kernel


def chooser(_: str) -> Choose:
    problems: list[Problem] = []
    times: list[Times] = []
    for file in (*sorted(DATASETS.glob("gemm-direct-*.zst")), *DATASETS.glob("harvest-*.zst")):
        table = read_dataset(file)
        table = table.take(table.failure == 0)
        keys = kernel_keys(table.candidates)
        for place, rows in table.groups():
            problem = table.problems[place]
            if not (is_held_out_by_size(problem) or is_of_held_out_family(problem)):
                problems.append(problem)
                us = table.time_us[rows]
                times.append({keys[i]: t for i, t in zip(table.candidate[rows], us, strict=True)})
    where = places(problems)

    def choose(problem: Problem, candidates: list[Candidate]) -> list[int]:
        there = times[int(np.argmin(distances(problem, where)))]
        us = np.array([there.get(key, np.inf) for key in kernel_keys(candidates)])
        order: list[int] = np.argsort(us, kind="stable")[: np.isfinite(us).sum()].tolist()
        return order

    return of_records(choose, "nearest problem")
