"""What judges a model, and what its confidence is learned from, is unseen by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from diode_engine.core.table import TimingTable
from diode_engine.models.confidence import Confidence, distance
from diode_engine.models.fit_confidence import Unseen
from diode_engine.models.fit_trees import TreesSettings
from diode_engine.models.neighbours import Places
from diode_engine.problems.splits import folds
from diode_engine.training import confidence, fits
from diode_engine.training.confidence import (
    STEPS_DIVISOR,
    confidence_folds,
    learn_confidence,
    places_of,
)
from diode_engine.training.cross_validation import cross_validate
from diode_engine.training.fit_steps import FitTask, TaskSteps
from diode_engine.training.settings import TrainingSettings
from diode_engine.training.trainable_rows import learnable
from diode_engine.validation import ATEN, NEIGHBOUR, ROOFLINE
from tests.training.conftest import fit

SMALL = TrainingSettings(
    {"trees": TreesSettings(rounds=80, learning_rate=0.2, max_depth=4, threads=1)}
)


def keys(table: TimingTable) -> set[str]:
    return {table.problems[i].key for i in table.problem}


@pytest.fixture
def fitted_to(monkeypatch):
    """The problems of each fit."""
    seen: list[set[str]] = []

    class Recorded(TaskSteps):
        def __init__(self, task: FitTask, *rest: Any) -> None:
            seen.append(keys(task.learned))
            super().__init__(task, *rest)

    monkeypatch.setattr(fits, "TaskSteps", Recorded)
    return seen


def test_each_part_is_judged_by_a_model_that_has_not_seen_it(timings, fitted_to):
    steps: list[str] = []
    found = cross_validate(
        timings, "folds", family="trees", settings=SMALL,
        report=lambda member, progress: steps.append(member),
    )  # fmt: skip
    judged = [{case.problem.key for case in part.cases} for part in found.parts.values()]
    assert len(fitted_to) == len(judged) == 5
    for learned, part in zip(fitted_to, judged, strict=True):
        assert part
        assert not learned & part
    assert sum(map(len, judged)) == len(keys(timings))
    together = found.together()
    assert together.problems == len(keys(timings))
    parts = [(p.problems, p.efficiency) for p in found.parts.values()]
    mean = sum(n * np.log(e) for n, e in parts) / sum(n for n, _ in parts)
    assert together.geomean == pytest.approx(np.exp(mean))
    for other in (ATEN, ROOFLINE, NEIGHBOUR):
        summary = found.of_other(other)
        assert summary.geomean < together.geomean
    names = dict.fromkeys(step.partition(", ")[2] for step in steps)
    assert list(names) == list(found.parts)


def test_confidence_is_learned_from_what_its_models_have_not_seen(timings, monkeypatch):
    cases: list[list[Unseen]] = []
    real = confidence.fit_confidence

    def recording(unseen: list[Unseen], seen: Places) -> Confidence:
        cases.append(unseen)
        assert seen.shape[1] == len(keys(timings))
        return real(unseen, seen)

    monkeypatch.setattr(confidence, "fit_confidence", recording)
    usable = learnable(timings)
    parts = confidence_folds(usable, 0)
    models = [
        fit(part.learned, "trees", settings=SMALL.with_fewer_steps(STEPS_DIVISOR)) for part in parts
    ]
    assert learn_confidence(usable, models) is not None
    (unseen,) = cases
    assert len(unseen) == len(keys(usable))
    away = [
        distance(part.judged.problems[i], places_of(part.learned))
        for part in folds(usable, 3)
        for i in set(part.judged.problem.tolist())
    ]
    np.testing.assert_allclose(sorted(case.away for case in unseen), sorted(away))
    few = usable.take(usable.problem < 40)
    assert confidence_folds(few, 0) == []
    assert learn_confidence(few, []) is None
