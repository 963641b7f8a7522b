"""The registered models, asked in this process: numpy and XGBoost, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from diode_engine import registry
from diode_engine.choosing.choice import Choice
from diode_engine.choosing.chooser import Chooser
from diode_engine.choosing.prediction import Prediction
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.errors import ModelError
from diode_engine.models.predictor import Predictor
from diode_engine.registry import ModelVersion


@dataclass(frozen=True)
class Model:
    """A registered model. `hardware` is that of the model's GPUs which is the most alike to the
    hardware that it was looked up for, and `likeness` compares the two."""

    reference: str
    folder: Path
    identity: str
    hardware: Hardware
    likeness: float

    @property
    def name(self) -> str:
        """Its name in a list that may have models for several GPUs."""
        return f"{self.reference} for {self.hardware.name}"


@dataclass(frozen=True, eq=False)
class ModelAnswer:
    """What a model predicts for a problem's candidates on a GPU, and the choice that a compile
    makes by that; None where the model has no prediction."""

    model: Model
    prediction: Prediction
    choice: Choice | None

    @property
    def place(self) -> int | None:
        """The index of the chosen candidate; None where there is no choice."""
        if self.choice is None:
            return None
        return self.prediction.candidates.index(self.choice.candidates[0])


def models_for(hardware: Hardware) -> tuple[Model, ...]:
    """Return the models that can be taken for this hardware, the first choice first."""
    return tuple(_model(match.model, hardware) for match in registry.matches(hardware))


def all_models(here: Hardware | None) -> tuple[Model, ...]:
    """Return every registered model that can be read. Those for the hardware of this machine come
    first; without one, the default comes first."""
    first = () if here is None else models_for(here)
    found = {model.folder: model for model in first}
    for entry in sorted(registry.overview().entries, key=lambda entry: not entry.taken):
        if entry.manifest is not None and entry.model.folder not in found:
            found[entry.model.folder] = _model(entry.model, here)
    return tuple(found.values())


def _model(version: ModelVersion, here: Hardware | None) -> Model:
    manifest = version.manifest
    hardware = manifest.hardware if here is None else manifest.record_for(here).hardware
    likeness = 0.0 if here is None else here.likeness(hardware)
    return Model(version.reference, version.folder, manifest.identity, hardware, likeness)


@lru_cache(maxsize=64)
def predict(
    model: Model, problem: Problem, candidates: tuple[Candidate, ...], hardware: Hardware
) -> ModelAnswer:
    """Return the model's prediction for the candidates on this hardware, and the choice. Raises
    ModelError where the model cannot be loaded."""
    chooser = Chooser(loaded(model), hardware)
    prediction = chooser.predict(problem, candidates)
    return ModelAnswer(model, prediction, chooser.choose_by_default(prediction))


@lru_cache(maxsize=8)
def loaded(model: Model) -> Predictor:
    """Return the predictor. Raises ModelError where it cannot be loaded, or the folder has another
    model now."""
    predictor = Predictor.load(model.folder, model.hardware)
    if predictor.identity != model.identity:
        raise ModelError(f"The model in {model.folder} was replaced meanwhile; look again.")
    return predictor
