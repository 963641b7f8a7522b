"""What is asked of a training, and its settings: how each member is fitted, to how much data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from diode_engine.models.artifact import Artifact
from diode_engine.models.fitting_method import FitSettings
from diode_engine.models.model_types import ENSEMBLE, MODEL_TYPES, TUNED


@dataclass(frozen=True)
class TrainingSettings:
    """How the members of a model are fitted, and to how much data."""

    # The settings of families that do not have their default settings, by the family's name. The
    # training sets the seeds.
    families: Mapping[str, FitSettings] = field(default_factory=dict)
    # A student learns its teacher's answers on all problems with timings and, where these are fewer
    # than `lessons`, on drawn problems too.
    lessons: int = 10000
    rows: int = 240  # timings of a problem that are learned, at most

    def find(self, family: str) -> Any:
        """The settings of this family (fitting_method.FitSettings)."""
        given = self.families.get(family)
        return MODEL_TYPES[family].fitting_method().settings if given is None else given

    def but(self, family: str, **changes: Any) -> TrainingSettings:
        """A copy with these fields of a family's settings changed."""
        changed = replace(self.find(family), **changes)
        return replace(self, families={**self.families, family: changed})

    def with_fewer_steps(self, divisor: int) -> TrainingSettings:
        """The settings of a training that takes about `divisor` times less time."""
        fewer = {name: self.find(name).with_fewer_steps(divisor) for name in MODEL_TYPES}
        return replace(self, families=fewer, lessons=self.lessons // divisor)

    def to_dict(self) -> dict[str, Any]:
        """As JSON: all families, also those with default settings."""
        of_families = {name: asdict(self.find(name)) for name in MODEL_TYPES}
        return {**of_families, "lessons": self.lessons, "rows": self.rows}


@dataclass(frozen=True)
class TrainingRequest:
    """What is asked of a training.

    With a `base` the model is made by tuning that one to the timings (see `fine_tune`): it is a
    distilled network. Without a `name` it has its base's, or its family's. It is made for the GPU
    named `hardware` (None: for all GPUs of one generation). With `everything`, a second model is
    fitted to all problems, and this one is registered. With `default` it becomes the default model
    of its GPU.

    It learns from the timings of the problems that `query` finds, in the store or, where files are
    named in `datasets`, in these. `trials` of a search for better settings come first.
    """

    family: str = ENSEMBLE
    base: Artifact | None = None
    hardware: str | None = None
    name: str | None = None
    seed: int = 0
    everything: bool = False
    default: bool = False
    query: str = ""
    datasets: tuple[Path, ...] = ()
    trials: int = 0
    settings: TrainingSettings = field(default_factory=TrainingSettings)

    @property
    def model_family(self) -> str:
        """The family of the model that is made."""
        return self.family if self.base is None else TUNED

    @property
    def model_name(self) -> str:
        """The name of the model that is made."""
        return self.name or (self.family if self.base is None else self.base.manifest.name)

    def spec(self) -> dict[str, Any]:
        """The request as the run's spec."""
        return {
            "family": self.family,
            "fine_tune": None if self.base is None else self.base.manifest.identity,
            "hardware": self.hardware,
            "name": self.name,
            "seed": self.seed,
            "everything": self.everything,
            "default": self.default,
            "query": self.query or None,
            "dataset": ", ".join(map(str, self.datasets)) or None,
            "search": self.trials or None,
            **_changed(self.settings.to_dict(), TrainingSettings().to_dict()),
        }


def _changed(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that differ from the defaults, by names such as "network.epochs"."""
    changed: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            inner = _changed(value, defaults[name])
            changed |= {f"{name}.{key}": other for key, other in inner.items()}
        elif value != defaults[name]:
            changed[name] = value
    return changed
