"""What kernels are chosen by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from diode_engine.core.problem import Candidate, Problem
    from diode_engine.models.preference import Microseconds


class TimePredictor(Protocol):
    """Predicts kernels' times. One that has `rank`, as diode_engine.models.predictor.Predictor,
    tells how sure it is, too."""

    @property
    def identity(self) -> str:
        """A hash of all that its predictions depend on."""

    def predict_us(self, problem: Problem, candidates: Sequence[Candidate]) -> Microseconds:
        """[n] microseconds; NaN where it cannot say."""
