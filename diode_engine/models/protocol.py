"""What every fitted model does: it answers for feature rows, and is written to bytes that hold no
code. How a model is fitted is a protocol of its own (`fitting_method`).

A model that is registered has one or several fitted ones as members, whose mean is the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from diode_engine import features

Matrix = npt.NDArray[np.float32]
MAX_SUM = 1e38  # no sum inside a model may be larger, for any input: float32 ends at 3.4e38


class TimingModel(Protocol):
    """A fitted model: feature rows in, log times out. Immutable, and may be shared by threads.

    The class of a family inherits from it and defines `predict`, `to_bytes` and `from_bytes`. A
    class that answers for several models, or is faster when it is asked about a whole candidate
    space, defines `answers` and `space_answers` too; one that is too slow for hundreds of
    candidates defines `likely`.
    """

    family: ClassVar[str]  # its name in `model_types.MODEL_TYPES`

    def predict(self, x: Matrix) -> Matrix:
        """[n, F] feature rows (features.matrix) to [n] natural logarithms of microseconds. The same
        rows give the same bits; with other rows beside it, a row's last bits may differ."""
        raise NotImplementedError

    def answers(self, x: Matrix) -> Matrix:
        """[m, n] the log times of each of the m models that it answers for; by default only its
        own. `predict` is their mean."""
        return self.predict(x)[None]

    def space_answers(self, space: features.SpaceFeatures) -> Matrix:
        """[m, n] `answers` for the n candidates of the space."""
        return self.answers(space.rows())

    def likely(self, space: features.SpaceFeatures) -> npt.NDArray[np.bool_] | None:
        """[n] which candidates of the space may be the fastest, for a model that takes long to
        answer for all of them; the others need not be ranked. None: all may be."""
        return None

    def to_bytes(self) -> bytes:
        """The content of its file, in the safetensors format."""
        raise NotImplementedError

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The inverse of `to_bytes`. Raises ModelError where the bytes are damaged or were made to
        do harm."""
        raise NotImplementedError


def mean_answer(answers: Sequence[Matrix] | Matrix) -> Matrix:
    """[n] the mean of several answers, each [n]."""
    total = answers[0]
    for answer in answers[1:]:
        total = total + answer
    return total / np.float32(len(answers))


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
    return mean_answer(answers_of(members, x))
