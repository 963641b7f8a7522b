"""Fits the confidence of a model to predictions of problems that models had not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diode_engine.errors import TrainingError
from diode_engine.models.confidence import INPUTS, MOST, WITHIN, Confidence, Values, inputs
from diode_engine.models.neighbours import Places

LEAST_CASES = 50  # problems; of fewer nothing can be said about probabilities
_L2 = 10.0  # on standardised inputs: 867 problems decide little about thirteen weights
_STEPS = 50
_CONVERGED = 1e-8


@dataclass(frozen=True, eq=False)
class Unseen:
    """A problem and what a model that had not seen it said: `members` [members, n] log times of
    the measured candidates, `log_us` [n] the measured ones, `library` [n] whose kernels they
    are, `away` the problem's distance (confidence.distance) to what that model had seen."""

    members: Values
    log_us: Values
    library: npt.NDArray[np.bool_]
    away: float


def fit_confidence(unseen: Sequence[Unseen], seen: Places) -> Confidence:
    """From problems with two measured candidates or more; `seen` are the places of those that
    the model it is for was trained on. Raises TrainingError where they are fewer than
    LEAST_CASES."""
    if len(unseen) < LEAST_CASES:
        raise TrainingError(
            f"{len(unseen)} problems are too few to tell how sure a model is ({LEAST_CASES} are "
            "needed): collect or import more."
        )
    x = np.stack([inputs(case.members, case.library, case.away) for case in unseen])
    reached = np.stack([_reached(case) for case in unseen])
    mean, spread = x.mean(axis=(0, 1)), x.std(axis=(0, 1))
    scale = np.where(spread > 1e-6, 1 / np.maximum(spread, 1e-6), 0)
    fitted = np.stack([_logistic((x[:, k] - mean) * scale, reached[:, k]) for k in range(MOST)])
    weight = fitted[:, 1:] * scale
    bias = fitted[:, 0] - weight @ mean
    return Confidence(weight.astype(np.float32), bias.astype(np.float32), seen)


def _reached(case: Unseen) -> npt.NDArray[np.bool_]:
    """[MOST] whether the best of the first k is within WITHIN of the best."""
    order = np.argsort(case.members.mean(axis=0), kind="stable")
    so_far = np.minimum.accumulate(case.log_us[order])
    loss = so_far[np.minimum(np.arange(MOST), len(order) - 1)] - case.log_us.min()
    reached: npt.NDArray[np.bool_] = loss <= np.log1p(WITHIN)
    return reached


def _logistic(x: Values, y: npt.NDArray[np.bool_]) -> Values:
    """[1 + F] the bias and weights of a logistic regression of y [n] on x [n, F], the weights
    (not the bias) held back by _L2, by Newton's method. The targets are Platt's, a little
    inside of 0 and 1, so that no number of equal answers makes it certain."""
    positives = np.count_nonzero(y)
    low, high = 1 / (len(y) - positives + 2), (positives + 1) / (positives + 2)
    target = np.where(y, high, low)
    rows = np.column_stack([np.ones(len(x)), x])
    held = np.array([0.0, *[_L2] * len(INPUTS)])
    weights = np.zeros(len(held))
    weights[0] = np.log(target.mean() / (1 - target.mean()))
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (target - p) - held * weights
        curvature = (rows.T * (p * (1 - p))) @ rows + np.diag(held)
        step = np.linalg.solve(curvature, slope)
        weights += step
        if np.abs(step).max() < _CONVERGED:
            break
    return weights
