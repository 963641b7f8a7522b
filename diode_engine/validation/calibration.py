"""Whether a model's confidence agrees with what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diode_engine.models.confidence import WITHIN
from diode_engine.validation.metrics import Summary, Values

BINS = 10
SHARES = (0.5, 0.8, 0.9)  # of the problems, the surest ones
ASKED = (0.8, 0.9, 0.95)  # probabilities of being within 5 %
MIN_EFFICIENCY = 1 / (1 + WITHIN)


@dataclass(frozen=True)
class Bin:
    """Problems of similar confidence: the mean confidence, and the share of them on which the first
    choice was within 5 % of the best."""

    problems: int
    confidence: float
    reached: float


@dataclass(frozen=True)
class Adaptive:
    """As many candidates as are needed to reach a probability. `timed` is their mean number;
    `reached` is the share of problems on which the best of them was within 5 % of the best."""

    timed: float
    reached: float
    summary: Summary


@dataclass(frozen=True)
class Calibration:
    """The confidence in first choices, compared with what was measured.

    `bins` hold equally many problems, from the least sure to the surest. `error` is the expected
    calibration error over them (Naeini et al., Obtaining Well Calibrated Probabilities Using
    Bayesian Binning, 2015): the mean of |confidence − reached|, weighted by problems. `chance` is
    about what it would be if each probability were exact, since the share in a bin of few problems
    varies. `surest` has, for each of SHARES, a summary of the surest share of the problems;
    `adaptive` has, for each of ASKED, the result with an adaptive number of candidates.
    """

    problems: int
    bins: tuple[Bin, ...]
    error: float
    chance: float
    surest: Mapping[float, Summary]
    adaptive: Mapping[float, Adaptive]


def calibration(
    reaches: Sequence[tuple[float, ...] | None], efficiency: npt.NDArray[np.float64]
) -> Calibration | None:
    """`reaches` are Prediction.reaches of n problems; None where the model does not say how sure it
    is of any. `efficiency` is [k, n]: that of the best of the first 1, 2, … candidates, a row for
    each number in `reaches`."""
    probability = np.array([each for each in reaches if each is not None]).T
    if not probability.size:
        return None
    efficiency = efficiency[:, [each is not None for each in reaches]]
    sure, reached = probability[0], efficiency >= MIN_EFFICIENCY
    order = np.argsort(sure, kind="stable")
    n = len(order)
    parts = [part for part in np.array_split(order, BINS) if len(part)]
    bins = tuple(
        Bin(len(part), float(sure[part].mean()), float(reached[0][part].mean())) for part in parts
    )
    # The mean distance of a normal variable from its mean is √(2/π) standard deviations.
    chance = sum(np.sqrt(2 / np.pi * np.sum(sure[part] * (1 - sure[part]))) for part in parts) / n
    return Calibration(
        problems=n,
        bins=bins,
        error=sum(b.problems * abs(b.confidence - b.reached) for b in bins) / n,
        chance=float(chance),
        surest={
            share: Summary.make(efficiency[0][order[n - max(round(share * n), 1) :]])
            for share in SHARES
        },
        adaptive={asked: _adaptive(probability, efficiency, asked) for asked in ASKED},
    )


def _adaptive(probability: Values, efficiency: Values, asked: float) -> Adaptive:
    enough = probability >= asked
    k = np.where(enough.any(axis=0), enough.argmax(axis=0), len(probability) - 1)
    best = efficiency[k, np.arange(len(k))]
    return Adaptive(float(k.mean()) + 1, float(np.mean(best >= MIN_EFFICIENCY)), Summary.make(best))
