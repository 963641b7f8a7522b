"""Several fitted models that answer as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from diode_engine.errors import ModelError
from diode_engine.models.protocol import Matrix, TimingModel


class Ensemble:
    """The mean of its members' log times: the geometric mean of their times."""

    family: ClassVar[str] = "ensemble"

    def __init__(self, members: Sequence[TimingModel]) -> None:
        """Raises ModelError where there are no members."""
        if not members:
            raise ModelError("An ensemble has no members; give it at least one model.")
        self.members = tuple(members)

    def predict(self, x: Matrix) -> Matrix:
        """As TimingModel.predict."""
        return self.mean([member.predict(x) for member in self.members])

    @staticmethod
    def mean(answers: Sequence[Matrix]) -> Matrix:
        """[n] what the members' answers, each [n], come to."""
        total = answers[0]
        for answer in answers[1:]:
            total = total + answer
        return total / np.float32(len(answers))
