"""A model's answer for one problem: the predicted time of each candidate, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import encode
from diode_engine.core.problem import Problem
from diode_engine.core.templates import template_of

Microseconds = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Prediction:
    """The predicted times of a problem's n candidates.

    `predicted_us` [n] are microseconds, NaN where the model has no prediction. `reaches[k - 1]` is
    the probability that the fastest of the first k takes at most 5 % longer than the fastest of
    all; None where the model has no confidence. `error` is Evidence.error_near the problem (a
    natural logarithm), and `proven` [n] says which candidates are of a kind that is proven; both
    are None where the model has no evidence. `launchable` counts the candidates that the GPU can
    launch; None where nobody has looked. `likeness`, from 0 to 1, is that of the GPU predicted for
    to those of which the model learned problems of this op and type.
    """

    problem: Problem
    candidates: Sequence[Candidate]
    predicted_us: Microseconds
    reaches: tuple[float, ...] | None = None
    error: float | None = None
    proven: Mask | None = None
    launchable: int | None = None
    likeness: float = 1.0

    @cached_property
    def order(self) -> npt.NDArray[np.intp]:
        """The indices of the candidates with a prediction, the fastest first; equal ones in their
        order."""
        places = np.flatnonzero(is_known(self.predicted_us))
        return places[np.argsort(self.predicted_us[places], kind="stable")]

    @property
    def confidence(self) -> float | None:
        """The probability that the fastest one is within 5 % of the best; None where the model has
        no confidence."""
        return None if self.reaches is None else self.reaches[0]

    def count_to_reach(self, probability: float) -> int | None:
        """Return how many candidates must be timed so that the best of them is within 5 % of the
        best of all with this probability.

        It is the smallest number that reaches the probability, or all candidates with a prediction
        where none does; None where the model has no confidence.
        """
        if self.reaches is None:
            return None
        enough = (k for k, reached in enumerate(self.reaches, 1) if reached >= probability)
        return min(next(enough, len(self.reaches)), len(self.order))

    def offered_by_default(self) -> Prediction:
        """Return the prediction without the candidates that Inductor offers only with an option of
        their template, such as persistent TMA kernels."""
        columns = encode(self.candidates)
        by_default = np.array([not template_of(name).option for name in columns.templates])
        us = np.where(by_default[columns.template], self.predicted_us, np.nan)
        return replace(self, predicted_us=us)


def is_known(us: Microseconds) -> Mask:
    """Return [n] which of the times are finite and so known."""
    return np.isfinite(us) & (us > 0)
