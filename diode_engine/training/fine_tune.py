"""Fine-tuning: a model that is better than its base on a user's problems and predicts the same on
others, or a model for another GPU than its base."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diode_engine.core.hardware import Hardware
from diode_engine.core.table import TimingTable
from diode_engine.errors import TrainingError
from diode_engine.models.artifact import Artifact
from diode_engine.models.fitting import Checkpoint, Examples, ProgressCallback
from diode_engine.models.model_types import MODEL_TYPES, TUNED
from diode_engine.models.protocol import TimingModel, answers_of
from diode_engine.store.datasets.key import dataset_key
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.correction import correct_to
from diode_engine.training.distillation import (
    distillation_labels,
    drawn_problems,
    problems_unlike,
    split_labels,
    with_timings,
)
from diode_engine.training.settings import TrainingSettings
from diode_engine.training.trainable_rows import fitted_and_watched

MIN_DRAWN = 50  # problems, unlike the timed ones, on which the base's predictions are learned


def fine_tune(
    table: TimingTable,
    base: Artifact,
    *,
    seed: int,
    settings: TrainingSettings,
    report: ProgressCallback,
    checkpoints: Checkpoints | None,
) -> tuple[TimingModel, ...]:
    """A model of the family TUNED that has learned two things: these timings (rows of a FitTask),
    and the base model's predictions on problems that are drawn from all that it covers. Drawn
    problems that are like a timed one are left out. If the base was made for another GPU, its
    predictions are corrected (see `correction`), and no drawn problem is left out.

    Raises TrainingError where there are too few problems, or all problems that could be drawn are
    like the timed ones.
    """
    fitted, watched = fitted_and_watched(table, seed=seed)
    environment = table.first_environment
    hardware = environment.hardware
    elsewhere = base.manifest.hardware.slug != hardware.slug

    def make(checkpoint: Checkpoint | None) -> TimingModel:
        teacher: Sequence[TimingModel] = base.members
        coverage, torch = base.manifest.coverage, environment.torch
        drawn = drawn_problems(coverage, settings.lessons, seed=seed)
        if elsewhere:
            teacher = correct_to(table, base, seed=seed)
        else:
            drawn = problems_unlike(drawn, table.used_problems)
        if len(drawn) < MIN_DRAWN:
            raise TrainingError(
                "The timings cover problems of every kind, so a tuned model would keep nothing of "
                "its base; train a new model instead."
            )
        labelled = distillation_labels(
            teacher, coverage, [(problem, hardware) for problem in drawn], torch=torch, seed=seed
        )
        measured = [Examples.make(rows, hardware) for rows in (fitted, watched)]
        learned, checks = (
            with_timings(side, answers_of(teacher, timed.x), timed)
            for side, timed in zip(split_labels(labelled), measured, strict=True)
        )
        of_tuned = replace(settings.find(TUNED), seed=seed)
        method = MODEL_TYPES[TUNED].fitting_method()
        return method.fit(learned, checks, of_tuned, report, checkpoint)

    if checkpoints is None:
        return (make(None),)
    what = [dataset_key(table), base.manifest.identity, seed, settings.to_dict()]
    return (checkpoints.fitted(what, TUNED, make),)


def check_base(base: Artifact, hardware: Hardware) -> None:
    """Raises TrainingError where the base model was made for another generation of GPUs, which runs
    other kernels."""
    made_for = base.manifest.hardware
    if made_for.slug != hardware.slug and not made_for.likeness(hardware):
        raise TrainingError(
            f"The model to tune was made for {made_for.name}, the timings are of {hardware.name}, "
            "which is of another generation; name a model of that GPU, or train one."
        )
