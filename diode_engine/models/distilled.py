"""A small network that computes in whole numbers. It is trained to answer as a large model does,
and its answers are the same on every machine.

Features, activations and weights are whole numbers stored as float32. No sum of a layer can reach
2²⁴ (`EXACT`), up to which float32 holds every whole number. So every sum is exact in any order: the
answer depends neither on the BLAS library and its threads nor on how many rows are asked at once.
Between the layers each value is scaled and rounded by itself.

Quantisation of activations and weights after training: Jacob et al., "Quantization and Training of
Neural Networks for Efficient Integer-Arithmetic-Only Inference", CVPR 2018. Learning from a larger
model's answers: Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network", 2015.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from diode_engine import features
from diode_engine.errors import ModelError
from diode_engine.models.network import Network
from diode_engine.models.protocol import MAX_SUM, Matrix, TimingModel, mean_answer
from diode_engine.models.tensors import Tensors

EXACT = 1 << 24
INPUT_LEVELS = 2047  # that a feature is rounded to, over its range in training
LEVELS = 1023  # that an activation is rounded to, over its range on the calibration rows
_BLOCK = 1024  # rows at a time, so that a layer's activations stay in the processor's cache
_ROWS = 64  # of a weight at a time, when it is checked
_MAX_LAYERS = 16
_MAX_OUTPUTS = 64
_LN2 = np.float32(math.log(2))


@dataclass(frozen=True, eq=False)
class Layer:
    """`weight` [outputs, inputs] and `bias` [outputs, 1] are whole numbers. `scale` [outputs, 1]
    converts a sum to the levels of the next layer; in the last layer, to log time."""

    weight: Matrix
    bias: Matrix
    scale: Matrix


@dataclass(frozen=True, eq=False)
class DistilledNetwork(TimingModel):
    """The network. `low` and `step` [F, 1] convert a feature to its level, (x − low) · step.

    It has one output for each member of the model that it learned from: the logarithm of the time
    over the features' base time. The prediction is their mean; how much they differ says how
    uncertain it is. After Tran et al., "Hydra: Preserving Ensemble Diversity for Model
    Distillation", 2020.

    Raises ModelError where a layer's sums could be too large to be exact, or answers too large to
    be numbers.
    """

    low: Matrix
    step: Matrix
    layers: tuple[Layer, ...]

    family: ClassVar[str] = "distilled"

    def __post_init__(self) -> None:
        levels = INPUT_LEVELS
        for layer in self.layers:
            reach = _size_of_rows(layer.weight) * levels
            if not np.all(reach + np.abs(layer.bias[:, 0]) < EXACT):
                raise ModelError("The network's weights are too large for exact sums.")
            levels = LEVELS
        if not EXACT * np.abs(self.layers[-1].scale).max(initial=0).astype(np.float64) < MAX_SUM:
            raise ModelError("The network's last scale is so large that it predicts no times.")

    def predict(self, x: Matrix) -> Matrix:
        """As TimingModel.predict; a row's answer has the same bits whichever rows are asked with
        it."""
        return mean_answer(self.answers(x))

    def answers(self, x: Matrix) -> Matrix:
        """[outputs, n] log times of the feature rows [n, F], one for each member of the model that
        it learned from."""
        return self._answers(x.T, slice(None), self.layers[0].bias, x[:, features.BASE])

    def space_answers(self, space: features.SpaceFeatures) -> Matrix:
        """[outputs, n] the same bits as `answers` gives for the same rows."""
        own = slice(None, features.PROBLEM_COLUMN_COUNT)
        first = self.layers[0]
        common = first.weight[:, own] @ self._levels(space.problem[:, None], own)
        common += first.bias
        return self._answers(space.rest, slice(own.stop, None), common, space.base)

    def _answers(self, columns: Matrix, which: slice, common: Matrix, base: Matrix) -> Matrix:
        """[outputs, n] the answers. `columns` [features, n] are the values of these features, and
        `common` is what the others and the bias add to the first layer's sums."""
        n = columns.shape[1]
        weight = self.layers[0].weight[:, which]
        out = np.empty((len(self.layers[-1].weight), n), np.float32)
        for start in range(0, n, _BLOCK):
            block = slice(start, start + _BLOCK)
            sums = weight @ self._levels(columns[:, block], which)
            sums += common
            answers = self._after_first(sums)
            answers += base[block] * _LN2
            out[:, block] = answers
        return out

    def _levels(self, columns: Matrix, which: slice) -> Matrix:
        """[features, n] the levels of these features' values, which have the same shape."""
        levels: Matrix = np.subtract(columns, self.low[which], order="C")
        levels *= self.step[which]
        np.rint(levels, out=levels)
        return np.clip(levels, 0, INPUT_LEVELS, out=levels)

    def _after_first(self, sums: Matrix) -> Matrix:
        """[outputs, n] the answers, from the first layer's sums. It overwrites the sums."""
        for before, layer in zip(self.layers, self.layers[1:], strict=False):
            sums *= before.scale
            np.rint(sums, out=sums)
            np.clip(sums, 0, LEVELS, out=sums)
            sums = layer.weight @ sums
            sums += layer.bias
        sums *= self.layers[-1].scale
        return sums

    def to_bytes(self) -> bytes:
        from safetensors.numpy import save

        return save(self.tensors())

    def tensors(self, prefix: str = "") -> dict[str, Matrix]:
        """The tensors of the file, by name; `prefix` comes before each name."""
        tensors = {"low": self.low, "step": self.step}
        for place, layer in enumerate(self.layers):
            tensors[f"weight.{place}"] = layer.weight
            tensors[f"bias.{place}"] = layer.bias
            tensors[f"scale.{place}"] = layer.scale
        return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """As TimingModel.from_bytes: safetensors with exactly the tensors that belong there, in
        whole numbers where they must be."""
        tensors = Tensors(data, "network")
        network = cls.read(tensors)
        tensors.end()
        return network

    @classmethod
    def read(cls, tensors: Tensors, prefix: str = "", *, packed: bool = False) -> Self:
        """The inverse of `tensors`; these are taken from the file. With `packed` the weights are
        int16 there, in which all weights of exact sums fit. Raises ModelError as `from_bytes`
        does."""
        weights = tensors.whole if packed else tensors.take
        width = len(features.NAMES)
        low, step = (tensors.take(prefix + name, width, 1) for name in ("low", "step"))
        layers: list[Layer] = []
        while f"{prefix}weight.{len(layers)}" in tensors and len(layers) < _MAX_LAYERS:
            place = len(layers)
            weight = weights(f"{prefix}weight.{place}", None, width)
            width = weight.shape[0]
            if not width:
                raise ModelError(f"The network's layer {place} has no outputs.")
            bias = tensors.take(f"{prefix}bias.{place}", width, 1)
            if not (_whole(bias) and (packed or _whole(weight))):
                raise ModelError("The network's weights must be whole numbers.")
            layers.append(Layer(weight, bias, tensors.take(f"{prefix}scale.{place}", width, 1)))
        if not layers or not 1 <= width <= _MAX_OUTPUTS:
            raise ModelError(f"The network's last layer must have 1 to {_MAX_OUTPUTS} outputs.")
        return cls(low, step, tuple(layers))


