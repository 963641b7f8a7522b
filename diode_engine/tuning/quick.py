"""Models that are made in seconds: they choose what is timed next, and make the learning curve."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from diode_engine.core.table import TimingTable
from diode_engine.errors import TrainingError
from diode_engine.models.artifact import Artifact
from diode_engine.models.coverage import Coverage
from diode_engine.models.manifest import Data, Manifest
from diode_engine.models.model_types import ENSEMBLE, NETWORKS, TUNED
from diode_engine.models.predictor import Predictor
from diode_engine.problems.splits import fold
from diode_engine.training.confidence import FOLDS, STEPS_DIVISOR
from diode_engine.training.correction import correct_to, has_xgboost
from diode_engine.training.distillation import distillation_labels, drawn_problems
from diode_engine.training.fit_steps import FitTask
from diode_engine.training.fits import IN_THIS_PROCESS, FitExecutor
from diode_engine.training.settings import TrainingSettings
from diode_engine.training.trainable_rows import TrainingSplit
from diode_engine.validation import evaluate

_PARTS = 8  # that the problems are divided into; a share of the learning curve is some of them
SHARES = (0.25, 0.5, 1.0)
_LESSONS = (200, 4000)  # the least and the most problems of TrainingSettings.lessons
# The work of a training, in units of making all distillation labels. Fitting a network to them
# takes about one more unit. Without a model to start from, the fits for the confidence follow, with
# fewer labels and fewer steps.
_TUNED_WORK = 2.0
_WORK = _TUNED_WORK + FOLDS * (1 / STEPS_DIVISOR + 1 / STEPS_DIVISOR**2)
_TRIED = 8  # problems that are labelled, to see how long it takes
_QUICK = (
    TrainingSettings()
    .but("trees", rounds=250, learning_rate=0.15, max_depth=8)
    .but("network", epochs=20)
)


def family(base: Artifact | None) -> str:
    """The family of the final model: a small network where a family that can teach it is
    installed."""
    return TUNED if base is not None or has_xgboost() else NETWORKS


def settings(
    minutes: float, base: Artifact | None, seconds: float, seconds_to_label: float | None
) -> TrainingSettings:
    """The settings of a training that takes about the `seconds` that are left. `base` is the model
    that it starts from; `seconds_to_label` is how long a teacher takes to label one problem (None:
    not known)."""
    rounds = int(np.clip(60 * minutes, 100, 600))
    lessons = 250 * minutes
    if seconds_to_label is not None:
        work = _WORK if base is None else _TUNED_WORK
        lessons = min(lessons, seconds / (work * seconds_to_label))
    return TrainingSettings(lessons=int(np.clip(lessons, *_LESSONS))).but(
        "trees", rounds=rounds, max_depth=8
    )


def seconds_to_label(model: Artifact, torch: str, clock: Callable[[], float]) -> float | None:
    """Return how long the model takes to label one problem on this machine; None where it
    covers no problem that can be drawn."""
    coverage, hardware = model.manifest.coverage, model.manifest.hardware
    problems = drawn_problems(coverage, _TRIED, seed=0)
    if not problems:
        return None
    began = clock()
    distillation_labels(
        model.members, coverage, [(problem, hardware) for problem in problems], torch=torch
    )
    return (clock() - began) / len(problems)


def quick_model(
    rows: TimingTable,
    base: Artifact | None,
    *,
    check: Callable[[], None],
    fits: FitExecutor = IN_THIS_PROCESS,
) -> Artifact:
    """A model of the rows to learn from. Without a base it is a new model with a quarter of the
    steps, whose members `fits` makes; with a base it is the base with a
    correction. `check` is called now and then; what it raises ends the fit. Raises TrainingError
    where there are too few problems."""
    check()
    environment = rows.first_environment
    hardware, coverage = environment.hardware, Coverage.make(rows)
    if base is None:
        task = FitTask(rows, ENSEMBLE if has_xgboost() else NETWORKS, settings=_QUICK)
        (members,) = fits.fit_all([task], lambda *_: check())
    else:
        members = correct_to(rows, base)
        coverage = base.manifest.coverage.joined(coverage)
    manifest = Manifest(
        name="quick", family="quick", hardware=hardware, coverage=coverage,
        data=Data(problems=rows.count_problems(), timings=len(rows)),
    )  # fmt: skip
    return Artifact(manifest, members)


def learning_curve(
    split: TrainingSplit,
    base: Artifact | None,
    *,
    check: Callable[[], None],
    fits: FitExecutor = IN_THIS_PROCESS,
) -> list[dict[str, float]]:
    """What quick models of shares of the problems reach on the held-out ones: `share`, `problems`,
    `timings` and `efficiency` for each of SHARES, without those that have too few problems."""
    parts = np.array([fold(p, _PARTS) for p in split.learned.problems], np.intp)
    points = []
    for share in SHARES:
        rows = split.learned.take((parts < share * _PARTS)[split.learned.problem])
        try:
            model = quick_model(rows, base, check=check, fits=fits)
            report = evaluate(split.judged, Predictor(model))
        except TrainingError:
            continue
        points.append(
            {
                "share": share,
                "problems": rows.count_problems(),
                "timings": len(rows),
                "efficiency": report.choosers[0].top[1].geomean,
            }
        )
    return points
