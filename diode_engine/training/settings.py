"""The settings of a training: how each member is fitted, and to how much data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from diode_engine.models.fitting_method import FitSettings
from diode_engine.models.model_types import MODEL_TYPES


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
