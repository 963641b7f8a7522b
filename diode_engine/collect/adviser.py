"""What a trained model predicts for candidates that are not timed yet."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Candidate, Problem
from diode_engine.core.resources import fits
from diode_engine.errors import ModelError

log = logging.getLogger(__name__)

# How many standard deviations of the members' predictions are subtracted for `hoped`: the lower
# confidence bound of bandits and Bayesian optimisation (Srinivas et al. 2010).
HOPE = 2.0


@dataclass(frozen=True)
class Advice:
    """For n candidates, natural logarithms of microseconds; infinite where nothing is predicted or
    the kernel does not fit."""

    expected: npt.NDArray[np.float64]
    hoped: npt.NDArray[np.float64]  # the shortest time that the members' spread leaves likely


class PredictsMembers(Protocol):
    """The part of models.Predictor that is asked here."""

    def predict_members_us(
        self, problem: Problem, candidates: Sequence[Candidate]
    ) -> npt.NDArray[np.float64]:
        """[members, n] microseconds; NaN where they cannot say."""


class Adviser:
    """A model's predictions for one kind of GPU."""

    def __init__(self, predictor: PredictsMembers, hardware: Hardware) -> None:
        self._predictor = predictor
        self._hardware = hardware

    def advise(self, problem: Problem, candidates: Sequence[Candidate]) -> Advice:
        members = np.log(self._predictor.predict_members_us(problem, candidates))
        expected = members.mean(axis=0)
        hoped = expected - HOPE * members.std(axis=0)
        unknown = ~np.isfinite(expected) | ~fits(problem, candidates, self._hardware)
        return Advice(np.where(unknown, np.inf, expected), np.where(unknown, np.inf, hoped))


def adviser_for(hardware: Hardware) -> Adviser | None:
    """The registry's model for this hardware; None where there is none or it is damaged: the
    collection then continues without one."""
    from diode_engine import registry

    try:
        predictor = registry.load_predictor(hardware)
    except ModelError as error:
        log.warning("Candidates are chosen without a model: %s", error)
        return None
    return None if predictor is None else Adviser(predictor, hardware)
