"""The interface of a model that predicts kernels' times for a choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from diode_engine.choosing.prediction import Microseconds
    from diode_engine.core.candidate import Candidate
    from diode_engine.core.problem import Problem


class TimePredictor(Protocol):
    """Predicts kernels' times. A predictor with `predict`, such as
    diode_engine.models.predictor.Predictor, also says how sure it is."""

    @property
    def identity(self) -> str:
        """A hash of everything that its predictions depend on."""

    def predict_us(self, problem: Problem, candidates: Sequence[Candidate]) -> Microseconds:
        """[n] microseconds; NaN where it has no prediction."""
