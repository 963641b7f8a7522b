"""Fits a cascade: a distilled network, to which its teacher's networks and a sieve are added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from diode_engine.models.cascade import Cascade
from diode_engine.models.distilled import DistilledNetwork, quantize
from diode_engine.models.fit_distilled import CALIBRATED, SETTINGS, fit_distilled
from diode_engine.models.fit_network import NetworkSettings
from diode_engine.models.fitting import Examples
from diode_engine.models.fitting_method import FittingMethod
from diode_engine.models.network import Network
from diode_engine.models.protocol import TimingModel

# It must find a problem's fastest kernels and need not tell how long the others take, so the
# ranking weighs more than in other networks.
SIEVE = replace(SETTINGS, hidden=(96, 32), focus=6.0, rank=0.3, temperature=0.05)


def with_teacher(
    first: DistilledNetwork,
    teacher: Sequence[TimingModel],
    learned: Examples,
    watched: Examples,
    settings: NetworkSettings,
) -> Cascade:
    """As FittingMethod.with_teacher. A network that predicts the log time itself instead of its
    difference from the base time (not `residual`) has no form in whole numbers and is left out."""
    rows = learned.x[:: max(1, len(learned.x) // CALIBRATED)]
    networks = {
        place: cast("Network", member)
        for place, member in enumerate(teacher)
        if member.family == Network.family
    }
    cascade = Cascade(
        first,
        {place: quantize(network, rows) for place, network in networks.items() if network.residual},
    )
    answers = [replace(each, log_us=cascade.predict(each.x)) for each in (learned, watched)]
    as_long = replace(SIEVE, epochs=settings.epochs, seed=settings.seed)
    return with_sieve(cascade, answers[0], answers[1], as_long)


def with_sieve(
    cascade: Cascade, learned: Examples, watched: Examples, settings: NetworkSettings = SIEVE
) -> Cascade:
    """The cascade with a sieve that learns these examples' times, which are the cascade's answers;
    their heads are not used. Early stopping watches the second examples."""
    learned, watched = (replace(each, heads=None) for each in (learned, watched))
    return replace(cascade, sieve=fit_distilled(learned, watched, settings))


FITTING = FittingMethod(SETTINGS, fit_distilled, with_teacher=with_teacher)
