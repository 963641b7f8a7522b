"""How the models of a family are made from timings: what a training needs of each family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from diode_engine.models.fitting import Checkpoint, Examples, ProgressCallback
from diode_engine.models.protocol import TimingModel


class FitSettings(Protocol):
    """The settings of a family's fit: a frozen dataclass of numbers, texts, tuples and `seed`."""

    @property
    def seed(self) -> int: ...

    def with_fewer_steps(self, divisor: int) -> Self:
        """The settings of a fit that takes about `divisor` times less time."""


class Fit(Protocol):
    """Fits one model to the first examples; early stopping watches the second ones. `report` is
    called after each step, and an exception in it ends the fit; with a `checkpoint` the fit goes
    on after the last step that was saved. The same seed gives the same model."""

    def __call__(
        self,
        train: Examples,
        held_out: Examples,
        settings: Any,
        report: ProgressCallback,
        checkpoint: Checkpoint | None,
        /,
    ) -> TimingModel: ...


@dataclass(frozen=True)
class Range:
    """The values from `low` to `high`: whole numbers where `low` is a whole number. With `log` they
    are drawn evenly on a logarithmic scale."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class SearchedSettings:
    """What a search for better settings tries: `fields` of the settings by name, and `derived`
    parameters (a range or a choice) from which several fields are made. `read` gives the derived
    parameters that are nearest to some settings; `write` gives settings with these parameters."""

    fields: Mapping[str, Range] = field(default_factory=dict)
    derived: Mapping[str, Range | tuple[Any, ...]] = field(default_factory=dict)
    read: Callable[[Any], Mapping[str, Any]] = lambda settings: {}
    write: Callable[[Any, Mapping[str, Any]], Any] = lambda settings, parameters: settings

    def parameters(self, settings: Any) -> dict[str, Any]:
        """The searched parameters as these settings have them, clipped to their ranges."""
        found = {
            name: min(max(getattr(settings, name), reach.low), reach.high)
            for name, reach in self.fields.items()
        }
        return {**found, **self.read(settings)}

    def applied(self, settings: Any, parameters: Mapping[str, Any]) -> Any:
        """The settings with these parameters; what is not given stays as it is."""
        found = {name: parameters[name] for name in self.fields if name in parameters}
        settings = replace(settings, **found)
        there = all(name in parameters for name in self.derived)
        return self.write(settings, parameters) if self.derived and there else settings


@dataclass(frozen=True)
class FittingMethod:
    """How a family is fitted: `settings` are the usual ones. Examples for a family that has a
    teacher (model_types.ModelType) have `heads`. `with_teacher` is for a family whose models keep
    parts of their teacher: it makes the model of the fitted one, the teacher's members, and the
    examples and settings of the fit."""

    settings: FitSettings
    fit: Fit
    searched: SearchedSettings = field(default_factory=SearchedSettings)
    with_teacher: (
        Callable[[Any, Sequence[TimingModel], Examples, Examples, Any], TimingModel] | None
    ) = None
