"""A model for a GPU, made of another GPU's model of the same generation and a correction.

What differs between two such GPUs (bandwidth, the reach of L2, clocks) changes the times of many
kernels alike. So a few timings suffice to learn the difference between what the model predicts and
what is measured; a new model would have to learn everything.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from diode_engine.core.table import TimingTable
from diode_engine.errors import ModelError
from diode_engine.features import CURRENT, FeatureSet
from diode_engine.models.artifact import Artifact
from diode_engine.models.families import FAMILIES
from diode_engine.models.fitting import Examples
from diode_engine.models.members import answers_of
from diode_engine.models.protocol import Matrix, TimingModel, mean_answer
from diode_engine.training.fit import fitted_and_watched

# Shallow trees, few of them, with many rows in a leaf: deeper ones spoil the order of kernels,
# which H200's model has nearly right for the H100 (docs/hardware.md).
_TREES = {"rounds": 150, "max_depth": 3, "learning_rate": 0.1, "patience": 20}
_LEAVES = 50  # a leaf has as many rows, or as few as make so many leaves possible
# Without XGBoost, a small network.
_NETWORK = {"hidden": (64, 32), "epochs": 20}
# A difference has no best candidate: all rows have the same weight, and none is ranked.
_ALIKE = {"residual": False, "focus": 0.0, "rank": 0.0}


@dataclass(frozen=True)
class Corrected(TimingModel):
    """Members with a difference in log time that is added to all their answers. It is used as a
    teacher, and is not written to a file."""

    family: ClassVar[str] = "corrected"
    suffix: ClassVar[str] = ""

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
    def from_bytes(cls, data: bytes, feature_set: FeatureSet = CURRENT) -> Self:
        raise ModelError("A corrected model teaches another one; there is no file of one.")


def corrected_to(rows: TimingTable, base: Artifact, *, seed: int = 0) -> tuple[TimingModel, ...]:
    """The base's members with a correction that is fitted to these rows, which are as `fit` takes
    them. Raises TrainingError where there are too few problems."""
    learned, watched = fitted_and_watched(rows, seed=seed)
    hardware = rows.environments[int(rows.environment[0])].hardware
    sees = base.manifest.feature_set
    examples = (Examples.of(part, hardware, sees) for part in (learned, watched))
    return corrected(base.members, *examples, seed=seed)


def corrected(
    members: Sequence[TimingModel], learned: Examples, watched: Examples, *, seed: int = 0
) -> tuple[TimingModel, ...]:
    """The members with a correction that is fitted to the first rows; early stopping watches the
    others. Trees, or a network where there is no XGBoost."""
    family = "trees" if importlib.util.find_spec("xgboost") else "network"
    method = FAMILIES[family].fitting_method()
    of_trees = {**_TREES, "min_child_weight": min(_LEAVES, len(learned.log_us) / _LEAVES)}
    how = of_trees if family == "trees" else _NETWORK
    settings = replace(
        method.settings,  # type: ignore[type-var]  # a dataclass, whatever the family
        **_ALIKE, **how, seed=seed,
    )  # fmt: skip

    def left(rows: Examples) -> Examples:
        """The difference between the log times and the members' mean."""
        difference = rows.log_us - mean_answer(answers_of(members, rows.x))
        return replace(rows, log_us=difference.astype(np.float32))

    difference = method.fit(left(learned), left(watched), settings, lambda progress: None, None)
    return (Corrected(tuple(members), difference),)
