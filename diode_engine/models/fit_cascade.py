"""Fits a cascade: a distilled network, to which the networks of its teacher are added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from diode_engine.models.cascade import Cascade
from diode_engine.models.distilled import DistilledNetwork, quantized
from diode_engine.models.fit_distilled import CALIBRATED
from diode_engine.models.fit_distilled import FITTING as FIRST
from diode_engine.models.fitting_method import FittingMethod
from diode_engine.models.network import Network
from diode_engine.models.protocol import Matrix, TimingModel


def with_teacher(first: DistilledNetwork, teacher: Sequence[TimingModel], x: Matrix) -> Cascade:
    """As FittingMethod.with_teacher. A network that predicts the log time itself instead of its
    difference from the base time (not `residual`) has no form in whole numbers and is left out."""
    rows = x[:: max(1, len(x) // CALIBRATED)]
    networks = {
        place: cast("Network", member)
        for place, member in enumerate(teacher)
        if member.family == Network.family
    }
    return Cascade(
        first,
        {
            place: quantized(network, rows)
            for place, network in networks.items()
            if network.residual
        },
    )


FITTING = FittingMethod(FIRST.settings, FIRST.fit, with_teacher=with_teacher)
