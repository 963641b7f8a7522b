"""Fits a model's confidence to predictions for problems that the predicting models had not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diode_engine.errors import TrainingError
from diode_engine.models.confidence import MAX_K, WITHIN, Confidence, Values, inputs
from diode_engine.models.neighbours import Places

MIN_CASES = 50  # problems; fewer say nothing about probabilities
# The weight of the L2 penalty, on standardised inputs. It is large, because even 867 problems are
# few to find thirteen weights.
_L2 = 10.0


@dataclass(frozen=True, eq=False)
class Unseen:
    """A problem, and the predictions of a model that had not seen it: `members` [members, n] log
    times of the measured candidates, `log_us` [n] the measured log times, `library` [n] which
    candidates are a library's, `away` the problem's distance (confidence.distance) to what that
    model had seen."""

    members: Values
    log_us: Values
    library: npt.NDArray[np.bool_]
    away: float


def fit_confidence(unseen: Sequence[Unseen], seen: Places) -> Confidence:
    """The confidence that fits these predictions best. Each problem must have at least two measured
    candidates. `seen` are the coordinates (neighbours.places) of the problems that the final model
    was trained on. Raises TrainingError where there are fewer than MIN_CASES problems."""
    if len(unseen) < MIN_CASES:
        raise TrainingError(
            f"{len(unseen)} problems are too few to tell how sure a model is ({MIN_CASES} are "
            "needed): collect or import more."
        )
    x = np.stack([inputs(case.members, case.library, case.away) for case in unseen])
    reached = np.stack([_reached(case) for case in unseen])
    mean, spread = x.mean(axis=(0, 1)), x.std(axis=(0, 1))
    scale = np.where(spread > 1e-6, 1 / np.maximum(spread, 1e-6), 0)
    fitted = np.stack([_logistic((x[:, k] - mean) * scale, reached[:, k]) for k in range(MAX_K)])
    weight = fitted[:, 1:] * scale
    bias = fitted[:, 0] - weight @ mean
    return Confidence(weight.astype(np.float32), bias.astype(np.float32), seen)


def _reached(case: Unseen) -> npt.NDArray[np.bool_]:
    """[MAX_K] whether the fastest of the first k takes at most WITHIN longer than the fastest of
    all."""
    order = np.argsort(case.members.mean(axis=0), kind="stable")
    so_far = np.minimum.accumulate(case.log_us[order])
    loss = so_far[np.minimum(np.arange(MAX_K), len(order) - 1)] - case.log_us.min()
    reached: npt.NDArray[np.bool_] = loss <= np.log1p(WITHIN)
    return reached


def _logistic(x: Values, y: npt.NDArray[np.bool_]) -> Values:
    """[1 + F] the bias and the weights of a logistic regression of y [n] on x [n, F]. The weights,
    not the bias, are regularised by _L2. The targets are Platt's, a little more than 0 and a little
    less than 1, so that no probability gets to 0 or 1 even where all y are equal."""
    from scipy.optimize import minimize
    from scipy.special import expit

    positives = np.count_nonzero(y)
    low, high = 1 / (len(y) - positives + 2), (positives + 1) / (positives + 2)
    target = np.where(y, high, low)

    def loss(weights: Values) -> tuple[float, Values]:
        logit, penalty = x @ weights[1:] + weights[0], _L2 * weights[1:]
        wrong = expit(logit) - target
        value = np.sum(np.logaddexp(0, logit) - target * logit) + penalty @ weights[1:] / 2
        return float(value), np.append(wrong.sum(), x.T @ wrong + penalty)

    start = np.zeros(1 + x.shape[1])
    start[0] = np.log(target.mean() / (1 - target.mean()))
    found: Values = minimize(loss, start, jac=True, method="L-BFGS-B").x
    return found
