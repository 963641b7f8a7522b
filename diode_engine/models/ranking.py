"""A model's answer for one problem: the candidates by predicted time, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Ranking:
    """`order` has the indices of the candidates with a prediction, the fastest first;
    `predicted_us` is [n], NaN for the others. `reaches[k - 1]` is the probability that the fastest
    of the first k takes at most 5 % longer than the fastest of all; None where the model has no
    confidence. `error` is Evidence.error_near the problem, and `proven` [n] which candidates are of
    a kind that is proven; None where the model has no evidence. `likeness` is that of the GPU to
    those that the model was trained on."""

    order: npt.NDArray[np.intp]
    predicted_us: npt.NDArray[np.float64]
    reaches: tuple[float, ...] | None
    error: float | None = None
    proven: npt.NDArray[np.bool_] | None = None
    likeness: float = 1.0

    def borrowed(self, likeness: float) -> Ranking:
        """This ranking on another GPU than the model was trained on: the confidence is multiplied
        by the likeness of the two, and a larger gain is asked (`preference.Policy.of`)."""
        reaches = self.reaches and tuple(likeness * reached for reached in self.reaches)
        return replace(self, reaches=reaches, likeness=likeness)

    @property
    def confidence(self) -> float | None:
        """The probability that the first choice is within 5 % of the best."""
        return None if self.reaches is None else self.reaches[0]

    def k(self, probability: float) -> int | None:
        """How many candidates must be timed so that the best of them is within 5 % of the best of
        all with this probability. It is the smallest k that reaches the probability, or all
        candidates with a prediction where none does. None where the model has no confidence."""
        if self.reaches is None:
            return None
        enough = (k for k, reached in enumerate(self.reaches, 1) if reached >= probability)
        return min(next(enough, len(self.reaches)), len(self.order))
