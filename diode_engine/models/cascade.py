"""A cascade: a distilled network finds the likely candidates of a problem, and the networks that it
has learned from rank these.

The distilled network is small enough to be asked about hundreds of candidates, and loses a little
of what its teachers know. The teachers are asked about a few candidates only. All of them compute
in whole numbers, so the answers are the same on every machine. After Wang, Lin and Metzler, "A
Cascade Ranking Model for Efficient Ranked Retrieval", SIGIR 2011.
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

RANKED = 16  # candidates that the teachers are asked about, besides the library's
_FIRST = "first."  # before the names of the first network's tensors


@dataclass(frozen=True, eq=False)
class Cascade(TimingModel):
    """`first` is the distilled network, with one output for each of its teachers; `teachers` has
    the teachers that are networks, by the output that they answer for. For the other teachers
    (trees, which are too slow for a compile) the first network answers."""

    first: DistilledNetwork
    teachers: Mapping[int, DistilledNetwork]

    family: ClassVar[str] = "cascade"
    suffix: ClassVar[str] = ".safetensors"

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
        """[n] the RANKED candidates with the shortest times by the first network; None where there
        are no more than that."""
        if space.rest.shape[1] <= RANKED:
            return None
        times = mean_answer(self.first.space_answers(space))
        likely: npt.NDArray[np.bool_] = times <= np.partition(times, RANKED - 1)[RANKED - 1]
        return likely

    def to_bytes(self) -> bytes:
        """As TimingModel.to_bytes: the safetensors format."""
        from safetensors.numpy import save

        tensors = self.first.tensors(_FIRST)
        for place, teacher in self.teachers.items():
            tensors.update(teacher.tensors(f"{place}."))
        # A compile loads the file: half the bytes take half the time.
        packed = {n: t.astype(np.int16) for n, t in tensors.items() if ".weight." in n}
        return save({**tensors, **packed})

    @classmethod
    def from_bytes(cls, data: bytes, feature_set: features.FeatureSet = features.CURRENT) -> Self:
        """As TimingModel.from_bytes."""
        tensors = Tensors(data, "cascade")
        first = DistilledNetwork.taken(tensors, feature_set, _FIRST, packed=True)
        outputs = len(first.layers[-1].weight)
        teachers = {
            place: DistilledNetwork.taken(tensors, feature_set, f"{place}.", packed=True)
            for place in range(outputs)
            if f"{place}.low" in tensors
        }
        if any(len(teacher.layers[-1].weight) != 1 for teacher in teachers.values()):
            raise ModelError("A teacher in the cascade's file must have one output.")
        tensors.end()
        return cls(first, teachers)
