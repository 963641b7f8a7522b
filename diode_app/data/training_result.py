"""The result of a training: the model, and how well it chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TrainingResult:
    """`efficiency` and the quantities beside it are on `held_out` problems that the judged model
    had not seen. `others` are the efficiencies of other choosers on the same problems, the best
    first; `top` is that of the best of the model's first so many."""

    model: str
    folder: str
    family: str
    hardware: str
    efficiency: float
    p10: float
    worst: float
    top: tuple[tuple[int, float], ...]
    others: tuple[tuple[str, float], ...]
    base: float | None  # the efficiency of the model that was tuned
    log_rmse: float | None
    calibration_error: float | None
    calibration_by_chance: float | None
    held_out: int
    problems: int
    timings: int
    left_out: tuple[tuple[str, int], ...]
    seconds: float
    notes: str


def training_result(document: Mapping[str, Any] | None) -> TrainingResult | None:
    """From the result in a training's run (see `training.train.Trained`); None where there is none,
    or the run is of another kind."""
    metrics = (document or {}).get("metrics")
    if document is None or not isinstance(metrics, Mapping) or "efficiency" not in metrics:
        return None
    others = dict(metrics.get("efficiency_of_others") or {})
    top = dict(metrics.get("efficiency_top") or {})
    return TrainingResult(
        model=document["model"],
        folder=document["folder"],
        family=document["family"],
        hardware=document["hardware"],
        efficiency=metrics["efficiency"],
        p10=metrics["efficiency_p10"],
        worst=metrics["efficiency_worst"],
        top=tuple(sorted((int(k), value) for k, value in top.items())),
        others=tuple(sorted(others.items(), key=lambda other: -other[1])),
        base=metrics.get("efficiency_of_base"),
        log_rmse=metrics.get("log_rmse"),
        calibration_error=metrics.get("calibration_error"),
        calibration_by_chance=metrics.get("calibration_error_by_chance"),
        held_out=document["held_out_problems"],
        problems=document["problems"],
        timings=document["timings"],
        left_out=tuple((document.get("left_out") or {}).items()),
        seconds=document["seconds"],
        notes=document.get("notes") or "",
    )
