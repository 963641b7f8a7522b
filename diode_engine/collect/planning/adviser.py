"""What a trained model predicts for candidates that are not timed yet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits
from diode_engine.errors import ModelError
from diode_engine.models.predictor import Predictor

log = logging.getLogger(__name__)

# How many standard deviations of the members' predictions the lower confidence bound is below their
# mean, as in bandits and Bayesian optimisation (Srinivas et al. 2010).
BOUND_DEVIATIONS = 2.0


@dataclass(frozen=True)
class Advice:
    """The predictions for n candidates, each [n]: natural logarithms of microseconds; infinite
    where nothing is predicted or the kernel does not fit the device."""

    expected: npt.NDArray[np.float64]  # the mean of the members
    lower_bound: npt.NDArray[np.float64]  # the lower confidence bound


# The predictions for these candidates of the problem, on one kind of GPU.
Adviser = Callable[[Problem, Sequence[Candidate]], Advice]


def advise(
    predictor: Predictor, hardware: Hardware, problem: Problem, candidates: Sequence[Candidate]
) -> Advice:
    """The predictions of a model for these candidates of the problem."""
    members = np.log(predictor.predict_members_us(problem, candidates))
    expected = members.mean(axis=0)
    lower_bound = expected - BOUND_DEVIATIONS * members.std(axis=0)
    unknown = ~np.isfinite(expected) | ~fits(problem, candidates, hardware)
    return Advice(np.where(unknown, np.inf, expected), np.where(unknown, np.inf, lower_bound))


def adviser_for(hardware: Hardware) -> Adviser | None:
    """The registry's model for this hardware. None where there is none or it is damaged: then
    candidates are chosen without a model."""
    from diode_engine import registry

    try:
        predictor = registry.load_predictor(hardware)
    except ModelError as error:
        log.warning("Candidates are chosen without a model: %s", error)
        return None
    return None if predictor is None else partial(advise, predictor, hardware)
