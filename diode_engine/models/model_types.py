"""The model types, in one table.

A model type is a class (models.protocol.TimingModel) and how it is fitted
(models.fitting_method.FittingMethod). The table names both, and they are imported when they are
first needed: a compile does not import code that fits models, and a list of the model types imports
neither. A new model type is a module with the two, and a line in MODEL_TYPES. Manifests and options
call it "family".
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from diode_engine.errors import TrainingError

if TYPE_CHECKING:
    from diode_engine.models.fitting_method import FittingMethod
    from diode_engine.models.protocol import TimingModel

ENSEMBLE = "ensemble"  # members of several model types; what is trained by default
NETWORKS = "networks"  # the ensemble's networks alone: what can be made without XGBoost
LARGE = "large-ensemble"  # with more networks: what a cascade learns from
TUNED = "distilled"  # the type of a model that is tuned to timings, whatever the model was
# Networks with different seeds make different errors: three of them together with the trees chose
# better on problems that they had not seen than any one of the four (docs/notes/models.md).
_COMBINATIONS = {
    ENSEMBLE: ("trees", "network", "network", "network"),
    NETWORKS: ("network",) * 3,
    LARGE: ("trees", *("network",) * 6),
}


@dataclass(frozen=True)
class ModelType:
    """`model` and `fitting` are "module:name" of its class and of its FittingMethod. `teacher`
    names (as `member_types` does) the model that is fitted first and that this type learns from and
    replaces; empty where it learns from timings alone. `cost` is about how long a fit takes,
    relative to a fit of trees to the same rows (measured on the shipped timings)."""

    name: str
    model: str
    fitting: str
    teacher: str = ""
    cost: float = 1.5

    def model_class(self) -> type[TimingModel]:
        """Return the class, imported when it is first needed."""
        return cast("type[TimingModel]", _import(self.model))

    def fitting_method(self) -> FittingMethod:
        """Return how models of the type are fitted, imported when it is first needed."""
        return cast("FittingMethod", _import(self.fitting))


def _import(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


_HERE = "diode_engine.models"
MODEL_TYPES: dict[str, ModelType] = {
    each.name: each
    for each in (
        ModelType("trees", f"{_HERE}.trees:Trees", f"{_HERE}.fit_trees:FITTING", cost=1.0),
        ModelType("network", f"{_HERE}.network:Network", f"{_HERE}.fit_network:FITTING"),
        ModelType(
            "distilled",
            f"{_HERE}.distilled:DistilledNetwork",
            f"{_HERE}.fit_distilled:FITTING",
            teacher=ENSEMBLE,
            cost=3.0,
        ),
        ModelType(
            "cascade",
            f"{_HERE}.cascade:Cascade",
            f"{_HERE}.fit_distilled:CASCADE_FITTING",
            teacher=LARGE,
            cost=3.0,
        ),
    )
}


def member_types(name: str) -> tuple[str, ...]:
    """Return the model types to fit, in this order, for a model of this name. A model type has the
    members of its teacher, then itself; ENSEMBLE and NETWORKS have several. Raises TrainingError
    where there is no such name."""
    if name in _COMBINATIONS:
        return _COMBINATIONS[name]
    if name not in MODEL_TYPES:
        names = ", ".join(trainable_names())
        raise TrainingError(f"There is no family {name!r}; there are {names}.")
    teacher = MODEL_TYPES[name].teacher
    return (*(member_types(teacher) if teacher else ()), name)


def trainable_names() -> tuple[str, ...]:
    """Return the names that `member_types` knows; model types with a teacher come last."""
    alone = [name for name, each in MODEL_TYPES.items() if not each.teacher]
    return (*alone, *_COMBINATIONS, *(name for name in MODEL_TYPES if name not in alone))
