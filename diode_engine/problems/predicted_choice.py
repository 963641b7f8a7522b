"""What a compile would take for a problem, by a model alone: needs no GPU and no torch."""

from __future__ import annotations

import numpy as np

from diode_engine import registry
from diode_engine.choosing.choice import Choice
from diode_engine.choosing.policy import taken_by_default
from diode_engine.core.encoding import encode
from diode_engine.core.hardware import Hardware, detect
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits
from diode_engine.errors import NoSuchModelError, NothingError
from diode_engine.models.predictor import Predictor
from diode_engine.problems.exhaustive_space import exhaustive_space


def predict_choice(problem: Problem, model: str | None = None) -> Choice:
    """The choice that a compile would make for this problem, among all that Inductor could offer,
    on the GPU that the model's name has in it, else the one that the model has the most timings of.
    `model` is what `install_diode_choices` takes as model_path,
    such as "NVIDIA-H200-matmul"; None takes the model for this machine's GPU.

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
        return choice_of(problem, Predictor.load(match.model.folder, here), here)
    found = registry.resolve(model)
    predictor = Predictor.load(found.folder, registry.gpu_named(model))
    return choice_of(problem, predictor, predictor.hardware)


def choice_of(
    problem: Problem, predictor: Predictor, hardware: Hardware, torch: str = ""
) -> Choice:
    """The choice that a compile with this model makes for the problem on this GPU, among all that
    this version of torch could offer (empty: the newest known one). Raises NothingError where the
    model can say nothing about such a problem."""
    offered = exhaustive_space(problem, torch)
    candidates = [offered[i] for i in np.flatnonzero(fits(problem, offered, hardware))]
    ranking = predictor.predict(problem, candidates)
    if not len(ranking.order):
        raise NothingError(
            f"The model can say nothing about {problem}: it was not trained on this op or type, "
            "and a compile takes the library's kernel."
        )
    place, why = taken_by_default(problem, candidates, ranking)
    library = np.where(encode(candidates).extern, ranking.predicted_us, np.nan)
    known = not np.isnan(library).all()
    return Choice(
        problem=problem,
        candidates=(candidates[place],),
        predicted_us=(float(ranking.predicted_us[place]),),
        library_us=float(np.nanmin(library)) if known else None,
        confidence=ranking.confidence,
        remembered=False,
        why=why,
    )
