"""Fits a distilled network: a network learns a teacher's answers, and is then converted to whole
numbers. A cascade is one to which its teacher's networks and a sieve are added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from diode_engine.models.cascade import Cascade
from diode_engine.models.distilled import DistilledNetwork, quantize
from diode_engine.models.fit_network import NetworkSettings, fit_network
from diode_engine.models.fitting import Checkpoint, Examples, FitProgress, ProgressCallback
from diode_engine.models.fitting_method import FittingMethod
from diode_engine.models.network import Network
from diode_engine.models.protocol import TimingModel

CALIBRATED = 20_000  # calibration rows for `quantized`
# How many of its teachers' networks a cascade keeps. With four of six it chooses as well as with
# all (docs/notes/models.md), and each takes 0.1 ms a problem.
KEPT = 4
SETTINGS = NetworkSettings(
    hidden=(256, 128), epochs=40, learning_rate=3e-3, weight_decay=1e-3, averaging=0.999
)
# A sieve must find a problem's fastest kernels, whatever times it gives the others, so the
# ranking weighs more than in other networks.
SIEVE = replace(SETTINGS, hidden=(96, 32), focus=6.0, rank=0.3, temperature=0.05)


def fit_distilled(
    train: Examples,
    held_out: Examples,
    settings: NetworkSettings,
    report: ProgressCallback = lambda progress: None,
    checkpoint: Checkpoint | None = None,
) -> DistilledNetwork:
    """As FittingMethod.fit; the network has an output for each of the training examples'
    `heads`."""
    network = fit_network(train, held_out, settings, report, checkpoint)
    step = max(1, len(train.x) // CALIBRATED)
    return quantize(network, train.x[::step])


def fit_cascade(
    teacher: Sequence[TimingModel],
    learned: Examples,
    watched: Examples,
    settings: NetworkSettings,
    report: ProgressCallback = lambda progress: None,
    checkpoint: Checkpoint | None = None,
) -> Cascade:
    """As FittingMethod.fit_with_teacher. The steps of the sieve follow those of the first network,
    whose errors are reported with them: a sieve's say nothing about the cascade's answers."""
    steps = 2 * settings.epochs
    of_first: list[FitProgress] = []

    def report_first(progress: FitProgress) -> None:
        of_first.append(replace(progress, steps=steps))
        report(of_first[-1])

    def report_sieve(progress: FitProgress) -> None:
        report(replace(of_first[-1], step=settings.epochs + progress.step))

    first = fit_distilled(learned, watched, settings, report_first, checkpoint)
    cascade = join_teacher(first, teacher, learned)
    # The sieve learns the times that the cascade answers.
    labels, checks = (
        replace(each, log_us=cascade.predict(each.x), heads=None) for each in (learned, watched)
    )
    as_long = replace(SIEVE, epochs=settings.epochs, seed=settings.seed)
    part = None if checkpoint is None else checkpoint.part("sieve")
    return replace(cascade, sieve=fit_distilled(labels, checks, as_long, report_sieve, part))


def join_teacher(
    first: DistilledNetwork, teacher: Sequence[TimingModel], learned: Examples
) -> Cascade:
    """Return the cascade of the first network, which is also its sieve, and of its teacher's
    networks. A network that predicts the log time itself instead of its difference from the base
    time (not `residual`) has no form in whole numbers and is left out; so are those after the first
    KEPT. The first network answers for them."""
    rows = learned.x[:: max(1, len(learned.x) // CALIBRATED)]
    networks = {
        place: cast("Network", member)
        for place, member in enumerate(teacher)
        if member.family == Network.family
    }
    exact = [(place, each) for place, each in networks.items() if each.residual]
    teachers = {place: quantize(each, rows) for place, each in exact[:KEPT]}
    return Cascade(first, teachers, sieve=first)


FITTING = FittingMethod(SETTINGS, fit_distilled)
CASCADE_FITTING = FittingMethod(SETTINGS, fit_distilled, fit_with_teacher=fit_cascade)
