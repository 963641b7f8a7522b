"""The members of a model: one or several fitted models that answer as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diode_engine.documents import show
from diode_engine.errors import ModelError
from diode_engine.models.ensemble import Ensemble
from diode_engine.models.protocol import Matrix, TimingModel


def answers_of(members: Sequence[TimingModel], x: Matrix) -> Matrix:
    """[m, n] log times of the feature rows [n, F] by each member; a distilled network answers
    for every member of the model that it learned from."""
    from diode_engine.models.distilled import DistilledNetwork

    return np.concatenate(
        [
            member.answers(x) if isinstance(member, DistilledNetwork) else member.predict(x)[None]
            for member in members
        ]
    )


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
    if family == "distilled":
        from diode_engine.models.distilled import DistilledNetwork

        return DistilledNetwork.from_bytes(data)
    if family == "trees":
        from diode_engine.models.trees import Trees

        return Trees.from_bytes(data)
    raise ModelError(
        f"The model has a member of the family {show(family)}, which this Diode does not know; "
        "update Diode."
    )
