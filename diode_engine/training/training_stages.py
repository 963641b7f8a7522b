"""The stages of a training. Each takes the model from the stage before and rows of the one split,
and returns the model with what the stage adds."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from diode_engine import registry
from diode_engine.core.hardware import Hardware
from diode_engine.core.table import TimingTable
from diode_engine.errors import TrainingError
from diode_engine.models.artifact import Artifact, save_artifact
from diode_engine.models.coverage import Coverage
from diode_engine.models.manifest import Data, GpuRecord, Manifest
from diode_engine.models.model_types import TUNED
from diode_engine.models.predictor import Predictor
from diode_engine.store.datasets.key import dataset_key
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.confidence import (
    STEPS_DIVISOR,
    confidence_folds,
    learn_confidence,
    places_of,
)
from diode_engine.training.correction import correct_to
from diode_engine.training.fine_tune import fine_tune
from diode_engine.training.fit_pool import FitCallback
from diode_engine.training.fit_steps import FitTask, Members, fit_label
from diode_engine.training.fits import FitExecutor
from diode_engine.training.settings import TrainingRequest
from diode_engine.training.trainable_rows import MIN_HELD_OUT, TrainingSplit, gpus_of, rows_on
from diode_engine.validation import evaluate


@dataclass(frozen=True)
class FittedMembers:
    """The members of all models of a training."""

    own: Members  # of the model that is judged
    # Of the models that its confidence is learned from; None: it has its base's confidence.
    folds: Sequence[Members] | None
    everything: Members | None  # of the model that is fitted to all problems


def fit_members(
    split: TrainingSplit,
    request: TrainingRequest,
    *,
    report: FitCallback,
    checkpoints: Checkpoints | None,
    fits: FitExecutor,
    begin_phase: Callable[[str], None],
) -> FittedMembers:
    """Fit the members of all models of a training, side by side where `fits` can."""
    seed, settings, base = request.seed, request.settings, request.base
    tables = {"": split.learned}
    if request.everything:
        tables["all problems"] = split.all_learnable
    folds = {part.name: part.learned for part in confidence_folds(split.learned, seed)}
    if base is not None:
        tuned = {}
        for name, table in tables.items():
            label = fit_label(f"{TUNED}-0", name)
            tuned[name] = fine_tune(
                table, base, seed=seed, settings=settings, checkpoints=checkpoints,
                report=partial(report, label),
            )  # fmt: skip
            report(label, None)
        corrected = None
        if base.manifest.hardware.slug != split.hardware.slug:
            corrected = [correct_to(table, base, seed=seed) for table in folds.values()]
        return FittedMembers(tuned[""], corrected, tuned.get("all problems"))
    of_folds = settings.with_fewer_steps(STEPS_DIVISOR)
    tasks = [
        FitTask(table, request.family, seed, of_folds if name in folds else settings, name)
        for name, table in {"": split.learned, **folds, **tables}.items()
    ]
    members = {task.name: made for task, made in fits.run(tasks, report, checkpoints, begin_phase)}
    return FittedMembers(
        members[""], [members[name] for name in folds], members.get("all problems")
    )


def make_model(
    rows: TimingTable, request: TrainingRequest, origin: Data, members: Members
) -> Artifact:
    """Return the model of these members, which are fitted to these rows, without confidence and
    metrics. `origin` says where the rows came from."""
    environments, gpus = rows.used_environments, gpus_of(rows)
    of_gpus = [(gpu, rows_on(rows, gpu)) for gpu in gpus] if len(gpus) > 1 else []
    coverage, base = Coverage.make(rows), request.base
    if base is not None:
        coverage = base.manifest.coverage.joined(coverage)
    manifest = Manifest(
        name=request.model_name,
        family=request.model_family,
        hardware=gpus[0],
        coverage=coverage,
        data=replace(
            origin,
            datasets=(dataset_key(rows), *origin.datasets),
            problems=rows.count_problems(),
            timings=len(rows),
            base="" if base is None else base.manifest.identity,
        ),
        torch=tuple(sorted({environment.torch for environment in environments})),
        triton=tuple(sorted({environment.triton for environment in environments})),
        gpus=tuple(
            GpuRecord(gpu, own.count_problems(), len(own), op_types=Coverage.make(own).op_types)
            for gpu, own in of_gpus
        ),
    )
    return Artifact(manifest, members)


def add_confidence(
    model: Artifact, split: TrainingSplit, request: TrainingRequest, folds: Sequence[Members] | None
) -> Artifact:
    """Return the model with its confidence, which is learned from the models of `folds`; None: with
    the confidence of its base."""
    base = request.base
    if folds is None:
        assert base is not None
        confidence = base.confidence and base.confidence.with_places(places_of(split.learned))
    else:
        confidence = learn_confidence(split.learned, folds, seed=request.seed)
    return replace(model, confidence=confidence)


def judge_model(model: Artifact, split: TrainingSplit, base: Artifact | None) -> Artifact:
    """Return the model with its metrics on the held-out problems of each of its GPUs, and notes on
    what these problems are. Where it can say nothing about those of a GPU, as after a few problems,
    it has no metrics."""
    try:
        gpus = tuple(_judged_on(record, model, split.judged) for record in model.manifest.gpus)
        own = rows_on(split.judged, model.manifest.hardware)
        metrics = dict(gpus[0].metrics) if gpus else _metrics(model, own)
    except TrainingError as error:
        if base is not None:
            raise
        notes = f"There are no metrics. {error}"
        manifest = replace(model.manifest, notes=notes, everything=False, held_out_by=split.by)
        return replace(model, manifest=manifest)
    seen_by_base: bool | None = False
    if base is not None:
        with contextlib.suppress(TrainingError):  # the base may know none of these products
            metrics["efficiency_of_base"] = _metrics(base, split.judged)["efficiency"]
        seen_by_base = base.manifest.everything
    notes = _notes(split.held_out_problems, seen_by_base)
    manifest = replace(
        model.manifest,
        metrics=metrics,
        gpus=gpus,
        notes=notes,
        everything=seen_by_base,
        held_out_by=split.by,
    )
    return replace(model, manifest=manifest)


def complete_model_of_all(of_all: Artifact, model: Artifact, split: TrainingSplit) -> Artifact:
    """Return a second model, `of_all`, which was fitted to the held-out problems too, with the
    metrics and the confidence of the first one, which could be judged."""
    confidence = model.confidence
    if confidence is not None:
        new = ~np.isin(split.all_learnable.problem, split.learned.problem)
        confidence = confidence.with_places(places_of(split.all_learnable.take(new)))
    notes = (
        "This model has seen all problems. The metrics are those of a model that was made in the "
        f"same way without {split.held_out_problems} of them, measured on these "
        f"{split.held_out_problems}."
    )
    metrics_of = {record.hardware.slug: record.metrics for record in model.manifest.records}
    metrics = metrics_of.get(of_all.manifest.hardware.slug, {})
    if not metrics:  # its notes say why
        notes = model.manifest.notes
    manifest = replace(
        of_all.manifest,
        metrics=metrics,
        gpus=tuple(
            replace(record, metrics=metrics_of.get(record.hardware.slug, {}))
            for record in of_all.manifest.gpus
        ),
        notes=notes,
        everything=True,
        held_out_by=split.by,
    )
    return Artifact(manifest, of_all.members, confidence)


def register_model(model: Artifact, *, default: bool) -> registry.ModelVersion:
    """Register the model as the next version of its name; with `default`, as the default of its
    hardware."""
    with tempfile.TemporaryDirectory(prefix="diode-model-") as folder:
        made = Path(folder) / model.manifest.name
        save_artifact(made, model.manifest, model.members, model.confidence)
        return registry.register(made, default=default)


def _judged_on(record: GpuRecord, model: Artifact, held_out: TimingTable) -> GpuRecord:
    """The record with the model's metrics on the held-out problems that its GPU timed; without, if
    there are too few."""
    rows = rows_on(held_out, record.hardware)
    if rows.count_problems() < MIN_HELD_OUT:
        return record
    return replace(record, metrics=_metrics(model, rows, record.hardware))


def _notes(problems: int, seen_by_base: bool | None) -> str:
    """A sentence on the problems that the metrics were measured on, for a model that was not itself
    trained on all problems."""
    if seen_by_base is False:
        return f"The metrics are on {problems} problems that this model has not seen."
    has = "has" if seen_by_base else "may have"
    return (
        f"The metrics are on {problems} problems that took no part in the tuning, but the model "
        f"that was tuned {has} seen them."
    )


def _metrics(
    model: Artifact, held_out: TimingTable, hardware: Hardware | None = None
) -> dict[str, Any]:
    """Efficiencies (see validation.metrics) and errors on these problems of one GPU, and what other
    choosers reach on them."""
    report = evaluate(held_out, Predictor(model, hardware), name=model.manifest.name)
    row, *others = report.choosers
    metrics: dict[str, Any] = {
        "problems": report.problems,
        "efficiency": row.top[1].geomean,
        "efficiency_p10": row.top[1].p10,
        "efficiency_worst": row.top[1].worst,
        "efficiency_top": {str(k): summary.geomean for k, summary in row.top.items() if k > 1},
        "efficiency_of_others": {other.chooser: other.top[1].geomean for other in others},
    }
    if report.errors is not None:
        metrics["log_rmse"] = report.errors.rmse_log
    if report.calibration is not None:
        metrics["calibration_error"] = report.calibration.error
        metrics["calibration_error_by_chance"] = report.calibration.chance
        metrics["efficiency_surest"] = {
            str(share): summary.geomean for share, summary in report.calibration.surest.items()
        }
    return metrics
