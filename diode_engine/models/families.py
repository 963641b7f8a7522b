"""The families of models, in one table.

A family is a class (models.protocol.TimingModel) and how it is fitted
(models.fitting_method.FittingMethod). The table names both, and they are imported when they are
first needed: a compile does not import code that fits models, and a list of the families imports
neither. A new family is a module with the two, and a line in FAMILIES
(docs/extending.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from diode_engine.models.fitting_method import FittingMethod
    from diode_engine.models.protocol import TimingModel

ENSEMBLE = "ensemble"  # members of several families; what is trained by default
NETWORKS = "networks"  # the ensemble's networks alone: what can be made without XGBoost
TUNED = "distilled"  # the family of a model that is tuned to timings, whatever the model was
# Networks with different seeds make different errors: three of them together with the trees chose
# better on problems that they had not seen than any one of the four (docs/models.md).
_COMBINATIONS = {ENSEMBLE: ("trees", "network", "network", "network"), NETWORKS: ("network",) * 3}


@dataclass(frozen=True)
class ModelFamily:
    """`model` and `fitting` are "module:name" of its class and of its FittingMethod. `teacher`
    names (as `members_of` does) the model that is fitted first and that this family learns from and
    replaces; empty where it learns from timings alone. `cost` is about how long a fit takes,
    relative to a fit of trees to the same rows (measured on the shipped timings)."""

    name: str
    model: str
    fitting: str
    teacher: str = ""
    cost: float = 1.5

    def model_class(self) -> type[TimingModel]:
        """The class, imported when it is first asked for."""
        return cast("type[TimingModel]", _found(self.model))

    def fitting_method(self) -> FittingMethod:
        """How models of the family are fitted, imported when it is first asked for."""
        return cast("FittingMethod", _found(self.fitting))


def _found(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


FAMILIES: dict[str, ModelFamily] = {
    family.name: family
    for family in (
        ModelFamily(
            "trees",
            "diode_engine.models.trees:Trees",
            "diode_engine.models.fit_trees:FITTING",
            cost=1.0,
        ),
        ModelFamily(
            "network",
            "diode_engine.models.network:Network",
            "diode_engine.models.fit_network:FITTING",
        ),
        ModelFamily(
            "distilled",
            "diode_engine.models.distilled:DistilledNetwork",
            "diode_engine.models.fit_distilled:FITTING",
            teacher=ENSEMBLE,
            cost=3.0,
        ),
        ModelFamily(
            "cascade",
            "diode_engine.models.cascade:Cascade",
            "diode_engine.models.fit_cascade:FITTING",
            teacher=ENSEMBLE,
            cost=3.0,
        ),
    )
}


def members_of(name: str) -> tuple[str, ...] | None:
    """The families to fit, in this order, for a model of this name. A family has the members of its
    teacher, then itself; ENSEMBLE and NETWORKS have several. None where there is no such name."""
    if name in _COMBINATIONS:
        return _COMBINATIONS[name]
    family = FAMILIES.get(name)
    if family is None:
        return None
    return (*((members_of(family.teacher) or ()) if family.teacher else ()), name)


def trainable() -> tuple[str, ...]:
    """The names that `members_of` knows; families with a teacher come last."""
    alone = [name for name, family in FAMILIES.items() if not family.teacher]
    return (*alone, *_COMBINATIONS, *(name for name in FAMILIES if name not in alone))
