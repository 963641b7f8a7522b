"""Fits a model's confidence, to its training problems alone.

The problems are divided into folds. Models that are made in the same way, with fewer steps, predict
each fold without having seen it. The confidence is fitted to how good their choices were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from diode_engine import features
from diode_engine.choosing.evidence import Misses, kernel_kinds
from diode_engine.core.table import TimingTable
from diode_engine.errors import TrainingError
from diode_engine.models.confidence import Confidence, distance
from diode_engine.models.fit_confidence import MIN_CASES, Unseen, fit_confidence
from diode_engine.models.fitting import Examples
from diode_engine.models.neighbours import Places, places
from diode_engine.models.protocol import TimingModel, answers_of
from diode_engine.problems.splits import SplitPart, folds
from diode_engine.training.trainable_rows import fitted_and_watched

# Three models with half the steps on two thirds of the problems cost as much as the model itself.
FOLDS = 3
STEPS_DIVISOR = 2  # how many times fewer steps than the model's own fit


def confidence_folds(table: TimingTable, seed: int) -> list[SplitPart]:
    """Return the folds of the rows to learn from; none where there are too few problems."""
    if table.count_problems() < MIN_CASES:
        return []
    parts = folds(table, FOLDS, seed=seed)
    try:
        for part in parts:
            fitted_and_watched(part.learned, seed=seed)
    except TrainingError:  # by chance too few problems fell into the other folds
        return []
    return parts


def learn_confidence(
    table: TimingTable,
    models: Sequence[Sequence[TimingModel]],
    *,
    seed: int = 0,
) -> Confidence | None:
    """Return the confidence of a model that is fitted to these rows; None where there are too few
    problems. `models` has the members of a model for each of `confidence_folds`, fitted to the rows
    of the other folds."""
    unseen: list[Unseen] = []
    misses = Misses()
    places_in_table = {int(problem): i for i, problem in enumerate(np.unique(table.problem))}
    for part, members in zip(confidence_folds(table, seed), models, strict=True):
        if not len(part.judged):
            continue
        seen = places_of(part.learned)
        judged = Examples.make(part.judged)
        log_us = answers_of(members, judged.x).astype(np.float64)
        library = judged.x[:, features.NAMES.index("aten")] > 0
        # All rows can be learned from, so the examples are these, sorted by problem.
        candidate = part.judged.candidate[np.argsort(part.judged.problem, kind="stable")]
        for start, count in zip(judged.starts, judged.counts, strict=True):
            rows = slice(start, start + count)
            place = int(judged.problem[start])
            problem = part.judged.problems[place]
            if count > 1:
                kinds = kernel_kinds(problem, [part.judged.candidates[i] for i in candidate[rows]])
                predicted, measured = log_us[:, rows], judged.log_us[rows].astype(np.float64)
                misses.add(
                    places_in_table[place], predicted.mean(axis=0), measured, library[rows], kinds
                )
                away = distance(problem, seen)
                unseen.append(Unseen(predicted, measured, library[rows], away))
    if len(unseen) < MIN_CASES:
        return None
    confidence = fit_confidence(unseen, places_of(table))
    return replace(confidence, evidence=misses.evidence(len(places_in_table)))


def places_of(table: TimingTable) -> Places:
    """The coordinates (neighbours.places) of the problems with timings."""
    return places(table.used_problems)
