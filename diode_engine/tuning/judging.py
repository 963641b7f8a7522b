"""What a tuned model and others reach on the held-out problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diode_engine.models.predictor import Predictor
from diode_engine.registry import ModelVersion
from diode_engine.training.training_split import TrainingSplit
from diode_engine.validation import evaluate
from diode_engine.validation.report import ChooserRow


def chooser_rows(
    model: ModelVersion,
    split: TrainingSplit,
    others: Mapping[ModelVersion, str],
    *,
    seen: bool,
) -> list[dict[str, Any]]:
    """What each chooser reaches on the held-out problems: the model, the `others` (each with what
    it is to the tuning), and those without a model. With `seen` the model has learned from these
    problems, so its figures come from its manifest."""
    gpu = split.hardware
    own, *without = evaluate(split.judged, Predictor.load(model.folder, gpu)).rows
    rows = [_told(model) if seen else _figures(model.reference, own)]
    for version, role in others.items():
        row = evaluate(split.judged, Predictor.load(version.folder, gpu)).rows[0]
        made_for = version.manifest.record_for(gpu).hardware.name
        of = "" if made_for == gpu.name else f" of {made_for}"
        rows.append(_figures(f"{version.reference}{of}, {role}", row))
    return [*rows, *(_figures(row.chooser, row) for row in without)]


def _told(model: ModelVersion) -> dict[str, Any]:
    metrics = model.manifest.metrics
    return {
        "chooser": f"{model.reference}, made without these problems",
        "efficiency": metrics["efficiency"],
        "p10": metrics["efficiency_p10"],
        "worst": metrics["efficiency_worst"],
        "first_5": metrics["efficiency_top"].get("5"),
    }


def _figures(name: str, row: ChooserRow) -> dict[str, Any]:
    top = row.top
    return {
        "chooser": name,
        "efficiency": top[1].geomean,
        "p10": top[1].p10,
        "worst": top[1].worst,
        "first_5": top[5].geomean if 5 in top else None,
    }
