"""What a model is to everything that uses one.

Fitting is apart (`fit_network`, `fit_trees`): a fitted model is a function of feature rows, and
bytes that hold no code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from diode_engine.errors import ModelError

Matrix = npt.NDArray[np.float32]


class TimingModel(Protocol):
    """A fitted model: feature rows to log time. Immutable, and may be shared by threads."""

    family: ClassVar[str]
    suffix: ClassVar[str]  # of the file that holds its bytes

    def predict(self, x: Matrix) -> Matrix:
        """[n, F] feature rows (features.matrix) to [n] natural logarithms of microseconds.
        The same rows give the same bits; a row among other rows may differ in the last ones."""

    def to_bytes(self) -> bytes:
        """The file's content."""

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The inverse of `to_bytes`. Raises ModelError where the bytes are corrupt or hostile."""


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
        total = self.members[0].predict(x)
        for member in self.members[1:]:
            total = total + member.predict(x)
        return total / np.float32(len(self.members))


def family_of(members: Sequence[TimingModel]) -> str:
    """The members' common family, or "ensemble" where they have none."""
    families = {member.family for member in members}
    return families.pop() if len(families) == 1 else Ensemble.family


def load_member(family: str, data: bytes) -> TimingModel:
    """The model of this family in these bytes. Raises ModelError where there is no such family
    or the bytes are not one."""
    if family == "network":
        from diode_engine.models.network import Network

        return Network.from_bytes(data)
    if family == "trees":
        from diode_engine.models.trees import Trees

        return Trees.from_bytes(data)
    raise ModelError(
        f"The model has a member of the family {family!r}, which this Diode does not know; "
        "update Diode."
    )
