"""A cascade: a small network finds the likely candidates of a problem, and larger ones rank these.

The larger ones are a distilled network and some of the networks that it has learned from, its
teachers. The small one, the sieve, has learned what they answer together. It is asked about
hundreds of candidates, and they about a few of these. All compute in whole numbers, so the answers
are the same on every machine. After Wang, Lin and Metzler, "A Cascade Ranking Model for Efficient
Ranked Retrieval", SIGIR 2011.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from diode_engine import features
from diode_engine.errors import ModelError
from diode_engine.models.distilled import DistilledNetwork
from diode_engine.models.protocol import Matrix, TimingModel, mean_answer
from diode_engine.models.tensors import Tensors

# Candidates that are ranked, besides the library's. On problems that a sieve has not learned, the
# best of 16 is predicted to take 0.035 % longer than the best of all, of 20 0.018 %.
RANKED = 20
_FIRST, _SIEVE = "first.", "sieve."  # before the names of these networks' tensors


@dataclass(frozen=True, eq=False)
class Cascade(TimingModel):
    """`first` is the distilled network, with one output for each of its teachers; `teachers` has
    teachers that are networks, by the output that they answer for. For the other teachers (trees,
    which are too slow for a compile, and more networks) the first network answers."""

    first: DistilledNetwork
    teachers: Mapping[int, DistilledNetwork]
    sieve: DistilledNetwork

    family: ClassVar[str] = "cascade"

    def predict(self, x: Matrix) -> Matrix:
        """As TimingModel.predict; a row's answer has the same bits whichever rows are asked with
        it."""
        return mean_answer(self.answers(x))

    def answers(self, x: Matrix) -> Matrix:
        """[outputs of the first network, n] as TimingModel.answers."""
        out = self.first.answers(x)
        for place, teacher in self.teachers.items():
            out[place] = teacher.answers(x)[0]
        return out

    def space_answers(self, space: features.SpaceFeatures) -> Matrix:
        """[outputs, n] the same bits as `answers` gives for the same rows."""
        out = self.first.space_answers(space)
        for place, teacher in self.teachers.items():
            out[place] = teacher.space_answers(space)[0]
        return out

    def likely(self, space: features.SpaceFeatures) -> npt.NDArray[np.bool_] | None:
        """[n] the RANKED candidates with the shortest times by the sieve; None where there are no
        more than that."""
        if space.rest.shape[1] <= RANKED:
            return None
        times = mean_answer(self.sieve.space_answers(space))
        likely: npt.NDArray[np.bool_] = times <= np.partition(times, RANKED - 1)[RANKED - 1]
        return likely

    def to_bytes(self) -> bytes:
        from safetensors.numpy import save

        tensors = self.first.tensors(_FIRST)
        for place, teacher in self.teachers.items():
            tensors.update(teacher.tensors(f"{place}."))
        tensors.update(self.sieve.tensors(_SIEVE))
        # A compile loads the file: half the bytes take half the time.
        packed = {n: t.astype(np.int16) for n, t in tensors.items() if ".weight." in n}
        return save({**tensors, **packed})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        tensors = Tensors(data, "cascade")

        def read(prefix: str) -> DistilledNetwork:
            return DistilledNetwork.read(tensors, prefix, packed=True)

        first = read(_FIRST)
        outputs = len(first.layers[-1].weight)
        teachers = {
            place: read(f"{place}.") for place in range(outputs) if f"{place}.low" in tensors
        }
        if any(len(teacher.layers[-1].weight) != 1 for teacher in teachers.values()):
            raise ModelError("A teacher in the cascade's file must have one output.")
        sieve = read(_SIEVE)
        tensors.end()
        return cls(first, teachers, sieve)
