"""How the models of a family are made from timings: what a training needs of each family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from diode_engine.models.fitting import Checkpoint, Examples, ProgressCallback
from diode_engine.models.protocol import TimingModel


class FitSettings(Protocol):
    """The settings of a family's fit: a frozen dataclass of numbers, texts, tuples and `seed`. It
    has an attribute for each name in FittingMethod.searched."""

    @property
    def seed(self) -> int: ...

    def with_fewer_steps(self, divisor: int) -> Self:
        """The settings of a fit that takes about `divisor` times less time."""

    def with_searched(self, **values: Any) -> Self:
        """These settings with a value for each name in FittingMethod.searched."""


# Fits one model to the first examples; early stopping watches the second ones. The third argument
# is the settings. The callback is called after each step, and an exception in it ends the fit. With
# a checkpoint the fit goes on after the last step that was saved. The same seed gives the same
# model.
Fit = Callable[[Examples, Examples, Any, ProgressCallback, Checkpoint | None], TimingModel]

FitWithTeacher = Callable[
    [Sequence[TimingModel], Examples, Examples, Any, ProgressCallback, Checkpoint | None],
    TimingModel,
]


@dataclass(frozen=True)
class Range:
    """The values from `low` to `high`: whole numbers where `low` is a whole number. With `log` they
    are drawn evenly on a logarithmic scale."""

    low: float
    high: float
    log: bool = False


# The values that a search for better settings tries, by name: a range, or numbers to choose from.
Searched = Mapping[str, Range | tuple[int, ...]]


@dataclass(frozen=True)
class FittingMethod:
    """How a family is fitted: `settings` are the usual ones. Examples for a family that has a
    teacher (model_types.ModelType) have `heads`. A family whose models keep parts of their teacher
    is fitted by `fit_with_teacher`, which takes the teacher's members before the arguments of
    `fit`."""

    settings: FitSettings
    fit: Fit
    searched: Searched = field(default_factory=dict)
    fit_with_teacher: FitWithTeacher | None = None
