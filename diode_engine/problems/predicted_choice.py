"""What a compile would take for a problem, by a model alone: needs no GPU and no torch."""

from __future__ import annotations

import re
from dataclasses import replace

from diode_engine import registry
from diode_engine.choosing.choice import Choice
from diode_engine.choosing.chooser import Chooser
from diode_engine.choosing.invariant import InvariantChooser, refusal, space_for
from diode_engine.choosing.prediction import Prediction
from diode_engine.choosing.proofs import triton_shown_with
from diode_engine.choosing.ranges import choice_of, choose_ranges
from diode_engine.choosing.summation import SummationOrder, order_of
from diode_engine.core.hardware import detect
from diode_engine.core.problem import Problem
from diode_engine.errors import NoSuchModelError, NothingError
from diode_engine.models.predictor import Predictor
from diode_engine.problems.spaces import exhaustive_space
from diode_engine.version import torch_version, triton_version, without_patch

_NONE = "0.0"  # the version of what is not installed


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
            f"The model has no prediction for {problem}: it was not trained on this operator or "
            "type, and a compile takes the library's kernel."
        )
    return prediction, choice


def choose_invariant(
    problem: Problem, chooser: Chooser, torch: str = ""
) -> tuple[Choice, SummationOrder]:
    """Return the choice that a compile makes with diode_batch_invariant, and the kernel's order of
    summation. It is for this version of torch with the Triton of the proofs; empty: what is
    installed. Raises LeftToStock, with a sentence, where no kernel is known to be
    batch-invariant."""
    here, triton = torch_version() or _NONE, triton_version()
    if re.match(r"\d+\.\d+", torch) and without_patch(torch) != without_patch(here):
        here, triton = torch, None
    invariant = InvariantChooser(chooser, here, triton or triton_shown_with(here) or _NONE)
    comparison, _ = invariant.compare([problem], space_for(problem))
    ranges = choose_ranges(comparison)
    if not ranges:
        raise refusal("the model has no prediction for any kernel of the order")
    choice = replace(choice_of(comparison, ranges), library_us=invariant.library_us(problem))
    order = order_of(problem, choice.candidates[0], chooser.hardware)
    assert order is not None
    return choice, order
