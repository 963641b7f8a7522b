"""The members of a model: one or several fitted models whose mean is the answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from diode_engine import features
from diode_engine.models.model_types import ENSEMBLE
from diode_engine.models.protocol import Matrix, TimingModel, mean_answer


def answers_of(members: Sequence[TimingModel], x: Matrix) -> Matrix:
    """[m, n] log times of the feature rows [n, F]: a row for each of the models that the members
    answer for (TimingModel.answers)."""
    return np.concatenate([member.answers(x) for member in members])


def space_answers_of(members: Sequence[TimingModel], space: features.SpaceFeatures) -> Matrix:
    """[m, n] the same for a problem's candidate space."""
    return np.concatenate([member.space_answers(space) for member in members])


def likely_of(
    members: Sequence[TimingModel], space: features.SpaceFeatures
) -> npt.NDArray[np.bool_] | None:
    """[n] the candidates that a member says may be the fastest; None: all may be."""
    together = np.zeros(space.rest.shape[1], np.bool_)
    for member in members:
        likely = member.likely(space)
        if likely is None:
            return None
        together |= likely
    return together


def prediction_of(members: Sequence[TimingModel], x: Matrix) -> Matrix:
    """[n] the mean of the members' log times: the geometric mean of their times."""
    return mean_answer([member.predict(x) for member in members])


def family_of(members: Sequence[TimingModel]) -> str:
    """The members' common family, or "ensemble" where they have none."""
    families = {member.family for member in members}
    return families.pop() if len(families) == 1 else ENSEMBLE
