"""A multilayer perceptron over feature rows, evaluated with numpy: no torch is needed to ask it.

Rectified linear units; inputs are clipped to the range seen in training and standardised. With
`residual` the network predicts the logarithm of the time over the features' base time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from diode_engine import features
from diode_engine.errors import ModelError
from diode_engine.models.protocol import MAX_SUM, Matrix, TimingModel
from diode_engine.models.tensors import Tensors

_BLOCK = 2048  # rows at a time, so that the activations stay in the processor's cache
_MAX_LAYERS = 16
_LN2 = np.float32(math.log(2))


@dataclass(frozen=True, eq=False)
class Network(TimingModel):
    """The weights. `low`, `high`, `mean` and `scale` (one over the standard deviation) are [F]; a
    layer is (weight [inputs, outputs], bias [outputs]). The answer is the mean of the last layer's
    outputs; a saved network has one output."""

    low: Matrix
    high: Matrix
    mean: Matrix
    scale: Matrix
    layers: tuple[tuple[Matrix, Matrix], ...]
    residual: bool

    family: ClassVar[str] = "network"

    def predict(self, x: Matrix) -> Matrix:
        n = len(x)
        out = np.empty(n, np.float32)
        for start in range(0, n, _BLOCK):
            h = np.minimum(np.maximum(x[start : start + _BLOCK], self.low), self.high)
            h -= self.mean
            h *= self.scale
            for weight, bias in self.layers[:-1]:
                h = h @ weight
                h += bias
                np.maximum(h, 0, out=h)
            weight, bias = self.layers[-1]
            out[start : start + len(h)] = (h @ weight + bias).mean(axis=1)
        if self.residual:
            out += x[:, features.BASE] * _LN2
        return out

    def to_bytes(self) -> bytes:
        from safetensors.numpy import save

        tensors: dict[str, np.ndarray[Any, Any]] = {
            "low": self.low,
            "high": self.high,
            "mean": self.mean,
            "scale": self.scale,
            "residual": np.array([self.residual], np.uint8),
        }
        for place, (weight, bias) in enumerate(self.layers):
            tensors[f"weight.{place}"] = np.ascontiguousarray(weight)
            tensors[f"bias.{place}"] = bias
        return save(tensors)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """As TimingModel.from_bytes: safetensors with exactly the tensors that belong there."""
        tensors = Tensors(data, "network")
        residual = tensors.flag("residual")
        width = len(features.NAMES)
        low, high, mean, scale = (
            tensors.take(name, width) for name in ("low", "high", "mean", "scale")
        )
        layers: list[tuple[Matrix, Matrix]] = []
        inputs: int = width
        while f"weight.{len(layers)}" in tensors and len(layers) < _MAX_LAYERS:
            weight = tensors.take(f"weight.{len(layers)}", inputs, None)
            inputs = weight.shape[1]
            layers.append((weight, tensors.take(f"bias.{len(layers)}", inputs)))
        if not layers or inputs != 1:
            raise ModelError("The network's last layer must have one output.")
        tensors.end()
        network = cls(low, high, mean, scale, tuple(layers), residual)
        if not network.reach() < MAX_SUM:
            raise ModelError("The network's weights are so large that it predicts no times.")
        return network

    def reach(self) -> float:
        """The largest absolute value that a sum of any layer can have, for any input."""
        low, high, mean, scale = (
            each.astype(np.float64) for each in (self.low, self.high, self.mean, self.scale)
        )
        h = np.maximum(np.abs(low - mean), np.abs(high - mean)) * np.abs(scale)
        most = float(h.max(initial=0))
        for weight, bias in self.layers:
            h = h @ np.abs(weight.astype(np.float64)) + np.abs(bias)
            most = max(most, float(h.max(initial=0)))
        return most
