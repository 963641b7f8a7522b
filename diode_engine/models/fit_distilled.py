"""Fits a distilled network: a network learns a teacher's answers, and is then converted to whole
numbers."""

from __future__ import annotations

from diode_engine.models.distilled import DistilledNetwork, quantize
from diode_engine.models.fit_network import NetworkSettings, fit_network
from diode_engine.models.fitting import Checkpoint, Examples, ProgressCallback
from diode_engine.models.fitting_method import FittingMethod

CALIBRATED = 20_000  # calibration rows for `quantized`
SETTINGS = NetworkSettings(
    hidden=(256, 128), epochs=40, learning_rate=3e-3, weight_decay=1e-3, averaging=0.999
)


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


FITTING = FittingMethod(SETTINGS, fit_distilled)
