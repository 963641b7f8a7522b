"""What a model is to everything that uses one.

Fitting is apart (`fit_network`, `fit_trees`): a fitted model is a function of feature rows, and
bytes that hold no code.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]
MOST_SUM = (
    1e38  # of a model's weights, whatever is asked: beyond about three times this float32 ends
)


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
