"""What a compile would take for a problem, by a model alone: needs no GPU and no torch."""

from __future__ import annotations

from diode_engine import registry
from diode_engine.choosing.choice import Choice
from diode_engine.choosing.chooser import Chooser
from diode_engine.choosing.prediction import Prediction
from diode_engine.core.hardware import detect
from diode_engine.core.problem import Problem
from diode_engine.errors import NoSuchModelError, NothingError
from diode_engine.models.predictor import Predictor
from diode_engine.problems.spaces import exhaustive_space


def predict_choice(problem: Problem, model: str | None = None) -> Choice:
    """Return the choice that a compile would make for this problem, among all that Inductor could
    offer, on the GPU that the model's name has in it, else the one that the model has the most
    timings of. `model` is what `install_diode_choices` takes as model_path, such as
    "NVIDIA-H200-matmul"; None is the model for this machine's GPU.

    Raises NothingError where the model can say nothing about such a problem, NoSuchModelError where
    there is no such model (one of None: no model for this machine), and RegistryError and
    ModelError as `registry.resolve_for` and `Predictor.load` do.
    """
    if model is None:
        here = detect()
        match = registry.best_for(here)
        if match is None:
            raise NoSuchModelError(
                f"There is no model for {here.name}; name one, such as NVIDIA-H200-matmul."
            )
        chooser = Chooser(Predictor.load(match.model.folder, here), here)
    else:
        found = registry.resolve(model)
        predictor = Predictor.load(found.folder, registry.gpu_named(model))
        chooser = Chooser(predictor, predictor.hardware)
    return choose_offered(problem, chooser)[1]


def choose_offered(
    problem: Problem, chooser: Chooser, torch: str = ""
) -> tuple[Prediction, Choice]:
    """Return the prediction for all that this version of torch could offer for the problem (empty:
    the newest known one), and the choice that a compile makes with its default options. Raises
    NothingError where the model can say nothing about such a problem."""
    prediction = chooser.predict(problem, exhaustive_space(problem, torch))
    choice = chooser.choose_by_default(prediction)
    if choice is None:
        raise NothingError(
            f"The model can say nothing about {problem}: it was not trained on this op or type, "
            "and a compile takes the library's kernel."
        )
    return prediction, choice
