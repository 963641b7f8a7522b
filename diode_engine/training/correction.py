"""A model for a GPU, made from a correction and the model of another GPU of the same generation.

What differs between two such GPUs (bandwidth, the size of the L2 cache, clocks) changes the times
of many kernels in the same way. So a few timings suffice to learn the difference between what the
model predicts and what is measured; a new model would have to learn everything.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from diode_engine.core.table import TimingTable
from diode_engine.errors import ModelError
from diode_engine.models.artifact import Artifact
from diode_engine.models.fitting import Examples
from diode_engine.models.model_types import MODEL_TYPES
from diode_engine.models.protocol import Matrix, TimingModel, answers_of, mean_answer, prediction_of
from diode_engine.training.trainable_rows import fitted_and_watched

# Few, shallow trees with many rows in a leaf: deeper ones spoil the order of the kernels, which the
# H200's model predicts nearly right for the H100 (docs/notes/transfer.md).
_TREES = {"rounds": 150, "max_depth": 3, "learning_rate": 0.1, "patience": 20}
_LEAVES = 50  # the least rows in a leaf; with fewer than 50² rows, 1/50 of all
# Without XGBoost, a small network.
_NETWORK = {"hidden": (64, 32), "epochs": 20}
# A difference has no best candidate. So all rows have the same weight, and there is no ranking
# loss.
_ALIKE = {"residual": False, "focus": 0.0, "rank": 0.0}


@dataclass(frozen=True)
class Corrected(TimingModel):
    """A model's members, with a difference in log time that is added to each member's answer. It is
    used as a teacher, and is not written to a file."""

    family: ClassVar[str] = "corrected"

    members: tuple[TimingModel, ...]
    difference: TimingModel

    def predict(self, x: Matrix) -> Matrix:
        return mean_answer(self.answers(x))

    def answers(self, x: Matrix) -> Matrix:
        corrected: Matrix = answers_of(self.members, x) + self.difference.predict(x)
        return corrected

    def to_bytes(self) -> bytes:
        raise ModelError("A corrected model teaches another one; it has no file of its own.")

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        raise ModelError("A corrected model teaches another one; there is no file of one.")


def has_xgboost() -> bool:
    """Whether XGBoost is installed; it is not imported."""
    return importlib.util.find_spec("xgboost") is not None


def correct_to(rows: TimingTable, base: Artifact, *, seed: int = 0) -> tuple[TimingModel, ...]:
    """The base's members with a correction that is fitted to these rows, those of a FitTask. Raises
    TrainingError where there are too few problems."""
    learned, watched = fitted_and_watched(rows, seed=seed)
    hardware = rows.first_environment.hardware
    examples = (Examples.make(part, hardware) for part in (learned, watched))
    return corrected(base.members, *examples, seed=seed)


def corrected(
    members: Sequence[TimingModel], learned: Examples, watched: Examples, *, seed: int = 0
) -> tuple[TimingModel, ...]:
    """The members with a correction that is fitted to the rows `learned`; early stopping watches
    the rows `watched`. The correction is trees, or a network where XGBoost is not installed."""
    family = "trees" if has_xgboost() else "network"
    method = MODEL_TYPES[family].fitting_method()
    of_trees = {**_TREES, "min_child_weight": min(_LEAVES, len(learned.log_us) / _LEAVES)}
    how = of_trees if family == "trees" else _NETWORK
    settings = replace(
        method.settings,  # type: ignore[type-var]  # a dataclass, whatever the family
        **_ALIKE, **how, seed=seed,
    )  # fmt: skip

    def residuals(rows: Examples) -> Examples:
        """The rows with the difference between their log times and the members' mean."""
        difference = rows.log_us - prediction_of(members, rows.x)
        return replace(rows, log_us=difference.astype(np.float32))

    difference = method.fit(
        residuals(learned), residuals(watched), settings, lambda progress: None, None
    )
    return (Corrected(tuple(members), difference),)
