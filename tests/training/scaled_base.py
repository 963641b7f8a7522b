"""A made-up family of models, as docs/extending.md has one: the base time of the
features, times a factor that is fitted. Everything that a family must define is here."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import ClassVar, Self

import numpy as np
from safetensors.numpy import save

from diode_engine import features
from diode_engine.models.fitting import (
    Checkpoint,
    Examples,
    FitProgress,
    ProgressCallback,
    efficiency,
)
from diode_engine.models.fitting_method import FittingMethod, Range
from diode_engine.models.protocol import Matrix, TimingModel
from diode_engine.models.tensors import Tensors


@dataclass(frozen=True)
class ScaledBase(TimingModel):
    """log time = log_factor + slope * log base time."""

    log_factor: float
    slope: float

    family: ClassVar[str] = "scaled-base"

    def predict(self, x: Matrix) -> Matrix:
        return np.float32(self.log_factor) + np.float32(self.slope) * _log_base(x)

    def to_bytes(self) -> bytes:
        return save({"numbers": np.array(astuple(self), np.float32)})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        tensors = Tensors(data, "scaled base time")
        numbers = tensors.take("numbers", 2)
        tensors.end()
        return cls(*numbers.tolist())


@dataclass(frozen=True)
class ScaledBaseSettings:
    slope: float = 1.0
    seed: int = 0

    def with_fewer_steps(self, divisor: int) -> ScaledBaseSettings:
        return self

    def with_searched(self, **values: float) -> ScaledBaseSettings:
        return replace(self, slope=values["slope"])


def fit_scaled_base(
    train: Examples,
    held_out: Examples,
    settings: ScaledBaseSettings,
    report: ProgressCallback,
    checkpoint: Checkpoint | None,
) -> ScaledBase:
    """Fits the factor, in one step."""
    factor = np.mean(train.log_us - settings.slope * _log_base(train.x))
    model = ScaledBase(float(factor), settings.slope)
    predicted = model.predict(held_out.x)
    error = float(np.sqrt(np.mean((predicted - held_out.log_us) ** 2)))
    report(FitProgress(1, 1, error, efficiency(held_out, predicted), error, error))
    return model


def _log_base(x: Matrix) -> Matrix:
    base: Matrix = x[:, features.BASE] * np.float32(np.log(2))
    return base


FITTING = FittingMethod(ScaledBaseSettings(), fit_scaled_base, {"slope": Range(0.5, 1.5)})