def _size_of_rows(weight: Matrix) -> npt.NDArray[np.float64]:
    """[outputs] the sums of the weights' absolute values. One that allows exact sums in a layer is
    exact itself."""
    # Few rows at a time: a copy of all would be new memory, which a load waits for.
    parts = (np.abs(weight[i : i + _ROWS]) for i in range(0, len(weight), _ROWS))
    with np.errstate(over="ignore"):  # too large, as any other that is
        return np.concatenate([part.sum(axis=1) for part in parts]).astype(np.float64)


def _whole(values: Matrix) -> bool:
    return np.array_equal(np.rint(values), values)


def quantize(network: Network, x: Matrix) -> DistilledNetwork:
    """The network, which must be residual, in whole numbers. `x` [n, F] are typical feature rows,
    the calibration rows: the levels of an activation are spread over the values that it takes on
    them. A weight has as many levels as exact sums allow."""
    assert network.residual
    low, high = network.low.astype(np.float64), network.high.astype(np.float64)
    step = np.where(high > low, INPUT_LEVELS / np.maximum(high - low, 1e-30), 0)
    reached = np.minimum(np.maximum(x, network.low), network.high).astype(np.float64)
    reached = (reached - network.mean) * network.scale
    # An input of the first layer is level / step + low, standardised.
    worth = np.divide(network.scale, step, out=np.zeros_like(step), where=step > 0)
    offset = (low - network.mean) * network.scale
    levels = INPUT_LEVELS
    layers: list[Layer] = []
    for weight, bias in network.layers:
        exact = weight.T.astype(np.float64)
        constant = bias + exact @ offset
        exact = exact * worth
        # Rounding adds at most 1/2 to each weight and to the bias.
        room = EXACT - 1 - levels * (exact.shape[1] / 2 + 1)
        unit = room / (levels * np.abs(exact).sum(axis=1) + np.abs(constant) + 1e-30)
        reached = np.maximum(reached @ weight + bias, 0)
        top = np.maximum(reached.max(axis=0), 1e-12)
        last = len(layers) + 1 == len(network.layers)
        scale = 1 / unit if last else LEVELS / (top * unit)
        layers.append(
            Layer(
                *(
                    np.ascontiguousarray(values, np.float32)
                    for values in (
                        np.rint(exact * unit[:, None]), np.rint(constant * unit)[:, None],
                        scale[:, None],
                    )
                )
            )
        )  # fmt: skip
        worth, offset, levels = top / LEVELS, np.zeros(len(top)), LEVELS
    return DistilledNetwork(
        low.astype(np.float32)[:, None], step.astype(np.float32)[:, None], tuple(layers)
    )
